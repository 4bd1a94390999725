"""What the documentation says runs: its Python, its team files, its commands, its links; and it leaves no key out."""

import importlib.util
import re
import shlex
from importlib.metadata import metadata
from itertools import product
from pathlib import Path

import pytest
import typer

import memeplex.models
from memeplex.cli.app import app
from memeplex.cli.config import EmbedderTable, ModelTable
from memeplex.learning import LearningSettings
from memeplex.memory.intrinsic import IntrinsicSettings
from memeplex.memory.lifelong import LifelongSettings
from memeplex.memory.template import Slot
from memeplex.memory.tiers import TiersSettings
from memeplex.models import Model, ModelOptions, create_model
from memeplex.models.testing import FunctionModel
from memeplex.models.weights import known_models
from memeplex.teams import AgentSpec, TeamSpec, build_team, read_team
from memeplex.teams.spec import TerminationSpec, policies

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page: page.read_text("utf-8") for page in PAGES}
BY_HAND = {page: text for page, text in TEXTS.items() if page.name not in ("cli.md", "benchmarks.md")}
FUNCTION = FunctionModel(lambda messages, output, settings: "Let us see.")


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.name}:{n}", block)
        for page, text in BY_HAND.items()
        for n, block in enumerate(re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    ]


def lines(program: str) -> list[str]:
    """Command lines: those of shell blocks, and those in running text, where ``show|diff`` stands for two."""
    found = {line.partition(" #")[0].strip() for _, block in blocks("sh") for line in block.splitlines()}
    for text in BY_HAND.values():
        for code in re.findall(rf"`({program} [^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.M)):
            found |= {" ".join(words) for words in product(*(word.split("|") for word in code.split(" ")))}
    return sorted(line for line in found if line.startswith(f"{program} "))


def create(name: str, options: ModelOptions | None = None) -> Model:
    return FUNCTION if name.startswith("local:") else create_model(name, options)


@pytest.mark.parametrize(("where", "code"), [pytest.param(*block, id=block[0]) for block in blocks("python")])
def test_python_runs(where: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memeplex.models, "create_model", create)
    exec(compile(code, where, "exec"), {"__name__": where})


@pytest.mark.parametrize(("where", "text"), [pytest.param(*block, id=block[0]) for block in blocks("yaml")])
def test_team_files_load(where: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(text, "utf-8")
    spec = read_team(str(path))
    assert spec.task and len(build_team(spec, lambda name: FUNCTION).agents) >= 2


@pytest.mark.parametrize("command", lines("memeplex"))
def test_commands_parse(command: str) -> None:
    group = typer.main.get_command(app)
    words = shlex.split(command)[1:]
    while hasattr(group, "commands") and words and not words[0].startswith("-"):
        group = group.commands[words.pop(0)]
    if words != ["--help"]:
        group.make_context("memeplex", words)


def test_there_is_something_to_check() -> None:
    assert len(lines("memeplex")) >= 30 and len(blocks("python")) >= 6 and len(blocks("yaml")) >= 5


def test_make_has_the_targets_that_are_named() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = {word for line in lines("make") for word in line.split()[1:] if "=" not in word}
    assert {"demo", "test"} <= named <= set(targets)


def documented() -> dict[str, set[str]]:
    """The keys that each page has to explain."""
    slots = {*Slot.model_fields, *AgentSpec.model_fields, *TeamSpec.model_fields, *TerminationSpec.model_fields}
    arguments = {key for name in policies.table for key in policies.load(name).model_fields}
    return {
        "teams.md": {*slots, *arguments, *policies.table},
        "memory.md": set(IntrinsicSettings.model_fields),
        "lifelong.md": set(LifelongSettings.model_fields),
        "prompts.md": set(LearningSettings.model_fields),
        "tiers.md": set(TiersSettings.model_fields),
        "models.md": {
            *ModelTable.model_fields,
            *EmbedderTable.model_fields,
            *(weights.sha256 for weights in known_models().values()),
        },
    }


@pytest.mark.parametrize(("page", "keys"), documented().items(), ids=list(documented()))
def test_every_key_is_explained(page: str, keys: set[str]) -> None:
    text = TEXTS[ROOT / "docs" / page]
    assert not {key for key in keys if f"`{key}`" not in text and f"\n{key} = " not in text}


def test_the_schema_of_team_files_is_current() -> None:
    spec = importlib.util.spec_from_file_location("gen_schema", ROOT / "docs/gen_schema.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text("utf-8") == module.schema(), "python docs/gen_schema.py"


def test_both_tables_of_exit_codes_say_the_same() -> None:
    tables = [
        re.findall(r"^\| (\d+) \| (.+) \|$", TEXTS[ROOT / "docs" / page], re.M) for page in ("cli.md", "persistence.md")
    ]
    assert tables[0] == tables[1] and [int(code) for code, _ in tables[0]] == [0, 1, 2, 3, 4, 5, 6, 130]


@pytest.mark.parametrize("page", ["README.md", "docs/models.md"])
def test_other_vendors_are_installed_with_both_extras(page: str) -> None:
    """pydantic-ai comes without any vendor's package, so that the one extra alone ends in an error."""
    known = set(metadata("pydantic-ai-slim").get_all("Provides-Extra") or ())
    installed = [line for line in TEXTS[ROOT / page].splitlines() if "memeplex[providers]" in line]
    assert installed and all(set(re.findall(r"pydantic-ai-slim\[(.+?)\]", line)) & known for line in installed)
    assert {"google", "mistral", "groq", "bedrock", "openai"} <= known


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_python_says_first_that_weights_and_keys_are_its_users_business(page: str) -> None:
    before, fence, _ = TEXTS[ROOT / page].partition("```python")
    assert fence and "memeplex models pull" in before and "ModelOptions(api_key=SecretStr(key))" in before


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", TEXTS[page]):
        path = page.parent / target if target else page
        assert path.exists() and (not anchor or anchor in anchors(path)), target


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("nav:")[2].split()[1::2]
    assert sorted(navigation) == sorted(page.name for page in PAGES if page.parent.name == "docs")
