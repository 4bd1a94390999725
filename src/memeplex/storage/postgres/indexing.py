"""Indexes of vectors: one HNSW graph for each embedder, made beside the work when its vectors have become many.

Few vectors are compared one by one, which finds every one of the nearest. A graph finds nearly all of them in much less
time; it is searched on until the filter on owners and kinds has left enough.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg

from memeplex.errors import StorageError
from memeplex.storage.postgres.address import Address
from memeplex.storage.postgres.faults import explained
from memeplex.storage.postgres.pool import Db

__all__ = ["Builder", "build", "index_name", "indexed_as", "usable"]

_LOCK = int.from_bytes(b"indexes\0", "big")
_AGAIN_SECONDS = 0.2
_PLAIN = 2000
_HALF = 4000
"""Dimensions that a graph takes at most, with numbers of four and of two bytes."""


def index_name(embedder: int) -> str:
    """The index of an embedder's vectors."""
    return f"vectors_hnsw_{embedder}"


def indexed_as(dimension: int) -> str:
    """The type as which vectors are indexed; empty when they have too many dimensions for that."""
    return f"vector({dimension})" if dimension <= _PLAIN else f"halfvec({dimension})" if dimension <= _HALF else ""


def usable(db: Db, embedder: int) -> bool:
    """Whether an embedder's index is complete."""
    sql = "select indisvalid from pg_index where indexrelid = to_regclass(%s)"
    row = db.execute(sql, (index_name(embedder),)).fetchone()
    return bool(row and row[0])


def build(db: Db, embedder: int, dimension: int) -> bool:
    """Make an embedder's index, if nobody else is at it. Writers go on meanwhile.

    Raises:
        psycopg.Error: it could not be made.
    """
    ((ours,),) = db.execute("select pg_try_advisory_lock(%s)", (_LOCK,)).fetchall()
    if not ours or usable(db, embedder):
        return False
    name, kind = index_name(embedder), indexed_as(dimension)
    # What another left unfinished takes up room and is of no use.
    db.execute(f"drop index concurrently if exists {name}")
    # One process: those of several share their memory where a container often has none.
    db.execute(
        """select set_config('lock_timeout', '0', false), set_config('max_parallel_maintenance_workers', '0', false),
         set_config('maintenance_work_mem', greatest(pg_size_bytes(current_setting('maintenance_work_mem')),
          pg_size_bytes('512MB'))::text || 'B', false)"""
    )
    db.execute(
        f"create index concurrently {name} on vectors using hnsw ((vector::{kind}) {kind.partition('(')[0]}_ip_ops)"
        f" where embedder = {embedder}"
    )
    return True


class Builder:
    """Makes indexes in a thread of its own, one at a time."""

    def __init__(self, connect: Callable[[], Db], address: Address) -> None:
        self._connect = connect
        self._address = address
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._db: Db | None = None
        self._closed = False
        self.fault: StorageError | None = None

    def start(self, embedder: int, dimension: int) -> None:
        """Begin to make an embedder's index, unless one is being made, or could not be."""
        with self._lock:
            if self._thread is not None or self._closed or self.fault is not None:
                return
            self._thread = threading.Thread(
                target=self._run, args=(embedder, dimension), name="memeplex-index", daemon=True
            )
            self._thread.start()

    def wait(self) -> None:
        """Wait until the index that is being made, if any, is there."""
        if (thread := self._thread) is not None:
            thread.join()

    def close(self) -> None:
        """Break off what is being made; the next who searches begins anew."""
        with self._lock:
            self._closed = True
        while (thread := self._thread) is not None:
            with self._lock:
                db = self._db
            # Again and again, since what comes between two statements breaks off neither.
            if db is not None:
                with suppress(psycopg.Error):
                    db.cancel_safe(timeout=5)
            thread.join(_AGAIN_SECONDS)

    def _run(self, embedder: int, dimension: int) -> None:
        try:
            with explained(self._address):
                db = self._connect()
                try:
                    with self._lock:
                        self._db = db
                        closed = self._closed
                    if not closed:
                        build(db, embedder, dimension)
                finally:
                    with self._lock:
                        self._db = None
                    db.close()
        except StorageError as error:
            # Told with the next search, since nobody waits for this thread.
            self.fault = None if self._closed else error
        finally:
            with self._lock:
                self._thread = None
