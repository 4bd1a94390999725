"""The embedded store, on real files and with real processes."""

import asyncio
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import turn

from memeplex.errors import RunLockedError, StorageError, StoreVersionError, UnknownNameError, UserError
from memeplex.messages import Outcome, Task
from memeplex.storage import MemoryVersion, Run, open_store
from memeplex.storage.sqlite import SQLiteStore, create
from memeplex.usage import Ledger, Purpose, Usage


def run(name: str = "r", **more: Any) -> Run:
    fields: dict[str, Any] = {"team": "t", "task": Task(text="x"), "spec": {}, "model": "m", "seed": 1, "software": "0"}
    return Run(id=name, **{**fields, **more})


def version(agent: str = "A", at: int = 0, **more: Any) -> MemoryVersion:
    fields: dict[str, Any] = {"version": 1, "status": "updated", "content": {"notes": ["steel"]}}
    return MemoryVersion(agent=agent, turn=at, **{**fields, **more})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "runs.db"


@pytest.fixture
async def store(path: Path) -> Any:
    opened = SQLiteStore(path)
    yield opened
    await opened.aclose()


async def test_everything_comes_back_as_it_was(store: SQLiteStore, path: Path) -> None:
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
    again = open_store(str(path))
    got = await again.run("r")
    assert (got.status, got.outcome) == ("finished", Outcome(status="completed", details={"d": [1]}))
    assert got.updated > kept.updated
    assert got.model_copy(update={"status": "running", "outcome": None, "updated": kept.updated}) == kept
    assert [t.model_dump() for t in await again.turns("r")] == [t.model_dump() for t in said]
    assert [v.model_dump() for v in await again.versions("r")] == [v.model_dump() for v in versions]
    assert [v.agent for v in await again.versions("r", "B")] == ["B"]
    assert await again.turns("other") == []
    await again.aclose()


@given(st.text(st.characters(codec=None), max_size=30))
def test_any_text_can_be_kept(text: str) -> None:
    """NUL and lone surrogates too, which neither SQLite's text nor UTF-8 can hold."""

    async def there_and_back() -> None:
        store = SQLiteStore()
        await store.add_run(run(task=Task(text=text)))
        one = turn(0, "A", text)
        await store.add_turn("r", one)
        assert (await store.turns("r"))[0].content == one.content
        assert "\0" not in one.content
        assert (await store.run("r")).task.text == one.content
        await store.aclose()

    asyncio.run(there_and_back())


CRASH = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[2])
from support import turn
from memeplex.storage.sqlite import SQLiteStore

async def main():
    store = SQLiteStore(__import__("pathlib").Path(sys.argv[1]))
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


async def test_what_was_acknowledged_survives_kill_9(store: SQLiteStore, path: Path) -> None:
    await store.add_run(run())
    child = python(CRASH, path, TESTS)
    out, _ = child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert [t.content for t in await store.turns("r")] == [f"turn {i}" for i in range(20)]
    assert out.split()[-1] == "19"


async def test_every_commit_is_flushed_and_readers_do_not_wait(store: SQLiteStore, path: Path) -> None:
    await store.add_run(run())
    db = store._connection()
    assert await store._call(lambda db: db.execute("pragma synchronous").fetchone()[0]) == 2
    assert await store._call(lambda db: db.execute("pragma journal_mode").fetchone()[0]) == "wal"
    assert await store._call(lambda db: db.execute("pragma foreign_keys").fetchone()[0]) == 1
    assert db is store._connection()


WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support import turn
from memeplex.storage.sqlite import SQLiteStore

async def main(name):
    store = SQLiteStore(Path(sys.argv[1]))
    from memeplex.messages import Task
    from memeplex.storage import Run
    await store.add_run(Run(id=name, team="t", task=Task(text="x"), spec={}, model="m", seed=0, software="0"))
    for i in range(50):
        await store.add_turn(name, turn(i, "A", f"{name} {i}"))
        assert len(await store.turns(name)) == i + 1
    await store.aclose()

