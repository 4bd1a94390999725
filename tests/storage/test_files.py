"""The files of a store: private, nothing left beside them, and readable where nothing can be written."""

import ctypes
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storage.test_runs import HOLD, python, run
from support import turn

from memeplex.errors import StorageError, UserError
from memeplex.storage import file_of
from memeplex.storage.sqlite import SQLiteStore, create


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store with one run of one turn, closed."""
    path = tmp_path / "kept" / "runs.db"
    store = SQLiteStore(path)
    await store.add_run(run())
    await store.add_turn("r", turn(0, "A", "said"))
    await store.aclose()
    return path


def names(folder: Path) -> set[str]:
    return {str(found.relative_to(folder)) for found in folder.rglob("*")}


# ---- nothing is left behind


async def test_reading_leaves_nothing_beside_the_file(path: Path) -> None:
    (path.parent / "runs.db.lock").unlink()
    store = SQLiteStore(path)
    assert len(await store.runs()) == 1 and not store.held("r")
    await store.aclose()
    assert names(path.parent) == {"runs.db"}


@pytest.mark.parametrize("text", ["dear diary " * 400, "short", ""])
async def test_a_file_that_is_no_store_gets_no_neighbours(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    store = SQLiteStore(path)
    if text:
        with pytest.raises(StorageError, match="not a database"):
            await store.runs()
        assert names(tmp_path) == {"notes.txt"} and path.read_text() == text
    else:
        # An empty file is a database to SQLite, and becomes a store.
        assert not await store.runs()
    await store.aclose()


@pytest.mark.parametrize("version", [0, 1])
async def test_the_database_of_another_program_is_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("create table bookmarks (a)")
        db.execute(f"pragma user_version = {version}")
    db.close()
    before = path.read_bytes()
    store = SQLiteStore(path)
    with pytest.raises(StorageError) as caught:
        await store.runs()
    assert "--store" in caught.value.remedy and "\n" not in str(caught.value)
    await store.aclose()
    assert names(tmp_path) == {"other.db"} and path.read_bytes() == before


async def test_a_run_that_is_let_go_leaves_no_lock_file(path: Path) -> None:
    store = SQLiteStore(path)
    with store.lock("r"), store.lock("other/../run"):
        assert store.held("r") and store.held("other/../run") and not store.held("third")
        assert len(names(path.parent / "runs.db.locks")) == 2
    assert not store.held("r")
    assert names(path.parent) == {"runs.db", "runs.db.lock"}


async def test_the_lock_file_of_a_killed_run_goes_with_the_next_look(path: Path) -> None:
    child = python(HOLD, str(path), stdin=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == "held\n"
    store = SQLiteStore(path)
    assert store.held("r")
    child.kill()
    child.communicate()
    assert names(path.parent / "runs.db.locks") == {"r.lock"}
    assert not store.held("r")
    assert names(path.parent) == {"runs.db", "runs.db.lock"}


CONTEND = """
import os, sys
from pathlib import Path
from memeplex.errors import RunLockedError
from memeplex.storage.sqlite import SQLiteStore
store, mark, held = SQLiteStore(Path(sys.argv[1])), sys.argv[2], 0
while held < 25:
    try:
        with store.lock("r"):
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            held += 1
            os.unlink(mark)
    except RunLockedError:
        continue
"""


async def test_a_lock_whose_file_comes_and_goes_is_held_by_one_at_a_time(path: Path, tmp_path: Path) -> None:
    """Were a lock file removed between another's opening and locking it, two would hold it, and one fail to mark."""
    children = [python(CONTEND, path, tmp_path / "mark", stderr=subprocess.PIPE) for _ in range(4)]
    faults = [child.communicate()[1] for child in children]
    assert [child.returncode for child in children] == [0] * 4, faults
    with SQLiteStore(path).lock("r"):
        pass
    assert names(path.parent) == {"runs.db", "runs.db.lock"}


# ---- private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_handed() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_handed")
async def test_what_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "runs.db"
    store = SQLiteStore(path)
    with store.lock("r"):
        await store.add_run(run())
        assert mode(path.parent) == 0o700
        assert {mode(path.with_name(f"runs.db{end}")) for end in ("", "-wal", "-shm")} == {0o600}
    await store.aclose()


@pytest.mark.usefixtures("open_handed")
async def test_what_was_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "shared" / "runs.db"
    path.parent.mkdir(mode=0o770)
    path.touch(mode=0o660)
    store = SQLiteStore(path)
    await store.add_run(run())
    assert (mode(path.parent), mode(path)) == (0o770, 0o660)
    await store.aclose()


# ---- where nothing can be written

READ = """
import asyncio, sys
from pathlib import Path
from memeplex.errors import StorageError
from memeplex.storage.sqlite import SQLiteStore

async def main():
    store = SQLiteStore(Path(sys.argv[1]))
    try:
        print(*[r.id for r in await store.runs()], *[t.content for t in await store.turns("r")], store.held("r"))
        await store.end_run("r", "failed")
    except StorageError as error:
        print(f"{error} | {error.remedy}")
    await store.aclose()

asyncio.run(main())
"""


