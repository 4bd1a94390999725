"""Jobs of one owner, done one after the other: what fails is kept and told, what a dead process held is taken back."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from memeplex.errors import ModelError, ModelUnavailableError
from memeplex.messages import one_line
from memeplex.models import Completion
from memeplex.storage import Job, Jobs, JobState
from memeplex.telemetry import MemoryConsolidated, emit
from memeplex.usage import Ledger, Purpose, Usage

__all__ = ["JOBS", "Costs", "Work"]

T = TypeVar("T")

LEASE = 900.0
"""Seconds for the calls of one job; then another worker takes it for lost."""
JOBS = 1_000_000
"""More jobs than an owner has."""


class Costs:
    """What the calls of one job have cost, those in vain too."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    async def of(self, purpose: Purpose, call: Awaitable[Completion[T]]) -> Completion[T]:
        """The completion of a call, counted."""
        try:
            completion = await call
        except ModelError as error:
            self._add(purpose, error.usage)
            raise
        self._add(purpose, completion.usage)
        return completion

    def _add(self, purpose: Purpose, usage: Usage) -> None:
        if usage != Usage():
            self.ledger += Ledger({purpose: usage})


Do = Callable[[Job, Costs], Awaitable[str]]
"""One job, done; gives what came of it, in a few words."""


class Work:
    """A worker on the jobs of one owner. ``name`` is the worker's: nobody else of that name is at work."""

    def __init__(self, jobs: Jobs, *, owner: str, name: str, agent: str) -> None:
        self.jobs = jobs
        self._owner = owner
        self._name = name
        self._agent = agent

    async def drain(self, kinds: Sequence[str], do: Do) -> Ledger:
        """Do what is due, and what failed before; gives what it cost. A failing model leaves its job behind.

        All jobs of the first kind come before those of the second.
        """
        spent = Ledger()
        await self._reclaim(kinds)
        await self.jobs.retry(kinds, self._owner)
        while (job := await self._claim(kinds)) is not None:
            usage, reached = await self._do(job, do)
            spent += usage
            if not reached:
                break
        return spent

    async def hold(self, job: Job) -> bool:
        """Hold a job for another lease; false when it has gone to another worker, or was cancelled."""
        return await self.jobs.renew(job, seconds=LEASE)

    async def _reclaim(self, kinds: Sequence[str]) -> None:
        """Take back what an earlier process of this worker held."""
        for job in await self.jobs.jobs(states=[JobState.RUNNING], kinds=kinds, owner=self._owner, limit=JOBS):
            if job.worker.rpartition(" ")[0] == self._name:
                await self.jobs.renew(job, seconds=0)

    async def _claim(self, kinds: Sequence[str]) -> Job | None:
        worker = f"{self._name} {secrets.token_hex(4)}"
        for kind in kinds:
            job = await self.jobs.claim([kind], worker, seconds=LEASE, owner=self._owner)
            if job is not None:
                return job
        return None

    async def _do(self, job: Job, do: Do) -> tuple[Ledger, bool]:
        """One job; false where the model is out of reach, so that the others may wait as well."""
        costs, status, reached = Costs(), "done", True
        try:
            cause = await do(job, costs)
        except ModelError as error:
            status, cause, reached = "failed", one_line(str(error)), not isinstance(error, ModelUnavailableError)
            await self.jobs.fail(job, cause)
        else:
            await self.jobs.finish(job)
        usage = costs.ledger
        emit(MemoryConsolidated(agent=self._agent, job=job.kind, status=status, cause=cause, usage=usage))
        return usage, reached
