"""The embedded store: one SQLite file in WAL mode, every commit flushed to the disk."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from memeplex.errors import StorageError
from memeplex.messages import Outcome, Turn, utc_now
from memeplex.storage.address import file_of
from memeplex.storage.base import MemoryVersion, Run, Runs
from memeplex.storage.jobs import Jobs
from memeplex.storage.records import Records
from memeplex.storage.rows import RUN_FIELDS, read_runs, read_turns, read_versions, run_row, single_run
from memeplex.storage.sqlite.faults import explained
from memeplex.storage.sqlite.locks import run_held, run_lock
from memeplex.storage.sqlite.opening import connect
from memeplex.storage.sqlite.thread import Thread

__all__ = ["SQLiteStore"]

T = TypeVar("T")
_ARRAYS = 512 * 2**20
"""Bytes of vectors held in memory."""


class SQLiteStore:
    """A store in one file; with no path, in memory and gone with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self._name = path or "in memory"
        self._thread = Thread("memeplex-store")
        self._open: sqlite3.Connection | None = None
        self._closed = False

    @cached_property
    def records(self) -> Records:
        """Its records; loads numpy."""
        from memeplex.storage.sqlite.records import SQLiteRecords

        return SQLiteRecords(self._call, memory=_ARRAYS)

    @cached_property
    def jobs(self) -> Jobs:
        """Its jobs."""
        from memeplex.storage.sqlite.jobs import SQLiteJobs

        return SQLiteJobs(self._call)

    async def add_run(self, run: Run) -> None:
        """Keep a new run."""
        row = run_row(run)
        await self._write(f"insert into runs ({RUN_FIELDS}) values ({', '.join('?' * len(row))})", row)

    async def end_run(self, run_id: str, status: str, outcome: Outcome | None = None) -> None:
        """Record how a run stands."""
        await self._write(
            "update runs set status = ?, outcome = ?, updated = ? where id = ?",
            (status, outcome.model_dump_json() if outcome else None, utc_now().isoformat(), run_id),
        )

    async def runs(self, *, limit: int = 100) -> Runs:
        """The newest runs, newest first, and which of them cannot be read."""
        rows = await self._read("select * from runs order by created desc, id desc limit ?", (limit,))
        return read_runs(self._name, map(dict, rows))

    async def run(self, run_id: str) -> Run:
        """One run, by its id or a unique beginning of it."""
        rows = await self._read(
            "select * from runs where substr(id, 1, length(?1)) = ?1 order by id = ?1 desc limit 2",
            (run_id,),
        )
        return single_run(self._name, run_id, [dict(row) for row in rows])

    async def add_turn(self, run_id: str, turn: Turn) -> None:
        """Keep the next turn."""
        await self._write(
            "insert into turns (run, idx, speaker, body) values (?, ?, ?, ?)",
            (run_id, turn.index, turn.speaker, turn.model_dump_json()),
        )

    async def turns(self, run_id: str) -> Sequence[Turn]:
        """All turns of a run, in order."""
        rows = await self._read("select idx, body from turns where run = ? order by idx", (run_id,))
        return read_turns(self._name, run_id, [(row["idx"], row["body"]) for row in rows])

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
        return read_versions(self._name, run_id, (row["body"] for row in rows))

    def lock(self, run_id: str) -> AbstractContextManager[None]:
        """Hold a run while working on it; the system frees it when the process dies."""
        return nullcontext() if self.path is None else run_lock(self.path, run_id)

    def held(self, run_id: str) -> bool:
        """Whether a process holds a run."""
        return self.path is not None and run_held(self.path, run_id)

    async def aclose(self) -> None:
        """Close the file and end the thread."""
        if self._open is not None:
            connection, self._open = self._open, None
            await self._call(lambda _: connection.close(), connection)
        self._closed = True
        self._thread.close()

    async def _read(self, sql: str, values: tuple[Any, ...]) -> list[sqlite3.Row]:
        return await self._call(lambda db: db.execute(sql, values).fetchall())

    async def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        def write(db: sqlite3.Connection) -> None:
            with db:
                db.execute(sql, values)

        await self._call(write)

    async def _call(self, work: Callable[[sqlite3.Connection], T], db: sqlite3.Connection | None = None) -> T:
        def run() -> T:
            with explained(self.path):
                return work(db or self._connection())

        if self._closed:
            raise StorageError(f"store {self.path or 'in memory'}: it is closed", remedy="open another with open_store")
        return await self._thread.call(run)

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = connect(self.path)
        return self._open


def create(url: str) -> SQLiteStore:
    """The store at ``sqlite:///PATH``; ``sqlite://`` is one in memory."""
    return SQLiteStore(file_of(url))