def as_anybody() -> None:
    """To root no file is read-only: give up the right to pass over modes, in this process and what it executes."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        bounding, override, search = 24, 1, 2
        for right in (override, search):
            assert libc.prctl(bounding, right, 0, 0, 0) == 0


def read_as_anybody(path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], stdout=subprocess.PIPE, text=True, check=True, preexec_fn=as_anybody
    )
    return done.stdout.splitlines()


@pytest.fixture
def sealed(path: Path) -> Iterator[Any]:
    """Makes a folder and what is in it read-only, until the test is over."""
    shut: list[Path] = []

    def seal(*paths: Path) -> None:
        for one in paths:
            shut.append(one)
            one.chmod(0o555 if one.is_dir() else 0o444)

    yield seal
    for one in reversed(shut):
        one.chmod(0o755)


@pytest.mark.parametrize("what", ["folder", "file", "both"])
async def test_a_store_that_cannot_be_written_can_be_read(path: Path, sealed: Any, what: str) -> None:
    (path.parent / "runs.db.lock").unlink()
    sealed(*{"folder": [path.parent], "file": [path], "both": [path, path.parent]}[what])
    told = read_as_anybody(path)
    assert told[0] == "r said False"
    assert "readonly" in told[1] and "cannot be written" in told[1]
    assert names(path.parent) == {"runs.db"}


@pytest.mark.parametrize("shared", [True, False])
async def test_what_is_not_yet_merged_is_not_passed_over(path: Path, sealed: Any, shared: bool) -> None:
    """A copy of a store in use, in a read-only place: with all of its files it is whole, without it is refused."""
    store = SQLiteStore(path)
    await store.add_turn("r", turn(1, "B", "unmerged"))
    copy = path.parent.parent / "copy" / "runs.db"
    copy.parent.mkdir()
    for end in ("", "-wal", "-shm") if shared else ("", "-wal"):
        shutil.copyfile(f"{path}{end}", f"{copy}{end}")
    sealed(*copy.parent.iterdir(), copy.parent)
    told = read_as_anybody(copy)
    await store.aclose()
    if shared:
        assert told[0] == "r said unmerged False"
    else:
        assert len(told) == 1 and "runs.db-wal" in told[0] and "| copy runs.db and runs.db-wal" in told[0]


async def test_an_empty_file_that_cannot_be_written_is_no_store(path: Path, sealed: Any) -> None:
    empty = path.parent / "empty.db"
    empty.touch()
    sealed(empty, path.parent)
    (told,) = read_as_anybody(empty)
    assert "empty.db is empty" in told and "--store" in told


# ---- addresses


def test_the_file_of_an_address() -> None:
    assert file_of("a/b.db") == file_of("sqlite:///a/b.db") == Path("a/b.db")
    assert file_of("sqlite://") is None and file_of("mongo://x") is None
    for url in ("", "sqlite:///", "sqlite://host/x.db"):
        with pytest.raises(UserError, match="no path"):
            file_of(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [(":memory:", "keep nothing"), ("~nosuch/x.db", "home folder"), ("a\0b", "NUL")],
)
def test_an_address_that_cannot_be(url: str, words: str) -> None:
    for one in (url, f"sqlite:///{url}"):
        with pytest.raises(UserError, match=words) as caught:
            create(one) if "://" in one else file_of(one)
        assert caught.value.remedy


async def test_a_name_too_long_is_an_error_of_the_store(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / ("x" * 300))
    with pytest.raises(StorageError, match="too long"):
        await store.runs()
    with pytest.raises(StorageError, match="too long"):
        store.held("r")
    await store.aclose()


@pytest.mark.parametrize("store", ["/dev/null", "pipe"])
async def test_what_is_no_regular_file_is_refused_before_anything_is_made(tmp_path: Path, store: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    opened = SQLiteStore(tmp_path / store)
    with pytest.raises(StorageError, match="no regular file"):
        await opened.runs()
    await opened.aclose()
    assert names(tmp_path) == {"pipe"}


def test_who_looks_whether_a_run_is_held_does_not_hold_it(tmp_path: Path) -> None:
    """A killed process leaves its lock file; looking at it must not make a resume at the same moment fail."""
    path = tmp_path / "runs.db"
    lock = path.with_name("runs.db.locks") / "r.lock"
    code = """if True:
        import sys
        from pathlib import Path
        from memeplex.storage.sqlite import SQLiteStore
        store = SQLiteStore(Path(sys.argv[1]))
        print("go", flush=True)
        for _ in range(300):
            store.held("r")
    """
    looking = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert looking.stdout is not None and looking.stdout.readline() == b"go\n"
    store = SQLiteStore(path)
    for _ in range(100):
        lock.parent.mkdir(exist_ok=True)
        lock.touch()
        with store.lock("r"):
            pass
    looking.stdout.close()
    assert looking.wait() == 0