asyncio.run(main(sys.argv[3]))
"""


async def test_eight_processes_write_to_one_store(store: SQLiteStore, path: Path) -> None:
    """Report 16: "database is locked" with two sessions. Eight processes of 50 writes each, with reads between, on a
    store that none of them has made yet: no error, and all 400 are there."""
    writers = [python(WRITER, path, TESTS, f"run{n}", stderr=subprocess.PIPE) for n in range(8)]
    faults = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8, faults
    for n in range(8):
        assert [t.content for t in await store.turns(f"run{n}")] == [f"run{n} {i}" for i in range(50)]
    assert len(await store.runs()) == 8


async def test_a_full_disk_is_one_clear_error_and_loses_nothing(store: SQLiteStore) -> None:
    await store.add_run(run())
    pages = await store._call(lambda db: db.execute("pragma page_count").fetchone()[0])
    await store._call(lambda db: db.execute(f"pragma max_page_count = {pages + 10}").fetchall())
    kept = 0
    with pytest.raises(StorageError) as caught:
        while kept < 1000:
            await store.add_turn("r", turn(kept, "A", "word " * 200))
            kept += 1
    assert "disk is full" in str(caught.value) and "nothing committed is lost" in caught.value.remedy
    assert str(store.path) in str(caught.value) and 0 < kept < 1000
    assert len(await store.turns("r")) == kept
    await store._call(lambda db: db.execute(f"pragma max_page_count = {pages + 1000}").fetchall())
    await store.add_turn("r", turn(kept, "A", "goes on"))
    assert len(await store.turns("r")) == kept + 1


FULL = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support import turn
from memeplex.errors import StorageError
from memeplex.storage.sqlite import SQLiteStore

async def main():
    store = SQLiteStore(Path(sys.argv[1]))
    kept = 0
    try:
        while kept < 1000:
            await store.add_turn("r", turn(kept, "A", "word " * 500))
            kept += 1
    except StorageError as error:
        print(kept, bool(error.remedy), "\\n" in str(error))

asyncio.run(main())
"""


async def test_a_file_that_cannot_grow_is_one_clear_error_and_loses_nothing(store: SQLiteStore, path: Path) -> None:
    await store.add_run(run())
    limit = 400_000
    child = python(FULL, path, TESTS, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    out, _ = child.communicate()
    kept, remedy, several_lines = out.split()
    assert (child.returncode, remedy, several_lines) == (0, "True", "False")
    assert 0 < int(kept) == len(await store.turns("r"))


async def test_a_store_of_a_newer_version_is_refused_and_left_alone(store: SQLiteStore, path: Path) -> None:
    await store.add_run(run())
    await store.aclose()
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 99")
    db.commit()
    db.close()
    newer = SQLiteStore(path)
    with pytest.raises(StoreVersionError, match="newer version") as caught:
        await newer.runs()
    assert "upgrade" in caught.value.remedy
    await newer.aclose()
    db = sqlite3.connect(path)
    assert db.execute("select count(*) from runs").fetchone() == (1,)
    assert db.execute("pragma user_version").fetchone() == (99,)
    db.close()


async def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 400)
    store = SQLiteStore(path)
    with pytest.raises(StorageError, match="not a database") as caught:
        await store.runs()
    assert str(path) in str(caught.value) and "--store" in caught.value.remedy
    await store.aclose()
    assert path.read_text() == "dear diary " * 400


@pytest.mark.parametrize("where", ["folder", "file/runs.db"])
async def test_a_place_that_cannot_hold_a_store_is_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    store = SQLiteStore(tmp_path / where)
    with pytest.raises(StorageError) as caught:
        await store.runs()
    assert where in str(caught.value) and caught.value.remedy
    await store.aclose()


