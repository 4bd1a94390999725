"""The embedded store: one SQLite file in WAL mode, every commit flushed to the disk.

All statements run in one thread of their own, so a slow disk never holds up the event loop.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from memeplex.errors import RunLockedError, StorageError, StoreVersionError, UnknownNameError, UserError
from memeplex.messages import Outcome, Task, Turn, utc_now
from memeplex.storage.base import MemoryVersion, Run

__all__ = ["SQLiteStore"]

T = TypeVar("T")
_BUSY_SECONDS = 30.0
_REMEDIES = (
    ("disk is full", "free some space, or put the store elsewhere with --store; nothing committed is lost"),
    ("disk I/O error", "check the disk and its free space; nothing committed is lost"),
    ("locked", "another process holds the store for long; try again when it is done"),
    ("unable to open", "check that the folder exists and can be written, or choose another with --store"),
    ("readonly", "the file or its folder cannot be written; choose another with --store"),
    ("not a database", "this file is not a memeplex store; choose another with --store"),
    ("UNIQUE constraint", "another process has written this already; look at the run before going on"),
    ("malformed", "the file is damaged; restore a copy, or choose another with --store"),
)


class SQLiteStore:
    """A store in one file; with no path, in memory and gone with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="memeplex-store")
        self._open: sqlite3.Connection | None = None

    async def add_run(self, run: Run) -> None:
        """Keep a new run."""
        row = (run.id, run.team, run.status, run.model, run.seed, json.dumps(run.spec))
        rest = (run.task.model_dump_json(), run.software, run.created.isoformat(), run.updated.isoformat())
        await self._write(
            "insert into runs (id, team, status, model, seed, spec, task, software, created, updated)"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row + rest,
        )

    async def end_run(self, run_id: str, status: str, outcome: Outcome | None = None) -> None:
        """Record how a run stands."""
        await self._write(
            "update runs set status = ?, outcome = ?, updated = ? where id = ?",
            (status, outcome.model_dump_json() if outcome else None, utc_now().isoformat(), run_id),
        )

    async def runs(self, *, limit: int = 100) -> Sequence[Run]:
        """The newest runs, newest first."""
        rows = await self._read("select * from runs order by created desc, id desc limit ?", (limit,))
        with _legible(self.path):
            return [_run(row) for row in rows]

    async def run(self, run_id: str) -> Run:
        """One run, by its id or a unique beginning of it."""
        rows = await self._read(
            "select * from runs where substr(id, 1, length(?1)) = ?1 order by id = ?1 desc limit 2",
            (run_id,),
        )
        if not rows or (len(rows) > 1 and rows[0]["id"] != run_id):
            what = "run" if not rows else "single run"
            raise UnknownNameError(what, run_id, remedy="memeplex runs lists what this store holds")
        with _legible(self.path):
            return _run(rows[0])

    async def add_turn(self, run_id: str, turn: Turn) -> None:
        """Keep the next turn."""
        await self._write(
            "insert into turns (run, idx, speaker, body) values (?, ?, ?, ?)",
            (run_id, turn.index, turn.speaker, turn.model_dump_json()),
        )

    async def turns(self, run_id: str) -> Sequence[Turn]:
        """All turns of a run, in order."""
        rows = await self._read("select body from turns where run = ? order by idx", (run_id,))
        with _legible(self.path):
            return [Turn.model_validate_json(row["body"]) for row in rows]

    async def add_version(self, run_id: str, version: MemoryVersion) -> None:
        """Keep what became of one agent's memory after one turn."""
        await self._write(
            "insert into memory_versions (run, agent, turn, version, status, body) values (?, ?, ?, ?, ?, ?)"
            " on conflict do nothing",
            (
                run_id,
                version.agent,
                version.turn,
                version.version,
                version.status,
                version.model_dump_json(),
            ),
        )

    async def versions(self, run_id: str, agent: str | None = None) -> Sequence[MemoryVersion]:
        """The versions of one agent's memory, or of all agents', in the order of turns."""
        rows = await self._read(
            "select body from memory_versions where run = ?1 and (?2 is null or agent = ?2) order by turn, agent",
            (run_id, agent),
        )
        with _legible(self.path):
            return [MemoryVersion.model_validate_json(row["body"]) for row in rows]

    def lock(self, run_id: str) -> AbstractContextManager[None]:
        """Hold a run while working on it; the system frees it when the process dies."""
        return nullcontext() if self.path is None else _lock(self.path, run_id)

    async def aclose(self) -> None:
        """Close the file and end the thread."""
        if self._open is not None:
            connection, self._open = self._open, None
            await self._call(lambda _: connection.close(), connection)
        self._thread.shutdown()

    async def _read(self, sql: str, values: tuple[Any, ...]) -> list[sqlite3.Row]:
        return await self._call(lambda db: db.execute(sql, values).fetchall())

    async def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        def write(db: sqlite3.Connection) -> None:
            with db:
                db.execute(sql, values)

        await self._call(write)

    async def _call(self, work: Callable[[sqlite3.Connection], T], db: sqlite3.Connection | None = None) -> T:
        def run() -> T:
            with _explained(self.path):
                return work(db or self._connection())

        # Shielded: a cancelled caller must not learn less than the disk does.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, run))

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path or ":memory:", timeout=_BUSY_SECONDS, check_same_thread=False)
            db.row_factory = sqlite3.Row
            db.execute("pragma foreign_keys = on")
            db.execute("pragma synchronous = full")
            _migrate(db, self.path)
            self._open = db
        return self._open


