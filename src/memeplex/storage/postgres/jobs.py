"""Jobs in PostgreSQL. Taking one is a single statement that passes over what others are taking just now."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg.rows import dict_row

from memeplex.errors import UnknownNameError
from memeplex.storage.jobs import Job, JobState, after_failure
from memeplex.storage.postgres.records import Call
from memeplex.storage.postgres.write import PostgresWrite

__all__ = ["PostgresJobs"]

_FIELDS = "id, kind, owner, key, payload, state, attempts, error, worker, due, lease, created, updated"
_NOW = "coalesce(%(now)s::timestamptz, clock_timestamp())"
_MINE = "id = %(id)s and worker = %(worker)s and attempts = %(attempts)s and state = 'running'"
_CHOSEN = """(%(states)s::text[] is null or state = any(%(states)s)) and (%(kinds)s::text[] is null
 or kind = any(%(kinds)s)) and (%(owner)s::text is null or owner = %(owner)s)"""


def _server() -> None:
    """The server's clock: those of the workers' machines may not agree."""


class PostgresJobs:
    """``storage.Jobs`` on the connections of a ``PostgresStore``. ``now`` is the clock; else it is the server's."""

    def __init__(self, call: Call, now: Callable[[], datetime | None] = _server) -> None:
        self._call = call
        self._now = now

    async def enqueue(self, job: Job) -> Job:
        """Keep a job, or give the one that is there already."""
        row = {**job.model_dump(), "payload": json.dumps(job.payload, ensure_ascii=False), "state": job.state.value}
        marks = ", ".join(f"%({name})s" for name in _FIELDS.split(", "))
        added = await self._many(
            f"insert into jobs ({_FIELDS}) values ({marks}) on conflict do nothing returning {_FIELDS}", row
        )
        if not added:
            sql = f"select {_FIELDS} from jobs where kind = %(kind)s and owner = %(owner)s and key = %(key)s"
            added = await self._many(sql, row)
        return added[0]

    async def claim(self, kinds: Sequence[str], worker: str, *, seconds: float, owner: str | None = None) -> Job | None:
        """The job that has been due for longest, now held by ``worker``."""
        sql = f"""update jobs set state = 'running', worker = %(worker)s, attempts = attempts + 1,
         lease = {_NOW} + %(seconds)s * interval '1 second', updated = {_NOW}
         where id = (select id from jobs where kind = any(%(kinds)s)
          and (%(owner)s::text is null or owner = %(owner)s)
          and (state in ('queued', 'failed') and due <= {_NOW} or state = 'running' and lease <= {_NOW})
          order by due, id limit 1 for update skip locked) returning {_FIELDS}"""
        values = {"worker": worker, "seconds": float(seconds), "kinds": list(kinds), "owner": owner}
        found = await self._many(sql, values)
        return found[0] if found else None

    async def renew(self, job: Job, *, seconds: float) -> bool:
        """Hold a job for longer."""
        return await self._mine(job, f"lease = {_NOW} + %(seconds)s * interval '1 second'", seconds=float(seconds))

    async def finish(self, job: Job) -> bool:
        """The work is done."""
        return await self._mine(job, "state = 'done', error = '', lease = null")

    async def fail(self, job: Job, error: str) -> bool:
        """The work could not be done; it is tried again after a while."""
        state, wait = after_failure(job)
        assignments = (
            f"state = %(state)s, error = %(error)s, due = {_NOW} + %(wait)s * interval '1 second', lease = null"
        )
        return await self._mine(job, assignments, state=state.value, error=error, wait=wait)

    async def cancel(self, job_id: str, *, actor: str, cause: str = "") -> Job:
        """Cancel a job in whatever state it is."""
        jobs = await self._many(f"select {_FIELDS} from jobs where id = %(id)s", {"id": job_id})
        if not jobs:
            raise UnknownNameError("job", job_id)
        (job,) = jobs
        sql = f"""update jobs set state = 'cancelled', lease = null, updated = {_NOW}
         where id = %(id)s and state not in ('done', 'cancelled') returning {_FIELDS}"""
        values = {"id": job_id, "now": self._now()}

        def work(db: Any) -> list[Job]:
            with PostgresWrite(db, job.owner, actor, "cancel", cause or job.kind) as write:
                changed = [_job(row) for row in db.cursor(row_factory=dict_row).execute(sql, values)]
                write.records = len(changed)
                return changed

        cancelled = await self._call(work)
        # It may have ended while nobody held it.
        return (cancelled or await self._many(f"select {_FIELDS} from jobs where id = %(id)s", {"id": job_id}))[0]

    async def retry(self, kinds: Sequence[str] = (), owner: str | None = None) -> int:
        """Make failed jobs due now."""
        sql = f"update jobs set state = 'queued', due = {_NOW}, updated = {_NOW} where {_CHOSEN} returning {_FIELDS}"
        return len(await self._many(sql, _chosen((JobState.FAILED,), kinds, owner)))

    async def jobs(
        self, *, states: Sequence[JobState] = (), kinds: Sequence[str] = (), owner: str | None = None, limit: int = 100
    ) -> list[Job]:
        """Jobs, the oldest first."""
        sql = f"select {_FIELDS} from jobs where {_CHOSEN} order by created, id limit %(limit)s"
        return await self._many(sql, {**_chosen(states, kinds, owner), "limit": limit})

    async def _mine(self, job: Job, assignments: str, **values: Any) -> bool:
        sql = f"update jobs set {assignments}, updated = {_NOW} where {_MINE} returning {_FIELDS}"
        mine = {"id": job.id, "worker": job.worker, "attempts": job.attempts}
        return bool(await self._many(sql, {**mine, **values}))

    async def _many(self, sql: str, values: dict[str, Any]) -> list[Job]:
        given = {"now": self._now(), **values}
        return await self._call(lambda db: [_job(row) for row in db.cursor(row_factory=dict_row).execute(sql, given)])


def _chosen(states: Sequence[JobState], kinds: Sequence[str], owner: str | None) -> dict[str, Any]:
    return {"states": [state.value for state in states] or None, "kinds": list(kinds) or None, "owner": owner}


def _job(row: dict[str, Any]) -> Job:
    fields = dict(row)
    for name in ("due", "lease", "created", "updated"):
        fields[name] = datetime.fromisoformat(fields[name]).astimezone(UTC) if fields[name] is not None else None
    return Job.model_validate({**fields, "payload": json.loads(fields["payload"])})
