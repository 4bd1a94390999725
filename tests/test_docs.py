"""What the documentation says runs: its Python, its team files, its commands, its links."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer

import memeplex.models
from memeplex.cli.app import app
from memeplex.models.testing import FunctionModel
from memeplex.teams import read_team

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN_BY_HAND = [page for page in PAGES if page.name not in ("cli.md", "benchmarks.md")]


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.name}:{n}", block)
        for page in WRITTEN_BY_HAND
        for n, block in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    ]


def commands() -> list[str]:
    text = "\n".join(page.read_text("utf-8") for page in WRITTEN_BY_HAND)
    indented = re.findall(r"^ {4}(memeplex [^#\n]+)", text, re.MULTILINE)
    return sorted({command.strip() for command in indented})


@pytest.mark.parametrize(("where", "code"), blocks("python"), ids=lambda value: value if ":" in value[:40] else "")
def test_python_runs(where: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memeplex.models, "create_model", lambda name: FunctionModel(lambda m, o, s: "Let us see."))
    exec(compile(code, where, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("where", "text"), [b for b in blocks("yaml") if "agents:" in b[1]])
def test_team_files_load(where: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(text, "utf-8")
    assert len(read_team(str(path)).agents) >= 2


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 8


@pytest.mark.parametrize("command", commands())
def test_commands_parse(command: str) -> None:
    group = typer.main.get_command(app)
    words = shlex.split(command)[1:]
    while hasattr(group, "commands") and words:
        group = group.commands[words.pop(0)]
    group.make_context("memeplex", words, resilient_parsing=False)


def test_the_schema_of_team_files_is_current() -> None:
    spec = importlib.util.spec_from_file_location("gen_schema", ROOT / "docs/gen_schema.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text("utf-8") == module.schema(), "python docs/gen_schema.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
