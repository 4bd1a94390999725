"""A run killed with SIGKILL at any moment goes on, and ends as if it had never been killed.

The points are drawn from ``SEED``; a failing test has its point in its name.
"""

import asyncio
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import plain, plain_versions

from memeplex.storage.sqlite import SQLiteStore
from memeplex.usage import Ledger

SCRIPT = Path(__file__).with_name("resumable.py")
SEED = 20261130
_draw = random.Random(SEED)
POINTS = [(kind, _draw.random()) for kind in ["event"] * 9 + ["before"] * 5 + ["after"] * 6 + ["outside"] * 5]


@dataclass(frozen=True)
class End:
    """What a run came to, without times."""

    status: str
    outcome: Any
    turns: list[dict[str, Any]]
    versions: list[dict[str, Any]]
    usage: dict[str, tuple[int, ...]]


def spawn(store: Path, action: str, kind: str = "never", at: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(SCRIPT), str(store), action, kind, str(at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(store: Path, action: str) -> list[str]:
    child = spawn(store, action)
    out, _ = child.communicate()
    assert child.returncode == 0
    return out.splitlines()


async def read(path: Path) -> End:
    store = SQLiteStore(path)
    run, turns, versions = await store.run("the-run"), await store.turns("the-run"), await store.versions("the-run")
    await store.aclose()
    ledger = sum([one.usage for one in (*turns, *versions)], Ledger())
    amounts = {purpose.value: (u.input, u.cached, u.output, u.calls) for purpose, u in ledger.items()}
    return End(run.status, run.outcome, plain(turns), plain_versions(versions), amounts)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[End, int, int]:
    """A run that nobody kills, with the numbers of its events and writes."""
    path = tmp_path_factory.mktemp("whole") / "runs.db"
    events, writes = finish(path, "start")[-1].split()
    return asyncio.run(read(path)), int(events), int(writes)


def test_the_whole_run_is_worth_killing(whole: tuple[End, int, int]) -> None:
    end, events, writes = whole
    assert end.status == "finished" and len(end.turns) > 25 and events > 100 and writes > 40
    assert {"answer", "vote", "template", "memory update"} == set(end.usage)
    assert len({version["agent"] for version in end.versions}) == 6


@pytest.mark.parametrize(("kind", "share"), POINTS, ids=[f"{kind}-{share:.4f}" for kind, share in POINTS])
def test_killed_at_any_moment_a_run_ends_as_if_it_had_not_been(
    whole: tuple[End, int, int], kind: str, share: float, tmp_path: Path
) -> None:
    end, events, writes = whole
    path = tmp_path / "runs.db"
    if kind == "outside":
        child = spawn(path, "start")
        assert child.stdout
        for _ in range(1 + int(share * (events - 1))):
            child.stdout.readline()
        child.kill()
        child.communicate()
        assert child.returncode in (-signal.SIGKILL, 0)
    else:
        # The first write makes the run: before it there is nothing to resume.
        first = {"event": 1, "before": 2, "after": 1}[kind]
        last = events if kind == "event" else writes
        child = spawn(path, "start", kind, first + int(share * (last - first + 1)))
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    before = asyncio.run(read(path))
    assert before.turns == end.turns[: len(before.turns)], "what was kept is a beginning of the whole"
    finish(path, "resume")
    assert asyncio.run(read(path)) == end


def test_killed_again_and_again_it_still_ends_the_same(whole: tuple[End, int, int], tmp_path: Path) -> None:
    end, _, _ = whole
    path = tmp_path / "runs.db"
    spawn(path, "start", "after", 4).communicate()
    for at in (9, 14, 3, 20):
        child = spawn(path, "resume", "event", at)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    finish(path, "resume")
    assert asyncio.run(read(path)) == end
