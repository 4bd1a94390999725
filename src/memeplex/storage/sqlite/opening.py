"""Opening a store's file: made private, brought up to date, and read as it lies where it cannot be written."""

import os
import sqlite3
import threading
import time
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from memeplex.errors import StorageError, StoreVersionError
from memeplex.storage.damage import damaged, repairing
from memeplex.storage.sqlite.locks import BUSY_SECONDS, guard, make_folder

__all__ = ["connect", "fresh", "under_repair"]

_making = threading.Lock()
_RETRY_SECONDS = 0.01
_STATE = """select (select user_version from pragma_user_version), (select count(*) from sqlite_master),
 exists (select 1 from sqlite_master where name = 'memory_versions')"""


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection to a store that is up to date; one that only reads where the file or its folder is read-only.

    Raises:
        StorageError: it cannot be read faithfully, is no store, or is of a newer version.
        sqlite3.Error, OSError: the database or the disk says no.
    """
    if path is None:
        return _prepared(sqlite3.connect(":memory:", check_same_thread=False), None)
    if path.exists() and not path.is_file():
        raise StorageError(f"store {path}: this is no regular file", remedy="choose another with --store")
    _make(path)
    _refuse_emptied(path)
    if _sealed(path):
        return _read_only(path)
    while True:
        if under_repair(path).exists():
            # Whoever repairs holds the guard; one that was killed does not.
            with guard(path):
                pass
        before = _identity(path)
        db = _prepared(sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False), path)
        if _identity(path) == before:
            # It has been read, so whoever repairs it has to wait for us from now on.
            return db
        db.close()


def fresh(path: Path) -> sqlite3.Connection:
    """A connection to a new store in a place that nobody else knows."""
    return _prepared(sqlite3.connect(path), None)


def under_repair(path: Path) -> Path:
    """The folder that is there while a store is being repaired."""
    return path.with_name(f"{path.name}.repair")


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino


def _refuse_emptied(path: Path) -> None:
    """SQLite takes an empty file for a new database, and throws away the journal of what was there."""
    journal = path.with_name(f"{path.name}-wal")
    if path.is_file() and not path.stat().st_size and journal.exists() and journal.stat().st_size:
        raise damaged(path, f"it is empty, but {journal.name} is not")


def _make(path: Path) -> None:
    """An empty file for its owner alone, where there was none. SQLite gives its side files the same mode."""
    # Closing a file drops every lock that this process has on it, SQLite's too. So no thread may have opened it yet.
    with _making:
        make_folder(path)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return


def _sealed(path: Path) -> bool:
    """Whether SQLite could not write the file, or not make its side files."""
    return path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _read_only(path: Path) -> sqlite3.Connection:
    """Without side files, the file is all there is; with them, SQLite has to be able to use them."""
    wal = path.with_name(f"{path.name}-wal")
    if not (wal.exists() and wal.stat().st_size):
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        return _prepared(sqlite3.connect(address, uri=True, check_same_thread=False), path, sealed=True)
    try:
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
        return _prepared(db, path, sealed=True)
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"store {path} cannot be read: what was written last is still in {wal.name}, and the two cannot be merged"
            " where they cannot be written",
            remedy=f"copy {path.name} and {wal.name} to a folder that can be written, and choose that with --store",
        ) from error


def _prepared(db: sqlite3.Connection, path: Path | None, *, sealed: bool = False) -> sqlite3.Connection:
    try:
        db.row_factory = sqlite3.Row
        # Bytes that are no text spoil their own record, not every record that is read with it.
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        db.execute("pragma foreign_keys = on")
        db.execute("pragma synchronous = full")
        _bring_up_to_date(db, path, sealed=sealed)
    except BaseException:
        db.close()
        raise
    return db


def _bring_up_to_date(db: sqlite3.Connection, path: Path | None, *, sealed: bool) -> None:
    folder = files("memeplex.storage.sqlite").joinpath("migrations").iterdir()
    scripts = sorted((f for f in folder if f.name.endswith(".sql")), key=lambda f: f.name)
    # Looked at before anything is locked: nothing is left beside a file that is only read, or that is no store.
    if _version(db, path, len(scripts)) == len(scripts):
        return
    if sealed:
        raise StorageError(
            f"store {path} is empty or of an older version, and cannot be written to bring it up to date",
            remedy="copy it to a folder that can be written, or choose another with --store",
        )
    if path is None:
        _migrate(db, scripts, 0)
        return
    with guard(path):
        # Looked at again, since another process may have been here first.
        _migrate(db, scripts, _version(db, path, len(scripts)))


def _version(db: sqlite3.Connection, path: Path | None, known: int) -> int:
    version: int
    version, tables, ours = db.execute(_STATE).fetchone()
    if version > known:
        raise StoreVersionError(
            f"{path} was written by a newer version of memeplex (schema {version}, known {known})",
            remedy="upgrade memeplex, or choose another store with --store",
        )
    if tables and not (version and ours):
        raise StorageError(
            f"store {path}: this is the database of another program",
            remedy=f"choose another with --store; should it be a damaged store: {repairing(path)}" if path else "",
        )
    return version


def _migrate(db: sqlite3.Connection, scripts: list[Traversable], version: int) -> None:
    if version < len(scripts):
        _write_ahead(db)
    for number, script in enumerate(scripts[version:], version + 1):
        text = script.read_text("utf-8")
        db.executescript(f"begin immediate; {text}; pragma user_version = {number}; commit;")


def _write_ahead(db: sqlite3.Connection) -> None:
    """WAL mode, which stays with the file. For this one lock SQLite does not wait, and a glance is enough to refuse."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