HOLD = """
import sys
from pathlib import Path
from memeplex.storage.sqlite import SQLiteStore
with SQLiteStore(Path(sys.argv[1])).lock("r"):
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_a_run_held_by_another_process_is_refused_and_freed_when_that_dies(
    store: SQLiteStore, path: Path
) -> None:
    child = python(HOLD, path, stdin=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == "held\n"
    with pytest.raises(RunLockedError, match="run r") as caught, store.lock("r"):
        pass
    assert caught.value.remedy
    with store.lock("other"):
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    with store.lock("r"):
        pass


async def test_a_lock_is_freed_by_an_error_too(store: SQLiteStore) -> None:
    with pytest.raises(ZeroDivisionError), store.lock("r"):
        raise ZeroDivisionError
    with store.lock("r"):
        pass


async def test_opened_by_many_at_once_a_new_store_is_migrated_once(path: Path) -> None:
    stores = [SQLiteStore(path) for _ in range(8)]
    async with asyncio.TaskGroup() as tasks:
        for i, one in enumerate(stores):
            tasks.create_task(one.add_run(run(f"r{i}")))
    assert len(await stores[0].runs()) == 8
    for one in stores:
        await one.aclose()
    db = sqlite3.connect(path)
    tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
    assert tables >= {"runs", "turns", "memory_versions", "records"}
    assert db.execute("pragma user_version").fetchone()[0] > 0
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()


async def test_a_run_is_found_by_a_unique_beginning(store: SQLiteStore) -> None:
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


async def test_runs_come_newest_first_and_limited(store: SQLiteStore) -> None:
    for name in "abc":
        await store.add_run(run(name))
    assert [one.id for one in await store.runs(limit=2)] == ["c", "b"]


async def test_a_damaged_run_spoils_no_list_and_is_named(store: SQLiteStore, path: Path) -> None:
    for name in "abcdef":
        await store.add_run(run(name))
    with sqlite3.connect(path) as db:
        db.execute("update runs set created = 'x' where id = 'a'")
        db.execute("update runs set task = cast(x'7b2274657874223a22ff227d' as text) where id = 'b'")
        db.execute("update runs set spec = '[]' where id = 'c'")
        db.execute("update runs set spec = ? where id = 'd'", ('{"n": ' + "9" * 5000 + "}",))
        db.execute("update runs set outcome = '{}' where id = 'e'")
    db.close()
    found = await store.runs()
    assert [one.id for one in found] == ["f"] and set(found.damaged) == set("abcde")
    for name, error in found.damaged.items():
        assert f"run {name} cannot be read" in str(error) and "damaged" in error.remedy and "\n" not in str(error)
        with pytest.raises(StorageError, match=f"run {name} cannot be read"):
            await store.run(name)
    assert len(await store.runs(limit=1)) + len((await store.runs(limit=1)).damaged) == 1


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_missing_turn_is_noticed(store: SQLiteStore, path: Path, lost: int) -> None:
    await store.add_run(run())
    for i in range(4):
        await store.add_turn("r", turn(i, "A", "x"))
    with sqlite3.connect(path) as db:
        db.execute("delete from turns where idx = ?", (lost,))
    db.close()
    with pytest.raises(StorageError, match=f"turn {lost} of run r is missing") as caught:
        await store.turns("r")
    assert caught.value.remedy


async def test_what_is_no_text_is_an_error_of_the_store(store: SQLiteStore) -> None:
    for attempt in (store.run("\udcff"), store.add_run(run(model="\udcff"))):
        with pytest.raises(StorageError, match="surrogates"):
            await attempt


async def test_the_same_turn_twice_is_an_error_and_the_first_stands(store: SQLiteStore) -> None:
    await store.add_run(run())
    await store.add_turn("r", turn(0, "A", "first"))
    with pytest.raises(StorageError, match="UNIQUE") as caught:
        await store.add_turn("r", turn(0, "B", "second"))
    assert caught.value.remedy
    with pytest.raises(StorageError):
        await store.add_turn("no such run", turn(0, "A", "x"))
    assert [t.content for t in await store.turns("r")] == ["first"]


async def test_the_first_version_of_a_turn_stands(store: SQLiteStore) -> None:
    await store.add_run(run())
    await store.add_version("r", version(content={"notes": ["first"]}))
    await store.add_version("r", version(content={"notes": ["second"]}))
    await store.add_version("r", version("B", content={"notes": ["other"]}))
    assert [v.content["notes"] for v in await store.versions("r")] == [["first"], ["other"]]


async def test_a_cancelled_write_is_written(store: SQLiteStore) -> None:
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


async def test_a_store_in_memory_is_a_store() -> None:
    store = open_store("sqlite://")
    await store.add_run(run())
    with store.lock("r"):
        await store.add_turn("r", turn(0, "A", "x"))
    assert len(await store.turns("r")) == 1
    await store.aclose()


def test_addresses_of_stores() -> None:
    assert create("sqlite:///a/b.db").path == Path("a/b.db")
    assert create("sqlite:////a/b.db").path == Path("/a/b.db")
    assert create("sqlite:///~/b.db").path == Path("~/b.db").expanduser()
    assert create("sqlite://").path is None
    for url in ("sqlite:///", "sqlite://host/x.db"):
        with pytest.raises(UserError, match="no path"):
            create(url)
    with pytest.raises(UnknownNameError, match="mongo"):
        open_store("mongo://x")


async def test_bodies_are_plain_json_that_other_tools_can_read(store: SQLiteStore, path: Path) -> None:
    await store.add_run(run())
    await store.add_turn("r", turn(0, "A", "橋"))
    db = sqlite3.connect(path)
    assert json.loads(db.execute("select body from turns").fetchone()[0])["content"] == "橋"
    db.close()
