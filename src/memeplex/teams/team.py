"""Agents that work together: who speaks when, and when it is over. ``Session`` is the loop."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from memeplex.agents import Agent
from memeplex.errors import UserError
from memeplex.messages import Task, utc_now
from memeplex.storage import Job, Run, Store
from memeplex.teams.session import RunResult, Session
from memeplex.teams.speakers import Cast, RoundRobin, SpeakerPolicy
from memeplex.teams.termination import MaxTurns, Stalled, Termination
from memeplex.usage import Ledger

__all__ = ["Team", "new_run_id"]


def new_run_id() -> str:
    """An id that sorts by time and is short enough to type."""
    return f"{utc_now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@dataclass(kw_only=True)
class Team:
    """Agents, who speaks when, and when it is over.

    ``output`` is the class of the final document; ``spec`` is kept with the run, so that the command line can build
    the team again. With ``overlap`` off, every memory update is waited for at once.
    """

    name: str
    agents: Sequence[Agent]
    speakers: SpeakerPolicy = field(default_factory=RoundRobin)
    termination: Termination = field(default_factory=lambda: MaxTurns(20) | Stalled())
    output: type[BaseModel] | None = None
    overlap: bool = True
    spec: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [agent.name for agent in self.agents]
        if not names or len(set(names)) < len(names):
            raise UserError(f"team {self.name}: it needs agents, each with a name of its own")
        if isinstance(self.speakers, str):
            raise UserError(
                f"team {self.name}: {self.speakers!r} is the name of a policy", remedy="such as RoundRobin()"
            )
        self.speakers.check(self.cast(0))

    async def run(
        self,
        task: str | Task,
        *,
        store: Store | None = None,
        seed: int = 0,
        run_id: str | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> RunResult:
        """Work on a task until it is over, or until ``stop()`` is true between two turns.

        Raises:
            ModelError: a model gave no usable answer; all turns before it are kept, and the run can be resumed.
            StorageError: the store cannot be written.
            ContextBudgetError: the task is longer than an agent's context budget.
        """
        from memeplex import __version__

        if not -(2**63) <= seed < 2**63:
            raise UserError(f"seed {seed} is too large", remedy="give one of 64 bits")
        run = Run(
            id=run_id or new_run_id(),
            team=self.name,
            task=task if isinstance(task, Task) else Task(text=task),
            spec=self.spec,
            model=self.agents[0].model.name,
            seed=seed,
            software=__version__,
        )
        if store is None:
            return await Session(self, run, None, (), ()).play(stop)
        with store.lock(run.id):
            await store.add_run(run)
            return await Session(self, run, store, (), ()).play(stop)

    async def resume(self, run_id: str, *, store: Store, stop: Callable[[], bool] = lambda: False) -> RunResult:
        """Go on with a run that was stopped, failed or killed; a finished one is returned as it is.

        Raises:
            UnknownNameError: the store has no such run.
            RunLockedError: another process is working on it.
        """
        run = await store.run(run_id)
        with store.lock(run.id):
            session = await self._session(run.id, store)
            if session.run.status == "finished":
                return session.result(session.run.outcome)
            await store.end_run(run.id, "running")
            return await session.play(stop)

    async def backlog(self, run_id: str, *, store: Store) -> list[Job]:
        """What is left to do for the lasting memories of the team, as they were in a run; nothing is done.

        Raises:
            UnknownNameError: the store has no such run.
        """
        session = await self._session(run_id, store)
        jobs = [job for memory in session.lasting for job in await memory.backlog()]
        # Agents that share a memory share its work.
        return list({job.id: job for job in jobs}.values())

    async def catch_up(
        self, run_id: str, *, store: Store, again: bool = False, stop: Callable[[], bool] = lambda: False
    ) -> Ledger:
        """Make up what is left to do for the lasting memories of the team; gives what that cost.

        The memories are those of the run, and the cost is kept with it. With ``again``, what has failed is tried at
        once, and not when its time has come. ``stop()`` is asked between two jobs.

        Raises:
            UnknownNameError: the store has no such run.
            RunLockedError: another process is working on it.
        """
        run = await store.run(run_id)
        with store.lock(run.id):
            session = await self._session(run.id, store)
            return sum([await memory.catch_up(again=again, stop=stop) for memory in session.lasting], Ledger())

    async def _session(self, run_id: str, store: Store) -> Session:
        """A run, as the store has it."""
        run = await store.run(run_id)
        turns, versions = await store.turns(run.id), await store.versions(run.id)
        if strange := {turn.speaker for turn in turns if turn.model} - {agent.name for agent in self.agents}:
            raise UserError(
                f"run {run.id} is not of this team: {', '.join(sorted(strange))} spoke in it",
                remedy="resume it with the agents that it began with",
            )
        return Session(self, run, store, turns, versions)

    def cast(self, seed: int) -> Cast:
        """What its policy works with."""
        roles = {agent.name: agent.role for agent in self.agents}
        return Cast(roles=roles, model=self.agents[0].model, seed=seed, output=self.output)
