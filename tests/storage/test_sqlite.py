"""The embedded store, on real files and with real processes."""

import asyncio
import gc
import json
import resource
import sqlite3
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.test_runs import TESTS, python, run
from support import turn

from memeplex.errors import StorageError, StoreVersionError, UnknownNameError, UserError
from memeplex.messages import Task
from memeplex.storage import Provenance, Query, Record, Vectors, open_store, opened_store
from memeplex.storage.shielded import shielded
from memeplex.storage.sqlite import SQLiteStore, create


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "runs.db"


@pytest.fixture
async def store(path: Path) -> Any:
    opened = SQLiteStore(path)
    yield opened
    await opened.aclose()


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


async def test_every_commit_is_flushed_and_readers_do_not_wait(store: SQLiteStore, path: Path) -> None:
    await store.add_run(run())
    db = store._connection()
    assert await store._call(lambda db: db.execute("pragma synchronous").fetchone()[0]) == 2
    assert await store._call(lambda db: db.execute("pragma journal_mode").fetchone()[0]) == "wal"
    assert await store._call(lambda db: db.execute("pragma foreign_keys").fetchone()[0]) == 1
    assert db is store._connection()


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


async def test_what_only_this_database_lets_in_spoils_no_list(store: SQLiteStore, path: Path) -> None:
    for name in "abc":
        await store.add_run(run(name))
    with sqlite3.connect(path) as db:
        db.execute("update runs set created = 'x' where id = 'a'")
        db.execute("update runs set task = cast(x'7b2274657874223a22ff227d' as text) where id = 'b'")
    db.close()
    found = await store.runs()
    assert [one.id for one in found] == ["c"] and set(found.damaged) == {"a", "b"}


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


async def test_an_insert_writes_few_pages(store: SQLiteStore, path: Path) -> None:
    """Each page is written and flushed: an index more, or a table, is time that every insert takes."""
    log, written = path.with_name("runs.db-wal"), list[int]()
    for number in range(40):
        vectors = Vectors(embedder="test", values=np.eye(1, 384, number, dtype=np.float32))
        before = log.stat().st_size if log.exists() else 0
        await store.records.add([Record(owner="a", kind="fact", text=f"fact {number}")], vectors, actor="test")
        written.append((log.stat().st_size - before) // 4096)
    assert median(written[10:]) <= 14


async def test_a_store_with_the_former_indexes_is_brought_up_to_date(store: SQLiteStore, path: Path) -> None:
    written = Provenance(author="Eve", run="r", turns=(4,))
    record = Record(owner="a", kind="fact", text="the pier holds", provenance=written)
    await store.records.add([record], actor="test")
    await store.aclose()
    db = sqlite3.connect(path)
    db.executescript("""drop index records_by_author; drop index records_by_place; pragma user_version = 3;
     create index audit_by_owner on audit (owner, id); create index records_by_author on records (owner, author);
     create index records_by_place on records (owner, kind, source, position);""")
    db.close()
    async with opened_store(str(path)) as again:
        found = await again.records.search(Query(owners=("a",), text="what did Eve say of the pier"))
        assert [hit.record for hit in found.hits] == [record]
        assert [row.action for row in await again.records.audit("a")] == ["add"]
    partial = "select count(*) from sqlite_master where type = 'index' and sql like '%where%'"
    db = sqlite3.connect(path)
    assert db.execute(partial).fetchone()[0] == 2
    db.close()


async def test_the_fault_of_a_call_that_nobody_waits_for_any_more_is_not_told_behind_our_backs() -> None:
    told: list[object] = []
    loop, going = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(lambda _, context: told.append(context))

    async def fails() -> None:
        await going.wait()
        raise OSError("disk I/O error")

    work = asyncio.ensure_future(fails())
    waiter = asyncio.ensure_future(shielded(work))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    going.set()
    await asyncio.wait([work])
    del work, waiter
    await asyncio.sleep(0)
    gc.collect()
    assert told == []
    with pytest.raises(OSError, match="disk"):
        await shielded(fails())
