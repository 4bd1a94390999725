"""What reaches a terminal: no escape sequence of a model's, and a live view that can be read."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
from cli.conftest import Cli, Endpoint, said
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support import turn

from memeplex.cli import view as cli_view
from memeplex.cli.config import store_option
from memeplex.cli.output import clean
from memeplex.messages import TurnKind
from memeplex.teams import read_team
from memeplex.telemetry import ContextCut, MemoryUpdated, ReplyRetried, RunStarted, TurnFinished, TurnStarted
from memeplex.usage import Ledger, Purpose, Usage


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc"),
        ("\x9b2Jx\x9d0;t\x9cy", "xy"),
        ("un\x1b]0;ended", "un0;ended"),
        ("a\rb\x08c\x7fd", "abcd"),
        ("one\r\ntwo\tthree", "one\ntwo\tthree"),
        ("[bold]x[/bold] \u202eabc\u2066", "[bold]x[/bold] abc"),
        ("\ud800", ""),
        ("日本語 café 🎉", "日本語 café 🎉"),
    ],
)
def test_clean(text: str, plain: str) -> None:
    assert clean(text) == plain


@given(st.text() | st.lists(st.sampled_from(["\x1b", "[", "]", "\x9b", "0;", "m", "\x07", "\\", "a"])).map("".join))
def test_nothing_that_could_steer_a_terminal_is_left(text: str) -> None:
    told = clean(text)
    assert clean(told) == told
    assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in told)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(view: cli_view.View) -> str:
    """The live view as it would stand on a terminal of 100 by 30."""
    target = Console(file=io.StringIO(), width=100, height=30, color_system=None)
    target.print(view._render())  # type: ignore[attr-defined]
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_the_live_view_shows_who_speaks_and_what_each_agent_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    view = cli_view.open_view(read_team("data-pipeline"), "r1", quiet=False)
    spent = Ledger({Purpose.ANSWER: Usage(input=1000, cached=800, output=50, calls=1)})
    view.preload([turn(0, "BOA", "Old news.", usage=spent)], [])
    agents = ("BOA", "DEA", "CDA")
    view.show(RunStarted(run="r1", team="data-pipeline", task="x", agents=agents, turns=1))
    view.show(TurnFinished(turn=turn(1, "DEA", "[red]Store it[/red] in \x1b[31mS3.")))
    view.show(MemoryUpdated(agent="DEA", turn=1, version=1, status="updated", text="storage: S3 " * 200))
    view.show(ReplyRetried(model="m", purpose=Purpose.ANSWER, reason="empty"))
    view.show(TurnStarted(index=2, speaker="CDA", stage="discussion"))
    told = drawn(view)
    assert "data-pipeline, discussion: turn 3 of at most 40, CDA speaks" in told
    assert "1,000 tokens in (80% cached), 50 out" in told
    assert "DEA: [red]Store it[/red] in S3." in told and "\x1b" not in told
    assert "m, answer: empty" in told and "storage: S3" in told
    assert len(told.splitlines()) < 30


def test_the_live_view_draws_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with cli_view.open_view(read_team("panel"), "r1", quiet=False) as view:
        view.show(RunStarted(run="r1", team="panel", task="x", agents=("advocate",)))
        view.show(TurnFinished(turn=turn(0, "advocate", "Rent.")))
    assert "advocate: " in terminal.getvalue() and "Rent." in terminal.getvalue()


def test_plain_lines_tell_votes_from_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", target := io.StringIO())
    view = cli_view.open_view(read_team("panel"), "r1", quiet=False)
    view.show(TurnFinished(turn=turn(0, "editor", "Rent.\nThen buy.", stage="proposals")))
    view.show(TurnFinished(turn=turn(1, "sceptic", "OBJECT: no", kind=TurnKind.VOTE)))
    view.show(ContextCut(agent="sceptic", what="turn cut", before=90, after=40))
    assert target.getvalue().splitlines() == [
        "turn 1 of at most 9, editor (proposals): Rent. Then buy.",
        "vote after turn 1 of at most 9, sceptic: OBJECT: no",
        "  sceptic: turn cut, 90 to 40 tokens",
    ]


def test_the_files_of_a_run_are_as_private_as_asked_and_of_this_run_alone(
    cli: Cli, team: Path, endpoint: Endpoint
) -> None:
    endpoint.reply = lambda body, number: said(f"\x1b]0;owned\x07 Zoë\x9b31m says {number}\u202e")
    Path("results").mkdir()
    Path("results/document.json").write_text("{}")
    before = os.umask(0o077)
    try:
        assert cli("run", team, "--model", endpoint.model, "--out", "results").code == 0
    finally:
        os.umask(before)
    found = {path.name: path for path in Path("results").iterdir()}
    assert set(found) == {"design.md", "transcript.jsonl", "memories.json", "run.json"}
    for path in found.values():
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text("utf-8")
        assert not any(char in text for char in "\x1b\x07\x9b\u202e"), path
    assert "Zoë" in found["design.md"].read_text("utf-8")
    turns = [json.loads(line) for line in found["transcript.jsonl"].read_text("utf-8").splitlines()]
    assert "\x9b31m" in turns[0]["content"], "a machine reads it as it was said"


def test_a_command_to_run_next_names_the_store_without_its_password() -> None:
    assert store_option(None) == ""
    assert store_option("my runs.db") == " --store 'my runs.db'"
    assert store_option("postgresql://ada:s3cret@host:5432/db") == " --store postgresql://ada@host:5432/db"
    assert "s3cret" not in store_option("postgresql://host/db?user=ada&password=s3cret&sslmode=require")
