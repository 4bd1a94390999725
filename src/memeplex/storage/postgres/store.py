"""The store in PostgreSQL. Calls run in threads, each on a connection of its own: they do not wait for each other."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, TypeVar

from psycopg.rows import dict_row

from memeplex.errors import StorageError
from memeplex.messages import Outcome, Turn, utc_now
from memeplex.storage.base import MemoryVersion, Run, Runs
from memeplex.storage.jobs import Jobs
from memeplex.storage.postgres.address import Address
from memeplex.storage.postgres.faults import explained
from memeplex.storage.postgres.indexing import Builder
from memeplex.storage.postgres.locks import run_held, run_lock
from memeplex.storage.postgres.opening import bring_up_to_date
from memeplex.storage.postgres.pool import Db, Pool
from memeplex.storage.records import Records
from memeplex.storage.rows import RUN_FIELDS, read_runs, read_turns, read_versions, run_row, single_run
from memeplex.storage.shielded import shielded

__all__ = ["PostgresStore"]

T = TypeVar("T")
_CONNECTIONS = 8
"""Calls at a time, each on a connection; the lock of a run takes one more."""


class PostgresStore:
    """A store in the schema ``memeplex`` of a database. ``url`` does not show the password.

    Connections must be whole sessions: a pooler between that hands out single transactions frees the locks of runs.
    """

    def __init__(self, url: str) -> None:
        self._address = Address.of(url)
        self.url = self._address.shown
        self._pool = Pool(self._address)
        self._builder = Builder(self._pool.connect, self._address)
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="memeplex-store")
        self._opening = threading.Lock()
        self._ready = False
        self._closed = False
        self._left: set[Future[Any]] = set()

    @cached_property
    def records(self) -> Records:
        """Its records; loads numpy."""
        from memeplex.storage.postgres.records import PostgresRecords

        return PostgresRecords(self._call, self._builder)

    @cached_property
    def jobs(self) -> Jobs:
        """Its jobs."""
        from memeplex.storage.postgres.jobs import PostgresJobs

        return PostgresJobs(self._call)

    async def add_run(self, run: Run) -> None:
        """Keep a new run."""
        row = run_row(run)
        await self._write(f"insert into runs ({RUN_FIELDS}) values ({', '.join(['%s'] * len(row))})", row)

    async def end_run(self, run_id: str, status: str, outcome: Outcome | None = None) -> None:
        """Record how a run stands."""
        await self._write(
            "update runs set status = %s, outcome = %s, updated = %s where id = %s",
            (status, outcome.model_dump_json() if outcome else None, utc_now(), run_id),
        )

    async def runs(self, *, limit: int = 100) -> Runs:
        """The newest runs, newest first, and which of them cannot be read."""
        rows = await self._read("select * from runs order by created desc, id desc limit %s", (limit,))
        return read_runs(self.url, rows)

    async def run(self, run_id: str) -> Run:
        """One run, by its id or a unique beginning of it."""
        sql = "select * from runs where starts_with(id, %s) order by id = %s desc limit 2"
        return single_run(self.url, run_id, await self._read(sql, (run_id, run_id)))

    async def add_turn(self, run_id: str, turn: Turn) -> None:
        """Keep the next turn."""
        await self._write(
            "insert into turns (run, idx, speaker, body) values (%s, %s, %s, %s)",
            (run_id, turn.index, turn.speaker, turn.model_dump_json()),
        )

    async def turns(self, run_id: str) -> Sequence[Turn]:
        """All turns of a run, in order."""
        rows = await self._read("select idx, body from turns where run = %s order by idx", (run_id,))
        return read_turns(self.url, run_id, [(row["idx"], row["body"]) for row in rows])

    async def add_version(self, run_id: str, version: MemoryVersion) -> None:
        """Keep what became of one agent's memory after one turn."""
        values = (version.agent, version.turn, version.version, version.status, version.model_dump_json())
        await self._write(
            "insert into memory_versions (run, agent, turn, version, status, body) values (%s, %s, %s, %s, %s, %s)"
            " on conflict do nothing",
            (run_id, *values),
        )

    async def versions(self, run_id: str, agent: str | None = None) -> Sequence[MemoryVersion]:
        """The versions of one agent's memory, or of all agents', in the order of turns."""
        chosen, values = ("and agent = %s", (run_id, agent)) if agent is not None else ("", (run_id,))
        sql = f"select body from memory_versions where run = %s {chosen} order by turn, agent"
        return read_versions(self.url, run_id, (row["body"] for row in await self._read(sql, values)))

    def lock(self, run_id: str) -> AbstractContextManager[None]:
        """Hold a run while working on it; the server frees it when the process dies."""
        return run_lock(self._pool, self._address, run_id)

    def held(self, run_id: str) -> bool:
        """Whether a process holds a run."""
        return run_held(self._pool, self._address, run_id)

    async def aclose(self) -> None:
        """Wait for what is under way, close the connections and end the threads."""
        self._closed = True
        await asyncio.to_thread(self._builder.close)
        await asyncio.to_thread(self._threads.shutdown)
        self._pool.close()

    async def _read(self, sql: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        return await self._call(lambda db: db.cursor(row_factory=dict_row).execute(sql, values).fetchall())

    async def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        await self._call(lambda db: db.execute(sql, values))

    async def _call(self, work: Callable[[Db], T]) -> T:
        def run() -> T:
            with explained(self._address), self._pool.connection() as db:
                self._open(db)
                return work(db)

        if self._closed:
            raise StorageError(f"store {self.url}: it is closed", remedy="open another with open_store")
        # What callers that were cancelled have left behind comes first: who asks next is to see it.
        if left := [asyncio.wrap_future(future) for future in self._left]:
            await asyncio.wait(left)
        future = self._threads.submit(run)
        try:
            # Shielded: a cancelled caller must not learn less than the server does.
            return await shielded(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            self._left.add(future)
            future.add_done_callback(self._left.discard)
            raise

    def _open(self, db: Db) -> None:
        if not self._ready:
            with self._opening:
                if not self._ready:
                    bring_up_to_date(db, self.url)
                    self._ready = True
