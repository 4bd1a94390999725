"""Runs, turns and memories, on every store, and with real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import turn

from memeplex.errors import RunLockedError, StorageError, UnknownNameError, UserError
from memeplex.messages import Outcome, Task
from memeplex.storage import MemoryVersion, Run, Store, open_store
from memeplex.usage import Ledger, Purpose, Usage


def run(name: str = "r", **more: Any) -> Run:
    fields: dict[str, Any] = {"team": "t", "task": Task(text="x"), "spec": {}, "model": "m", "seed": 1, "software": "0"}
    return Run(id=name, **{**fields, **more})


def version(agent: str = "A", at: int = 0, **more: Any) -> MemoryVersion:
    fields: dict[str, Any] = {"version": 1, "status": "updated", "content": {"notes": ["steel"]}}
    return MemoryVersion(agent=agent, turn=at, **{**fields, **more})


async def test_everything_comes_back_as_it_was(store: Store) -> None:
    usage = Ledger({Purpose.ANSWER: Usage(input=3, cached=1, output=2, calls=1, seconds=0.25)})
    kept = run(task=Task(text="橋\n🌉", data={"k": [1, {"a": None}]}), spec={"name": "t", "n": [1.5]})
    said = [turn(0, "A", "one", usage=usage, data={"x": 1}, flag="F", stage="s"), turn(1, "B", "two")]
    versions = [version(usage=usage), version("B", 1, status="failed", cause="no reply")]
    await store.add_run(kept)
    for one in said:
        await store.add_turn("r", one)
    for one in versions:
        await store.add_version("r", one)
    await store.end_run("r", "finished", Outcome(status="completed", details={"d": [1]}))
    await store.aclose()
    again = open_store(store.url)
    got = await again.run("r")
    assert (got.status, got.outcome) == ("finished", Outcome(status="completed", details={"d": [1]}))
    assert got.updated > kept.updated
    assert got.model_copy(update={"status": "running", "outcome": None, "updated": kept.updated}) == kept
    assert [t.model_dump() for t in await again.turns("r")] == [t.model_dump() for t in said]
    assert [v.model_dump() for v in await again.versions("r")] == [v.model_dump() for v in versions]
    assert [v.agent for v in await again.versions("r", "B")] == ["B"]
    assert await again.turns("other") == []
    await again.aclose()


CRASH = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[2])
from support import turn
from memeplex.storage import open_store

async def main():
    store = open_store(sys.argv[1])
    for i in range(20):
        await store.add_turn("r", turn(i, "A", f"turn {i}"))
        print(i, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
TESTS = str(Path(__file__).parents[1])


def python(code: str, *arguments: str | Path, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, **more
    )


async def test_what_was_acknowledged_survives_kill_9(store: Store) -> None:
    await store.add_run(run())
    child = python(CRASH, store.url, TESTS)
    out, _ = child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert [t.content for t in await store.turns("r")] == [f"turn {i}" for i in range(20)]
    assert out.split()[-1] == "19"


WRITER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from support import turn
from memeplex.storage import open_store

async def main(name):
    store = open_store(sys.argv[1])
    from memeplex.messages import Task
    from memeplex.storage import Run
    await store.add_run(Run(id=name, team="t", task=Task(text="x"), spec={}, model="m", seed=0, software="0"))
    for i in range(50):
        await store.add_turn(name, turn(i, "A", f"{name} {i}"))
        assert len(await store.turns(name)) == i + 1
    await store.aclose()

asyncio.run(main(sys.argv[3]))
"""


async def test_eight_processes_write_to_one_store(store: Store) -> None:
    """Report 16: "database is locked" with two sessions. Eight processes of 50 writes each, with reads between, on a
    store that none of them has made yet: no error, and all 400 are there."""
    writers = [python(WRITER, store.url, TESTS, f"run{n}", stderr=subprocess.PIPE) for n in range(8)]
    faults = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8, faults
    for n in range(8):
        assert [t.content for t in await store.turns(f"run{n}")] == [f"run{n} {i}" for i in range(50)]
    assert len(await store.runs()) == 8


