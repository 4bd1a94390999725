"""Repairing a store's file: what is whole goes into a new one, which is checked and takes the place of the old.

The damaged file is kept, and SQLite never opens it: it would change it.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from memeplex.errors import StorageError, StoreVersionError
from memeplex.storage.sqlite.checking import faults_of
from memeplex.storage.sqlite.faults import explained
from memeplex.storage.sqlite.locks import guard
from memeplex.storage.sqlite.mending import Mended, mend
from memeplex.storage.sqlite.opening import connect, fresh, under_repair
from memeplex.storage.sqlite.pages import Pages
from memeplex.storage.sqlite.salvage import fill, ids

__all__ = ["Repair", "repair"]

_LOCKS, _LOCKED = 0x40000000, 512
"""Where SQLite's locks on a file lie: who has it open holds one of them, in WAL mode all the while."""
_KEPT = ("runs", "turns", "memory_versions", "records", "revisions", "vectors", "jobs")


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What a repair came to. With no ``faults`` the store was whole, and nothing was changed.

    ``kept`` is the damaged file; ``saved`` and ``lost`` count rows by table, ``lost`` as far as is known. ``runs`` are
    lost whole, ``cut`` are cut back to so many turns, ``owners`` stand for those whose names are lost.
    """

    faults: tuple[str, ...] = ()
    kept: Path | None = None
    saved: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    cut: dict[str, int] = field(default_factory=dict)
    owners: tuple[str, ...] = ()


def repair(path: Path) -> Repair:
    """Repair a store's file, which no other process may use meanwhile, nor anything else in this one.

    Raises:
        StoreVersionError: it is of a newer version.
        StorageError: it is in use, cannot be written, or holds nothing of a store.
    """
    if not path.is_file():
        raise StorageError(f"there is no store at {path}", remedy="check --store")
    with explained(path), guard(path), path.open("r+b") as file:
        _hold(file, path)
        with _workshop(path) as folder:
            copy = _copy(file, path, folder / "copy.db")
            found = _faults(copy)
            if found:
                made = folder / "new.db"
                done = _rebuild(file, path, made)
            else:
                # The database is whole. What is in it may still not be what was written.
                made, done = copy, _mended(copy)
                found = ["what is stored is not what was written"] if done.changed else []
            if not found:
                return Repair()
            saved = _checked(path, made)
            shutil.copymode(path, made)
            kept = _swap(path, made)
    lost = {table: done.lost[table] for table in _KEPT if done.lost[table]}
    return Repair(
        faults=tuple(found),
        kept=kept,
        saved=saved,
        lost=lost,
        runs=tuple(sorted(done.runs)),
        cut=done.cut,
        owners=tuple(done.owners),
    )


def _hold(file: BinaryIO, path: Path) -> None:
    """Lock the file against everybody who would open it, as SQLite does. Elsewhere the system moves no open file."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCKED, _LOCKS)
    except BlockingIOError:
        raise StorageError(
            f"store {path}: another process is using it", remedy="let it end, or stop it, and repair then"
        ) from None


@contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """A folder beside the store, on the same disk; who opens the store meanwhile sees it, and waits."""
    folder = under_repair(path)
    # A repair that was killed has left its own.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _copy(file: BinaryIO, path: Path, copy: Path) -> Path:
    file.seek(0)
    with copy.open("wb") as target:
        shutil.copyfileobj(file, target, 2**20)
    if _journal(path).exists():
        shutil.copyfile(_journal(path), _journal(copy))
    return copy


def _faults(copy: Path) -> list[str]:
    try:
        with explained(copy):
            return faults_of(copy)
    except StoreVersionError:
        # Unless its tables are ours, and only its number is not.
        if not _is_ours(copy):
            raise
        return ["its version is not that of its tables"]
    except StorageError as error:
        return [str(error.__cause__ or error).removeprefix(f"store {copy}: ")]


def _is_ours(copy: Path) -> bool:
    sql = "select name, sql from sqlite_master order by name"
    with closing(sqlite3.connect(copy)) as db, closing(connect(None)) as ours:
        return bool(db.execute(sql).fetchall() == [tuple(row) for row in ours.execute(sql)])


def _mended(copy: Path) -> Mended:
    with closing(fresh(copy)) as db:
        return mend(db)


def _rebuild(file: BinaryIO, path: Path, made: Path) -> Mended:
    pages = Pages(file, _journal(path))
    with closing(fresh(made)) as db:
        db.execute("pragma synchronous = off")
        db.execute("pragma foreign_keys = off")
        found = fill(db, pages)
        db.commit()
        if not any(db.execute(f"select 1 from {table}").fetchone() for table in _KEPT):
            raise StorageError(
                f"store {path}: nothing in it is of a memeplex store, or nothing is whole",
                remedy="choose another with --store",
            )
        return mend(db, found, {table: ids(pages, table) for table in ("runs", "records", "jobs")})


def _checked(path: Path, made: Path) -> dict[str, int]:
    """How many rows of each table there are in a new file, which is whole and on the disk."""
    if wrong := faults_of(made):
        raise StorageError(f"store {path}: it could not be repaired: {wrong[0]}", remedy="restore a copy of it")
    with closing(fresh(made)) as db:
        saved = {table: db.execute(f"select count(*) from {table}").fetchone()[0] for table in _KEPT}
        db.execute("pragma wal_checkpoint(truncate)")
    with made.open("r+b") as file:
        os.fsync(file.fileno())
    return saved


def _swap(path: Path, made: Path) -> Path:
    """Put the new file in the place of the old, which is kept with its journal under a name with the date."""
    kept = path.with_name(f"{path.name}.damaged-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    while kept.exists():
        kept = kept.with_name(f"{kept.name}x")
    try:
        os.link(path, kept)
    except OSError:
        # Not every file system knows two names for a file.
        path.rename(kept)
    # Between this and the next step the old file stands without its journal; both are there under the other name.
    if _journal(path).exists():
        _journal(path).rename(_journal(kept))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    made.replace(path)
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return kept
