"""Work that must not get lost: jobs that a worker holds on a lease, and that come back when it dies."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from memeplex.messages import utc_now
from memeplex.storage.records import new_id

__all__ = ["ATTEMPTS", "Job", "JobState", "Jobs", "after_failure", "back_off"]

ATTEMPTS = 3
"""Tries in a row before a job counts as failed; it is tried again later all the same."""


def back_off(attempts: int) -> float:
    """Seconds to wait after so many attempts: 2, 8, then ten minutes for what has failed."""
    return 600.0 if attempts >= ATTEMPTS else 2.0 * 4 ** (attempts - 1)


class JobState(StrEnum):
    """``failed`` jobs wait for longer, but are tried again; ``done`` and ``cancelled`` ones never are."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Job(BaseModel):
    """One piece of work. The same kind, owner and key is the same job, however often it is asked for.

    ``due`` is when it may be taken next, ``lease`` until when ``worker`` holds it.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=new_id)
    kind: str
    owner: str
    key: str
    payload: dict[str, Any] = Field(default_factory=dict)
    state: JobState = JobState.QUEUED
    attempts: int = 0
    error: str = ""
    worker: str = ""
    due: datetime = Field(default_factory=utc_now)
    lease: datetime | None = None
    created: datetime = Field(default_factory=utc_now)
    updated: datetime = Field(default_factory=utc_now)


def after_failure(job: Job) -> tuple[JobState, float]:
    """The state of a job that has failed once more, and the seconds until it is due."""
    state = JobState.FAILED if job.attempts % ATTEMPTS == 0 else JobState.QUEUED
    return state, back_off((job.attempts - 1) % ATTEMPTS + 1)


class Jobs(Protocol):
    """The jobs of a store."""

    async def enqueue(self, job: Job) -> Job:
        """Keep a job, or give the one that is there already under its kind, owner and key."""
        ...

    async def claim(self, kinds: Sequence[str], worker: str, *, seconds: float, owner: str | None = None) -> Job | None:
        """The job that has been due for longest, now held by ``worker`` for so many seconds; ``None`` if none is due.

        One whose worker has let its lease run out is due again.
        """
        ...

    async def renew(self, job: Job, *, seconds: float) -> bool:
        """Hold a job for longer; false when it was cancelled or has gone to another worker."""
        ...

    async def finish(self, job: Job) -> bool:
        """The work is done; false when the job is no longer this worker's."""
        ...

    async def fail(self, job: Job, error: str) -> bool:
        """The work could not be done; it is tried again after a while."""
        ...

    async def cancel(self, job_id: str, *, actor: str, cause: str = "") -> Job:
        """Cancel a job in whatever state it is; a worker that holds it learns of it when it renews or finishes."""
        ...

    async def retry(self, kinds: Sequence[str] = (), owner: str | None = None) -> int:
        """Make failed jobs due now; gives how many."""
        ...

    async def jobs(
        self, *, states: Sequence[JobState] = (), kinds: Sequence[str] = (), owner: str | None = None, limit: int = 100
    ) -> list[Job]:
        """Jobs, the oldest first."""
        ...
