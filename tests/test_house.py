"""The rules that keep the package a house: floors, drawers, sizes, names and prompts."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from jinja2 import UndefinedError, meta

import memeplex
from memeplex.prompts import Kind, Prompt
from memeplex.prompts.sections import _environment, _fenced

ROOT = Path(memeplex.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PROMPTS = sorted(ROOT.rglob("*.md"))
DRAWERS = {"autonoms": {"base"}, "memory/baselines": set[str]()}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return ".".join(("memeplex", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


NAMES = [name_of(path) for path in FILES if path.stem != "__main__"]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield f"{path.name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_files_and_functions_keep_to_their_size_budget() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    sizes = dict(pair for path in FILES for pair in functions(path))
    assert not {name: count for name, count in lines.items() if count > 400}, "the hard limit"
    assert sum(count > 300 for count in lines.values()) <= len(FILES) // 20, "at most one file in twenty is over 300"
    assert not {name: count for name, count in sizes.items() if count > 50}
    assert median(lines.values()) <= 150 and median(sizes.values()) <= 15


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_sorted_importable_and_explained(name: str) -> None:
    module: Any = import_module(name)
    public = getattr(module, "__all__", [])
    assert list(public) == sorted(set(public), key=lambda text: (not text.isupper(), not text[0].isupper(), text))
    assert module.__doc__
    for entry in public:
        value = getattr(module, entry)
        if callable(value) and getattr(value, "__module__", "").startswith("memeplex"):
            assert value.__doc__, entry


@pytest.mark.parametrize("drawer", DRAWERS)
def test_files_in_a_drawer_do_not_import_each_other(drawer: str) -> None:
    package = "memeplex." + drawer.replace("/", ".")
    for path in (ROOT / drawer).glob("[!_]*.py"):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        siblings = {
            str(node.module).removeprefix(f"{package}.") for node in nodes if str(node.module).startswith(package)
        }
        assert siblings <= DRAWERS[drawer], path.name


def test_the_floors_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


class Anything(list[Any]):
    """Fits wherever a prompt wants a text, a list, or a mapping."""

    def __getattr__(self, name: str) -> Any:
        # Not of those that Jinja itself asks for.
        if name.startswith("_"):
            raise AttributeError(name)
        return Anything() if name.endswith("s") else "a word"

    def items(self) -> list[tuple[str, str]]:
        return [("a", "b")]


@pytest.mark.parametrize("path", PROMPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_prompt_needs_every_variable_that_it_names(path: Path) -> None:
    prompt = Prompt.load(name_of(path.parent), path.stem)
    assert prompt.sections
    for section in prompt.sections:
        names = meta.find_undeclared_variables(_environment.parse(section.text))
        given = {name: Anything([Anything(), Anything()]) for name in names}
        assert prompt.section(section.title, **given)
        for name in names:
            with pytest.raises(UndefinedError, match=name):
                prompt.section(section.title, **{key: value for key, value in given.items() if key != name})


@pytest.mark.parametrize("path", PROMPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_editable_text_is_plain_and_holds_no_data(path: Path) -> None:
    """It is filled in without a template, and cannot open a block; so ours must not rest on either."""
    for section in Prompt.load(name_of(path.parent), path.stem).sections:
        assert section.text
        if section.kind is Kind.EDITABLE:
            assert not any(mark in section.text for mark in ("{%", "{#", "|", "<", ">"))
            assert _fenced(section.text) == section.text
            assert set(section.names) == meta.find_undeclared_variables(_environment.parse(section.text))


def test_a_heading_says_what_kind_its_section_is() -> None:
    """In our files each does; a word that is no kind is an error, not a part of the title."""
    for wrong in ("# system (editabel)", "# a\n# a", "# (editable)", "# "):
        with pytest.raises(ValueError, match=r"heading|Kind"):
            Prompt.parse("p", wrong)
    bare = Prompt.parse("p", "# system\nA.\n# user (editable)\nB.\n")
    assert [section.kind for section in bare.sections] == [Kind.IMMUTABLE, Kind.EDITABLE]


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, memeplex; print(*sorted(m for m in sys.modules if m.split('.')[0] in set(sys.argv[1:])))"
    heavy = ["pydantic", "aiohttp", "jinja2", "yaml", "rich", "typer", "xllamacpp", "numpy", "sqlite3", "asyncio"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