HOLD = """
import sys
from memeplex.storage import open_store
with open_store(sys.argv[1]).lock("r"):
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_a_run_held_by_another_process_is_refused_and_freed_when_that_dies(store: Store) -> None:
    child = python(HOLD, store.url, stdin=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == "held\n"
    with pytest.raises(RunLockedError, match="run r") as caught, store.lock("r"):
        pass
    assert caught.value.remedy and store.held("r") and not store.held("other")
    with store.lock("other"):
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    with store.lock("r"):
        assert store.held("r")
    assert not store.held("r")


async def test_a_lock_is_freed_by_an_error_too(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.lock("r"):
        raise ZeroDivisionError
    with store.lock("r"):
        pass


async def test_a_run_is_found_by_a_unique_beginning(store: Store) -> None:
    for name in ("20260101-aa", "20260101-ab", "20260202-a", "20260202-ab"):
        await store.add_run(run(name))
    assert (await store.run("20260101-aa")).id == "20260101-aa"
    assert (await store.run("20260202-a")).id == "20260202-a", "a whole id is found though another begins with it"
    with pytest.raises(UserError, match="several runs begin with"):
        await store.run("20260101")
    for name in ("2027", "%", "_0260101-aa", "20260101-aA"):
        with pytest.raises(UnknownNameError, match="no run") as caught:
            await store.run(name)
        assert "memeplex runs" in caught.value.remedy


async def test_runs_come_newest_first_and_limited(store: Store) -> None:
    for name in "abc":
        await store.add_run(run(name))
    assert [one.id for one in await store.runs(limit=2)] == ["c", "b"]


async def test_a_damaged_run_spoils_no_list_and_is_named(store: Store, tamper: Callable[..., None]) -> None:
    for name in "bcdef":
        await store.add_run(run(name))
    tamper(
        "update runs set task = '{}' where id = 'b'",
        "update runs set spec = '[]' where id = 'c'",
        f"""update runs set spec = '{{"n": {"9" * 5000}}}' where id = 'd'""",
        "update runs set outcome = '{}' where id = 'e'",
    )
    found = await store.runs()
    assert [one.id for one in found] == ["f"] and set(found.damaged) == set("bcde")
    for name, error in found.damaged.items():
        assert f"run {name} cannot be read" in str(error) and "damaged" in error.remedy and "\n" not in str(error)
        with pytest.raises(StorageError, match=f"run {name} cannot be read"):
            await store.run(name)
    assert len(await store.runs(limit=1)) + len((await store.runs(limit=1)).damaged) == 1


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_missing_turn_is_noticed(store: Store, tamper: Callable[..., None], lost: int) -> None:
    await store.add_run(run())
    for i in range(4):
        await store.add_turn("r", turn(i, "A", "x"))
    tamper(f"delete from turns where idx = {lost}")
    with pytest.raises(StorageError, match=f"turn {lost} of run r is missing") as caught:
        await store.turns("r")
    assert caught.value.remedy


async def test_what_is_no_text_is_an_error_of_the_store(store: Store) -> None:
    for attempt in (store.run("\udcff"), store.add_run(run(model="\udcff"))):
        with pytest.raises(StorageError, match="surrogates"):
            await attempt


async def test_the_same_turn_twice_is_an_error_and_the_first_stands(store: Store) -> None:
    await store.add_run(run())
    await store.add_turn("r", turn(0, "A", "first"))
    with pytest.raises(StorageError, match=r"(?i)unique") as caught:
        await store.add_turn("r", turn(0, "B", "second"))
    assert caught.value.remedy
    with pytest.raises(StorageError):
        await store.add_turn("no such run", turn(0, "A", "x"))
    assert [t.content for t in await store.turns("r")] == ["first"]


async def test_the_first_version_of_a_turn_stands(store: Store) -> None:
    await store.add_run(run())
    await store.add_version("r", version(content={"notes": ["first"]}))
    await store.add_version("r", version(content={"notes": ["second"]}))
    await store.add_version("r", version("B", content={"notes": ["other"]}))
    assert [v.content["notes"] for v in await store.versions("r")] == [["first"], ["other"]]


async def test_a_cancelled_write_is_written(store: Store) -> None:
    """A cancelled caller must not leave behind a store that knows less than was handed to it."""
    await store.add_run(run())
    tasks = [asyncio.create_task(store.add_turn("r", turn(i, "A", "x"))) for i in range(20)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    for task in tasks:
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(await store.turns("r")) == 20
