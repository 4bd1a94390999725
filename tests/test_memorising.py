"""Memorising killed with SIGKILL at any moment: each conversation is in exactly one tier, and nothing is there twice.

The points are drawn from ``SEED``; a failing test has its point in its name.
"""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from days import kept, tiers
from lives import opened

from memeplex.memory.tiers.atomic import as_held
from memeplex.memory.tiers.short_term import by_conversation
from memeplex.storage import JobState

SCRIPT = Path(__file__).with_name("memorising.py")
SEED = 20261201
_draw = random.Random(SEED)
POINTS = [(kind, _draw.random()) for kind in ["before"] * 9 + ["after"] * 10 + ["model"] * 6]
FACTS = {f"talk {n}": 7 if n == 2 else 2 for n in range(5)}


def run(store: Path, action: str, kind: str = "never", at: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(SCRIPT), str(store), action, kind, str(at)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """A store with conversations in short-term memory, and how often memorising calls the store and the model."""
    path = tmp_path_factory.mktemp("prepared") / "life.db"
    assert run(path, "prepare").returncode == 0
    whole = path.with_name("whole.db")
    shutil.copy(path, whole)
    done = run(whole, "memorise")
    calls, asked = done.stdout.split()
    assert asyncio.run(look(whole)) == (set(), set(FACTS))
    return path, int(calls), int(asked)


async def look(path: Path) -> tuple[set[str], set[str]]:
    """The conversations that are in short-term memory, and those that are in long-term memory, each of them whole."""
    async with opened(path) as store:
        agent = tiers(store)
        await agent.conflicts()
        short = await by_conversation(agent.archive, agent.owner)
        for name, chunks in short.items():
            assert sum(len(chunk.payload["messages"]) for chunk in chunks) == FACTS[name] + 1
        long: dict[str, list[str]] = {}
        prices: dict[str, str] = {}
        for record in await kept(store, "atomic"):
            held = as_held(record)
            (name,) = held.conversations
            if held.predicate == "has price":
                prices[held.object] = name
            else:
                assert held.subject == name
                long.setdefault(name, []).append(held.statement)
        for name, said in long.items():
            assert len(said) == len(set(said)) == FACTS[name], "all of it, and each once"
        assert sorted(prices.values()) == sorted(long)
        lessons = [record.payload["conversation"] for record in await kept(store, "reflection")]
        given = {record.payload["conversation"] for record in await kept(store, "feedback")}
        assert {name: lessons.count(name) for name in lessons} == {n: 1 + (n in ("talk 1", "talk 3")) for n in long}
        assert given == {"talk 1", "talk 3"} - set(long)
        assert len(await kept(store, "memorised")) == len(long)
        return set(short), set(long)


def test_the_whole_is_worth_killing(prepared: tuple[Path, int, int]) -> None:
    path, calls, asked = prepared
    assert asyncio.run(look(path)) == (set(FACTS), set()) and calls > 60 and asked > 11


@pytest.mark.parametrize(("kind", "share"), POINTS, ids=[f"{kind}-{share:.4f}" for kind, share in POINTS])
def test_killed_at_any_moment_each_conversation_is_in_exactly_one_tier(
    prepared: tuple[Path, int, int], kind: str, share: float, tmp_path: Path
) -> None:
    path, calls, asked = prepared
    store = tmp_path / "life.db"
    shutil.copy(path, store)
    last = asked if kind == "model" else calls - 1
    killed = run(store, "memorise", kind, 1 + int(share * last))
    assert killed.returncode == -signal.SIGKILL
    short, long = asyncio.run(look(store))
    assert short | long == set(FACTS) and not short & long
    assert run(store, "memorise").returncode == 0
    assert asyncio.run(look(store)) == (set(), set(FACTS))
    asyncio.run(at_rest(store))


async def at_rest(path: Path) -> None:
    """No job is left, and of the five prices the last one holds, since when the one before it no longer does."""
    async with opened(path) as store:
        assert {job.state for job in await store.jobs.jobs()} == {JobState.DONE}
        (conflict,) = [one for one in await tiers(store).conflicts() if one.predicate == "has price"]
        told = [as_held(record) for record in (conflict.current, *conflict.others)]
        # The last but one is dearer than what is said in a social exchange can change.
        assert [held.object for held in told] == [f"{n} dollars" for n in (3, 4, 2, 1, 0)]
        assert told[0].valid_until is None and all(held.valid_until for held in told[1:])


def test_killed_again_and_again_it_still_ends_well(prepared: tuple[Path, int, int], tmp_path: Path) -> None:
    path, calls, _ = prepared
    store = tmp_path / "life.db"
    shutil.copy(path, store)
    for share in (0.2, 0.3, 0.5, 0.2):
        assert run(store, "memorise", "after", int(share * calls)).returncode == -signal.SIGKILL
    assert run(store, "memorise").returncode == 0
    assert asyncio.run(look(store)) == (set(), set(FACTS))
    asyncio.run(at_rest(store))
