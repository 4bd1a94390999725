"""Jobs in SQLite. Taking one is a single statement, so that two workers never hold the same."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from memeplex.errors import UnknownNameError
from memeplex.messages import utc_now
from memeplex.storage.damage import legible
from memeplex.storage.jobs import Job, JobState, after_failure
from memeplex.storage.sqlite.records import Call
from memeplex.storage.sqlite.write import SQLiteWrite

__all__ = ["SQLiteJobs", "read_job"]

_FIELDS = "id, kind, owner, key, payload, state, attempts, error, worker, due, lease, created, updated"
_MINE = "id = ? and worker = ? and attempts = ? and state = 'running'"


class SQLiteJobs:
    """``storage.Jobs`` on the connection of a ``SQLiteStore``. ``now`` is the clock."""

    def __init__(self, call: Call, now: Callable[[], datetime] = utc_now) -> None:
        self._call = call
        self._now = now

    async def enqueue(self, job: Job) -> Job:
        """Keep a job, or give the one that is there already."""

        def work(db: sqlite3.Connection) -> Job:
            with db:
                marks = ", ".join("?" * 13)
                db.execute(f"insert into jobs ({_FIELDS}) values ({marks}) on conflict do nothing", _row(job))
            sql = f"select {_FIELDS} from jobs where kind = ? and owner = ? and key = ?"
            return read_job(db.execute(sql, (job.kind, job.owner, job.key)).fetchone())

        return await self._call(work)

    async def claim(self, kinds: Sequence[str], worker: str, *, seconds: float, owner: str | None = None) -> Job | None:
        """The job that has been due for longest, now held by ``worker``."""
        now = self._now().timestamp()
        sql = f"""update jobs set state = 'running', worker = ?, attempts = attempts + 1, lease = ?, updated = ?
         where id = (select id from jobs where kind in ({", ".join("?" * len(kinds))}) and (? is null or owner = ?)
         and (state in ('queued', 'failed') and due <= ? or state = 'running' and lease <= ?)
         order by due, id limit 1) returning {_FIELDS}"""
        values = (worker, now + seconds, now, *kinds, owner, owner, now, now)
        return await self._one(sql, values)

    async def renew(self, job: Job, *, seconds: float) -> bool:
        """Hold a job for longer."""
        now = self._now().timestamp()
        return await self._mine(job, "lease = ?, updated = ?", (now + seconds, now))

    async def finish(self, job: Job) -> bool:
        """The work is done."""
        return await self._mine(
            job, "state = 'done', error = '', lease = null, updated = ?", (self._now().timestamp(),)
        )

    async def fail(self, job: Job, error: str) -> bool:
        """The work could not be done; it is tried again after a while."""
        now = self._now().timestamp()
        state, wait = after_failure(job)
        assignments = "state = ?, error = ?, due = ?, lease = null, updated = ?"
        return await self._mine(job, assignments, (state.value, error, now + wait, now))

    async def cancel(self, job_id: str, *, actor: str, cause: str = "") -> Job:
        """Cancel a job in whatever state it is."""

        def work(db: sqlite3.Connection) -> Job:
            row = db.execute(f"select {_FIELDS} from jobs where id = ?", (job_id,)).fetchone()
            if row is None:
                raise UnknownNameError("job", job_id)
            if row["state"] in (JobState.DONE, JobState.CANCELLED):
                return read_job(row)
            with SQLiteWrite(db, row["owner"], actor, "cancel", cause or row["kind"]) as write:
                write.records = 1
                sql = f"update jobs set state = 'cancelled', lease = null, updated = ? where id = ? returning {_FIELDS}"
                return read_job(db.execute(sql, (self._now().timestamp(), job_id)).fetchone())

        return await self._call(work)

    async def retry(self, kinds: Sequence[str] = (), owner: str | None = None) -> int:
        """Make failed jobs due now."""
        now = self._now().timestamp()
        chosen, values = _chosen((JobState.FAILED,), kinds, owner)

        def work(db: sqlite3.Connection) -> int:
            with db:
                sql = f"update jobs set state = 'queued', due = ?, updated = ? where {chosen}"
                return db.execute(sql, (now, now, *values)).rowcount

        return await self._call(work)

    async def jobs(
        self, *, states: Sequence[JobState] = (), kinds: Sequence[str] = (), owner: str | None = None, limit: int = 100
    ) -> list[Job]:
        """Jobs, the oldest first."""
        chosen, values = _chosen(states, kinds, owner)
        sql = f"select {_FIELDS} from jobs where {chosen} order by created, id limit ?"
        return await self._call(lambda db: [read_job(row) for row in db.execute(sql, (*values, limit))])

    async def _mine(self, job: Job, assignments: str, values: tuple[Any, ...]) -> bool:
        sql = f"update jobs set {assignments} where {_MINE} returning {_FIELDS}"
        return await self._one(sql, (*values, job.id, job.worker, job.attempts)) is not None

    async def _one(self, sql: str, values: tuple[Any, ...]) -> Job | None:
        def work(db: sqlite3.Connection) -> Job | None:
            with db:
                row = db.execute(sql, values).fetchone()
            return read_job(row) if row is not None else None

        return await self._call(work)


def _chosen(states: Sequence[JobState], kinds: Sequence[str], owner: str | None) -> tuple[str, list[Any]]:
    parts, values = ["true"], list[Any]()
    for name, wanted in (("state", [state.value for state in states]), ("kind", kinds)):
        if wanted:
            parts.append(f"{name} in ({', '.join('?' * len(wanted))})")
            values += wanted
    if owner is not None:
        parts.append("owner = ?")
        values.append(owner)
    return " and ".join(parts), values


def _row(job: Job) -> tuple[Any, ...]:
    lease = job.lease.timestamp() if job.lease else None
    times = (job.due.timestamp(), lease, job.created.timestamp(), job.updated.timestamp())
    payload = json.dumps(job.payload, ensure_ascii=False)
    return job.id, job.kind, job.owner, job.key, payload, job.state, job.attempts, job.error, job.worker, *times


def read_job(row: sqlite3.Row) -> Job:
    """A job out of its row.

    Raises:
        StorageError: it is damaged.
    """
    fields = dict(row)
    with legible("", f"job {fields['id']}"):
        for name in ("due", "lease", "created", "updated"):
            fields[name] = datetime.fromtimestamp(fields[name], UTC) if fields[name] is not None else None
        return Job.model_validate({**fields, "payload": json.loads(fields["payload"])})
