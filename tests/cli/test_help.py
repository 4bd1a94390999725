"""Help: the page of the documentation is the real one, every command has an example, and it is quick."""

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from cli.conftest import Cli, command

from memeplex import __version__

GENERATOR = Path(__file__).parents[2] / "docs" / "gen_cli.py"


@pytest.fixture
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_cli", GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documentation_has_the_real_help(generator: ModuleType) -> None:
    page = generator.PAGE.read_text("utf-8")
    if f"with Typer {typer.__version__} from" not in page:
        pytest.skip("the page was written with another Typer, which prints help another way")
    assert page == generator.page(), "run: python docs/gen_cli.py"


def test_every_command_has_an_example(cli: Cli, generator: ModuleType) -> None:
    for words in generator.commands():
        told = cli(*words, "--help")
        assert told.code == 0 and "Example: memeplex " in told.out, words


def test_run_tells_its_exit_codes(cli: Cli) -> None:
    told = " ".join(cli("run", "--help").out.split())
    codes = ("0 done", "1 internal", "2 wrong use", "3 model", "4 store", "5 task too long", "6 the team", "130 inter")
    for part in codes:
        assert part in told


def test_version(process: Cli) -> None:
    told = process("--version")
    assert (told.code, told.out, told.err) == (0, f"memeplex {__version__}\n", "")


def test_no_command_shows_the_help(cli: Cli) -> None:
    told = cli()
    assert told.code == 2 and told.out == "" and told.err.startswith("Usage: memeplex")


def test_help_is_quick() -> None:
    """Processor time, so that a loaded machine does not count; the fastest of three."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command("--help"), stdout=subprocess.DEVNULL, check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) <= 0.5


def test_help_imports_neither_the_models_nor_the_teams() -> None:
    code = "import sys; from memeplex.cli.app import app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert not loaded & {"pydantic", "aiohttp", "rich", "memeplex.teams", "memeplex.models"}
