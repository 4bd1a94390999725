"""Jobs of one owner, done one after the other: what fails is kept and told, what a dead process held is taken back."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from memeplex.errors import AuthenticationError, ModelError, ModelNotFoundError, ModelUnavailableError
from memeplex.messages import one_line
from memeplex.models import Completion
from memeplex.storage import Job, Jobs, JobState
from memeplex.storage.shielded import shielded
from memeplex.telemetry import MemoryConsolidated, emit
from memeplex.usage import Ledger, Purpose, Usage

__all__ = ["JOBS", "UNDONE", "Costs", "Work"]

T = TypeVar("T")

LEASE = 900.0
"""Seconds for one call of a job; then another worker takes it for lost."""
JOBS = 1_000_000
"""More jobs than an owner has."""
UNDONE = (JobState.QUEUED, JobState.RUNNING, JobState.FAILED)
"""The states of a job that is left to do."""
_OUT_OF_REACH = (AuthenticationError, ModelNotFoundError, ModelUnavailableError)
"""Errors that the next job would meet as well."""

Spent = Callable[[Ledger], Awaitable[None]]
"""Keeps what a call has cost."""


class Costs:
    """What the calls of one job have cost, those in vain too. Each is told to ``spent`` as soon as it is answered."""

    def __init__(self, spent: Spent | None = None) -> None:
        self.ledger = Ledger()
        self._spent = spent

    async def of(self, purpose: Purpose, call: Awaitable[Completion[T]]) -> Completion[T]:
        """The completion of a call, counted."""
        try:
            completion = await call
        except ModelError as error:
            await self.add(Ledger({purpose: error.usage}))
            raise
        await self.add(Ledger({purpose: completion.usage}))
        return completion

    async def add(self, ledger: Ledger) -> None:
        """Count what something has cost."""
        if ledger.total != Usage():
            self.ledger += ledger
            # At once: a process that dies later has not spent it unseen.
            if self._spent is not None:
                await self._spent(ledger)


Do = Callable[[Job, Costs], Awaitable[str]]
"""One job, done; gives what came of it, in a few words."""


class Work:
    """A worker on the jobs of one owner. ``name`` is the worker's: nobody else of that name is at work.

    ``kinds`` are those of its jobs; all of the first kind come before those of the second.
    """

    def __init__(
        self, jobs: Jobs, kinds: Sequence[str], *, owner: str, name: str, agent: str, spent: Spent | None = None
    ) -> None:
        self.jobs = jobs
        self.kinds = tuple(kinds)
        self._owner = owner
        self._name = name
        self._agent = agent
        self._spent = spent

    async def left(self) -> list[Job]:
        """What is not done, the oldest first."""
        return await self.jobs.jobs(states=UNDONE, kinds=self.kinds, owner=self._owner, limit=JOBS)

    async def drain(self, do: Do, *, again: bool, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """Do what is due, and with ``again`` what has failed before, until ``stop()``; gives what it cost.

        A failing model leaves its job behind.
        """
        spent = Ledger()
        await self._reclaim()
        if again:
            await self.jobs.retry(self.kinds, self._owner)
        while not stop() and (job := await self._claim()) is not None:
            usage, reached = await self._do(job, do)
            spent += usage
            if not reached:
                break
        return spent

    async def hold(self, job: Job) -> bool:
        """Hold a job for another lease; false when it has gone to another worker, or was cancelled."""
        return await self.jobs.renew(job, seconds=LEASE)

    async def _reclaim(self) -> None:
        """Take back what an earlier process of this worker held."""
        for job in await self.jobs.jobs(states=[JobState.RUNNING], kinds=self.kinds, owner=self._owner, limit=JOBS):
            if job.worker.rpartition(" ")[0] == self._name:
                await self.jobs.renew(job, seconds=0)

    async def _claim(self) -> Job | None:
        worker = f"{self._name} {secrets.token_hex(4)}"
        for kind in self.kinds:
            job = await self.jobs.claim([kind], worker, seconds=LEASE, owner=self._owner)
            if job is not None:
                return job
        return None

    async def _do(self, job: Job, do: Do) -> tuple[Ledger, bool]:
        """One job; false where the model is out of reach, so that the others may wait as well."""
        costs, status, reached = Costs(self._spent), "done", True
        try:
            cause = await do(job, costs)
        except ModelError as error:
            status, cause, reached = "failed", one_line(str(error)), not isinstance(error, _OUT_OF_REACH)
            await self.jobs.fail(job, cause)
        except asyncio.CancelledError:
            # Whoever goes on need not wait until the lease is over.
            await shielded(self.jobs.renew(job, seconds=0))
            raise
        else:
            if not await self.jobs.finish(job):
                status, cause = "failed", "it was cancelled meanwhile, or another worker has it"
        usage = costs.ledger
        emit(MemoryConsolidated(agent=self._agent, job=job.kind, status=status, cause=cause, usage=usage))
        return usage, reached
