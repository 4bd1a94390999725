"""runs, show, memory, teams and models: listings for people and machines."""

import json
import sqlite3
from pathlib import Path

import pytest
from cli.conftest import Cli

from memeplex.cli import models as cli_models
from memeplex.cli.config import default_store
from memeplex.models.weights import cached_path, known_models


@pytest.fixture
def run(cli: Cli, duo: tuple[str, ...]) -> str:
    return str(cli("run", *duo, "--json").json["run"])


def test_runs(cli: Cli, run: str) -> None:
    told = cli("runs")
    assert told.code == 0 and run in told.out and "finished" in told.out and "Build a bridge." in told.out
    (entry,) = cli("runs", "--json").json["runs"]
    assert (entry["id"], entry["team"], entry["status"], entry["outcome"]) == (run, "duo", "finished", "completed")
    assert "spec" not in entry


def test_show(cli: Cli, run: str) -> None:
    told = cli("show", run[:-1])
    assert told.code == 0 and run in told.out and "A v2, B v2" in told.out
    turns = cli("show", run, "--turns").out
    assert turns.count("decides: ") == 4 and "[0] A (message)" in turns
    assert "memory update" in cli("show", run, "--tokens").out
    assert cli("show", run, "--memory", "A").out.startswith("A, version 2, updated after turn 2\n")
    whole = cli("show", run, "--turns", "--memory", "A", "--json").json
    assert len(whole["transcript"]) == whole["turns"] == 4 and whole["memory"]["version"] == 2
    assert cli("show", run, "--memory", "C").code == 2


def test_memory(cli: Cli, run: str) -> None:
    held = cli("memory", "show", "A").out
    assert held == cli("memory", "show", "A", "--run", run).out and "notes:" in held
    history = cli("memory", "history", "A", "--json").json
    assert [version["turn"] for version in history["versions"]] == [0, 2]
    assert cli("memory", "history", "A").out.count("updated") == 2
    diff = cli("memory", "diff", "A").out.splitlines()
    assert diff[:2] == ["--- version 1", "+++ version 2"]
    assert sum(line.startswith("+") for line in diff) == 2 and not any(line.startswith("-  ") for line in diff)
    whole = cli("memory", "diff", "A", "--from", 0, "--to", 2, "--json").json
    assert (whole["from"], whole["to"]) == (0, 2) and sum(line.startswith("+") for line in whole["diff"]) == 4
    assert cli("memory", "show", "A", "--json").json["content"]
    told = cli("memory", "diff", "A", "--to", 9)
    assert told.code == 2 and "'9'" in told.err and "known: 0, 1, 2" in told.err


def test_a_version_is_not_compared_with_itself(cli: Cli, run: str) -> None:
    told = cli("memory", "diff", "A", "--from", 2)
    assert told.code == 2 and "version 2 is the newest of A's memory" in told.err and "memory diff A" in told.err
    told = cli("memory", "diff", "A", "--to", 0)
    assert told.code == 2 and "nothing came before it" in told.err
    assert cli("memory", "diff", "A", "--from", 1).out.startswith("--- version 1\n+++ version 2\n")
    assert cli("memory", "diff", "A", "--from", 2, "--to", 2).out == "versions 2 and 2 are the same\n"


def test_a_long_cause_is_one_line_of_the_history(cli: Cli, run: str) -> None:
    cause = "the schema says no\n" * 40
    path = default_store()
    with sqlite3.connect(path) as db:
        db.execute("update memory_versions set body = json_set(body, '$.cause', ?)", (cause,))
    db.close()
    lines = cli("memory", "history", "A").out.splitlines()
    assert len(lines) == 3 and lines[1].endswith("…") and "no the schema" in lines[1]
    assert cli("memory", "history", "A", "--json").json["versions"][0]["cause"] == cause


def test_an_agent_without_a_memory_is_told_from_one_that_is_not_there(cli: Cli, duo: tuple[str, ...]) -> None:
    cli("run", *duo, "--memory", "none", "--max-turns", 1, "--seed", 0)
    told = cli("memory", "show", "A")
    assert (told.code, told.out) == (0, "A has no memory in this run: it has not spoken yet, or keeps none\n")
    assert cli("memory", "diff", "A").out == told.out
    assert cli("memory", "show", "Z").code == 2


def test_teams(cli: Cli) -> None:
    assert "data-pipeline" in cli("teams").out
    entries = {entry["name"]: entry for entry in cli("teams", "--json").json["teams"]}
    assert len(entries["data-pipeline"]["agents"]) == 8


def test_models(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(known_models()))
    assert f"local:{name}" in cli("models", "list").out and "not pulled, default" in cli("models", "list").out
    assert cli("models", "list", "--json").json["models"][0]["pulled"] is False
    told = cli("models", "path", name)
    assert (told.code, told.out) == (0, f"{cached_path(name)}\n")
    assert cli("models", "path", f"local:{name}", "--json").json["pulled"] is False
    assert cli("models", "path", "nothing").code == 2

    def pull(name: str, **about: object) -> Path:
        path = cached_path(name)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"weights")
        return path

    monkeypatch.setattr(cli_models, "pull", pull)
    told = cli("models", "pull", name, "--json")
    assert json.loads(told.out)["size"] == 7
    assert cli("models", "list", "--json").json["models"][0]["pulled"] is True
