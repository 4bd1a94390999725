"""Who works on what: an advisory lock of the server for each run, held by a connection and gone with it.

When a process dies, its system closes the connection, and the server frees the lock. When its whole machine is cut
off, the server finds out by its own probes, within about a minute. A lock is lost, too, when the server restarts under
a run: what saves the run then is that no turn can be written twice.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from memeplex.errors import RunLockedError
from memeplex.storage.postgres.address import Address
from memeplex.storage.postgres.faults import explained
from memeplex.storage.postgres.pool import Db, Pool

__all__ = ["run_held", "run_lock"]

_LINGER_SECONDS = 1
"""The lock of a process that was killed a moment ago is waited for: the server has yet to notice."""

_PROBES = """select set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),
 set_config('tcp_keepalives_count', '3', false), set_config('lock_timeout', %s, false)"""


def _number(run_id: str) -> int:
    digest = hashlib.sha256(f"memeplex run {run_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


@contextmanager
def run_lock(pool: Pool, address: Address, run_id: str) -> Iterator[None]:
    """Hold a run.

    Raises:
        RunLockedError: another process holds it.
        StorageError: the server cannot be asked.
    """
    with explained(address):
        db = pool.connect()
    try:
        with explained(address):
            _acquire(db, run_id)
        yield
    finally:
        try:
            # The server notices a closed connection only after a while, an unlocking at once.
            db.execute("select pg_advisory_unlock_all()")
        except psycopg.Error:
            pass  # The connection is gone, and the lock with it.
        finally:
            db.close()


def _acquire(db: Db, run_id: str) -> None:
    db.execute(_PROBES, (f"{_LINGER_SECONDS}s",))
    try:
        db.execute("select pg_advisory_lock(%s)", (_number(run_id),))
    except psycopg.errors.LockNotAvailable:
        raise RunLockedError(
            f"another process is working on run {run_id}", remedy="wait for it to end, or stop it"
        ) from None


def run_held(pool: Pool, address: Address, run_id: str) -> bool:
    """Whether a process holds the run; looked up, not tried, which could get into the way of one that tries."""
    # The server shows the two halves of a number as two.
    sql = """select exists (select from pg_locks where locktype = 'advisory' and granted and objsubid = 1
     and database = (select oid from pg_database where datname = current_database())
     and (classid::bigint << 32 | objid::bigint) = %s)"""
    with explained(address), pool.connection() as db:
        row = db.execute(sql, (_number(run_id),)).fetchone()
    return bool(row and row[0])
