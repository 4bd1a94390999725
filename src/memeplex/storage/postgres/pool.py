"""Connections to one database: taken for a call, given back after it, and never used once they have gone dead.

The driver is synchronous, since a run's lock is taken and let go where nothing can be awaited. The store runs its calls
in threads, and has at most one connection for each.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format, TransactionStatus
from psycopg.types.string import TextLoader

from memeplex.storage.postgres.address import Address

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SCHEMA", "Db", "Pool", "snapshot"]

Db: TypeAlias = psycopg.Connection[tuple[Any, ...]]
"""A connection whose statements commit by themselves, unless they stand in a transaction."""

SCHEMA = "memeplex"
"""All that is ours lies in a schema of its own, beside whatever else is in the database."""

_CONNECT_SECONDS = 10
_LOCK_SECONDS = 30
"""How long one process waits for what another does to the store."""

# Plans are made for each call: a prepared one would pass over settings made for the call, and over partial indexes.
_SETTINGS = f"""select
 set_config('search_path', '{SCHEMA}, ' || current_setting('search_path'), false),
 set_config('timezone', 'UTC', false),
 set_config('jit', 'off', false),
 set_config('default_transaction_isolation', 'read committed', false),
 set_config('idle_session_timeout', '0', false),
 set_config('lock_timeout', case current_setting('lock_timeout')
  when '0' then '{_LOCK_SECONDS}s' else current_setting('lock_timeout') end, false),
 set_config('synchronous_commit', case current_setting('synchronous_commit')
  when 'off' then 'on' else current_setting('synchronous_commit') end, false)"""


class _Moment(Loader):
    """A time as Python writes it; the session's zone is UTC."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode().replace(" ", "T").replace("+00", "+00:00")


class _Vector(Dumper):
    """A row of numbers as pgvector sends and receives it: dimension, nothing, and the numbers, big end first."""

    format = Format.BINARY

    def dump(self, obj: "np.ndarray") -> bytes:
        return len(obj).to_bytes(2, "big") + b"\0\0" + obj.astype(">f4").tobytes()


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("json", TextLoader)
    adapters.register_loader("timestamptz", _Moment)
    adapters.register_dumper("numpy.ndarray", _Vector)
    return adapters


class Pool:
    """Connections that are made when they are needed; the one given back last is taken first."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._adapters = _adapters()
        self._idle: list[Db] = []
        self._lock = threading.Lock()
        self._closed = False

    def connect(self) -> Db:
        """A new connection, the caller's own.

        Raises:
            psycopg.Error: there is none to be had.
        """
        wanted = {"connect_timeout": _CONNECT_SECONDS, "fallback_application_name": "memeplex"}
        parameters = {**wanted, **self._address.parameters, "client_encoding": "UTF8"}
        db: Db = psycopg.connect(autocommit=True, prepare_threshold=None, context=self._adapters, **parameters)
        try:
            db.execute(_SETTINGS)
        except BaseException:
            db.close()
            raise
        return db

    @contextmanager
    def connection(self) -> Iterator[Db]:
        """A connection for a block of code."""
        db = self._take()
        try:
            yield db
        finally:
            self._give(db)

    def close(self) -> None:
        """Close all, and those still in use when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _take(self) -> Db:
        while True:
            with self._lock:
                db = self._idle.pop() if self._idle else None
            if db is None:
                return self.connect()
            if _alive(db):
                return db
            db.close()

    def _give(self, db: Db) -> None:
        whole = not db.closed and db.info.transaction_status == TransactionStatus.IDLE
        with self._lock:
            if whole and not self._closed:
                self._idle.append(db)
                return
        db.close()


@contextmanager
def snapshot(db: Db) -> Iterator[None]:
    """A block of statements that all see one state of the database, and change nothing."""
    with db.transaction():
        db.execute("set transaction isolation level repeatable read, read only")
        yield


def _alive(db: Db) -> bool:
    """Whether the server has said nothing since the connection was used last; all it could say is farewell."""
    try:
        # Twice: the first look may read the farewell, and only the second that nothing follows.
        for _ in range(2):
            db.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not db.closed