def _run(row: sqlite3.Row) -> Run:
    fields: dict[str, Any] = dict(row)
    fields["spec"] = json.loads(fields["spec"])
    fields["task"] = Task.model_validate_json(fields["task"])
    fields["outcome"] = Outcome.model_validate_json(fields["outcome"]) if fields["outcome"] else None
    return Run.model_validate(fields)


def _migrate(db: sqlite3.Connection, path: Path | None) -> None:
    folder = files("memeplex.storage").joinpath("migrations").iterdir()
    scripts = sorted((f for f in folder if f.name.endswith(".sql")), key=lambda f: f.name)
    with FileLock(f"{path}.lock", timeout=_BUSY_SECONDS) if path else nullcontext():
        version: int = db.execute("pragma user_version").fetchone()[0]
        if version > len(scripts):
            raise StoreVersionError(
                f"{path} was written by a newer version of memeplex (schema {version}, known {len(scripts)})",
                remedy="upgrade memeplex, or choose another store with --store",
            )
        db.execute("pragma journal_mode = wal")
        for number, script in enumerate(scripts[version:], version + 1):
            text = script.read_text("utf-8")
            db.executescript(f"begin immediate; {text}; pragma user_version = {number}; commit;")


@contextmanager
def _lock(path: Path, run_id: str) -> Iterator[None]:
    folder = path.with_name(path.name + ".locks")
    with _explained(path):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{run_id}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunLockedError(
            f"another process is working on run {run_id}", remedy="wait for it to end, or stop it"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _explained(path: Path | None) -> Iterator[None]:
    """Turn the database's own errors into ours, each with its remedy."""
    try:
        yield
    except (sqlite3.Error, OSError, Timeout) as error:
        text = str(error)
        remedy = next((remedy for sign, remedy in _REMEDIES if sign in text), "")
        remedy = remedy or "check the disk, its space and permissions, or choose another store with --store"
        raise StorageError(f"store {path or 'in memory'}: {text}", remedy=remedy) from error


@contextmanager
def _legible(path: Path | None) -> Iterator[None]:
    """A record that is whole for the database may still not be one of ours."""
    try:
        yield
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in (error.title, *fault["loc"]))
        raise StorageError(
            f"store {path or 'in memory'}: a record cannot be read ({where}: {fault['msg']})",
            remedy="it is damaged, or of another version of memeplex; restore a copy, or choose another with --store",
        ) from error


def create(url: str) -> SQLiteStore:
    """The store at ``sqlite:///PATH``; ``sqlite://`` is one in memory."""
    location = url.removeprefix("sqlite:")
    if location in ("", "//"):
        return SQLiteStore()
    if not location.startswith("///") or location == "///":
        raise UserError(f"store {url!r} has no path", remedy="write sqlite:///PATH, or just the path")
    return SQLiteStore(Path(location.removeprefix("///")).expanduser())
