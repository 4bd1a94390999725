"""A team at work: the loop of Figure 1 of Intrinsic Memory Agents.

Select a speaker, let it respond, keep the turn, update its memory, see whether it is over. A turn is durable before
the next begins. While the next agent speaks, the last one's memory is updated; it is waited for only before the same
agent speaks again.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from memeplex.agents import Agent, Ask
from memeplex.errors import UserError
from memeplex.messages import Conversation, Outcome, Task, Turn, TurnKind, utc_now
from memeplex.storage import MemoryVersion, Run, Store
from memeplex.teams.judging import judged
from memeplex.teams.speakers import Cast, RoundRobin, SpeakerPolicy
from memeplex.teams.termination import MaxTurns, Stalled, Termination
from memeplex.telemetry import RunFinished, RunStarted, TurnFinished, TurnStarted, emit
from memeplex.usage import Ledger

__all__ = ["RunResult", "Team", "new_run_id"]


def new_run_id() -> str:
    """An id that sorts by time and is short enough to type."""
    return f"{utc_now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to. ``outcome`` is ``None`` when it was stopped between two turns."""

    run: str
    conversation: Conversation
    outcome: Outcome | None
    versions: Sequence[MemoryVersion]

    @property
    def usage(self) -> Ledger:
        """All that the run has cost, memory updates included, by purpose."""
        spent = [turn.usage for turn in self.conversation.turns] + [version.usage for version in self.versions]
        return sum(spent, Ledger())

    def memory(self, agent: str) -> dict[str, list[str]]:
        """What an agent's memory holds at the end, by slot."""
        held = [version for version in self.versions if version.agent == agent and version.turn >= 0]
        return held[-1].content if held else {}


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
        self.speakers.check(self._cast(0))

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
            return await _Session(self, run, None, (), ()).play(stop)
        with store.lock(run.id):
            await store.add_run(run)
            return await _Session(self, run, store, (), ()).play(stop)

    async def resume(self, run_id: str, *, store: Store, stop: Callable[[], bool] = lambda: False) -> RunResult:
        """Go on with a run that was stopped, failed or killed; a finished one is returned as it is.

        Raises:
            UnknownNameError: the store has no such run.
            RunLockedError: another process is working on it.
        """
        run = await store.run(run_id)
        with store.lock(run.id):
            run = await store.run(run.id)
            turns, versions = await store.turns(run.id), await store.versions(run.id)
            if strange := {turn.speaker for turn in turns if turn.model} - {agent.name for agent in self.agents}:
                raise UserError(
                    f"run {run.id} is not of this team: {', '.join(sorted(strange))} spoke in it",
                    remedy="resume it with the agents that it began with",
                )
            session = _Session(self, run, store, turns, versions)
            if run.status == "finished":
                return session.result(run.outcome)
            await store.end_run(run.id, "running")
            return await session.play(stop)

    def _cast(self, seed: int) -> Cast:
        roles = {agent.name: agent.role for agent in self.agents}
        return Cast(roles=roles, model=self.agents[0].model, seed=seed, output=self.output)


class _Session:
    """One run of a team, from wherever it stands to its end."""

    def __init__(
        self, team: Team, run: Run, store: Store | None, turns: Sequence[Turn], versions: Sequence[MemoryVersion]
    ) -> None:
        self.team = team
        self.run = run
        self.store = store
        self.cast = team._cast(run.seed)
        self.conversation = Conversation(run.task, turns)
        self.versions = list(versions)
        roles = {agent.name: agent.role for agent in team.agents}
        self.agents = {
            agent.name: agent.enter(
                record=self._record,
                versions=versions,
                seed=run.seed,
                run=run.id,
                team=team.name,
                members=roles,
                store=store,
                conversation=self.conversation,
            )
            for agent in team.agents
        }
        self.updates: dict[str, asyncio.Task[Any]] = {}

    async def play(self, stop: Callable[[], bool]) -> RunResult:
        """The loop, and a word in the store on how it ended."""
        names = tuple(self.agents)
        task, turns = self.run.task.text, len(self.conversation.turns)
        status, outcome = "failed", None
        try:
            emit(RunStarted(run=self.run.id, team=self.team.name, task=task, agents=names, turns=turns))
            outcome = await self._turns(stop)
            status = "finished" if outcome else "interrupted"
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        finally:
            try:
                await self._abandon()
            finally:
                if self.store is not None:
                    # Written to its end, however often the run is cancelled.
                    await asyncio.shield(self.store.end_run(self.run.id, status, outcome))
        if outcome is not None:
            emit(RunFinished(run=self.run.id, outcome=outcome))
        return self.result(outcome)

    def result(self, outcome: Outcome | None) -> RunResult:
        """What there is so far."""
        return RunResult(
            run=self.run.id, conversation=self.conversation, outcome=outcome, versions=tuple(self.versions)
        )

    async def _turns(self, stop: Callable[[], bool]) -> Outcome | None:
        if not await self._catch_up(stop):
            return None
        reason = ""
        while not (reason := self.team.termination.reached(self.conversation)):
            if stop():
                await self._settle(*self.updates)
                return None
            ask = await self.team.speakers.select(self.conversation, self.cast)
            if ask is None:
                break
            await self._turn(ask)
        await self._settle(*self.updates)
        outcome = judged(self.conversation, self.team.speakers.outcome(self.conversation, reason))
        for agent in self.agents.values():
            if ledger := await agent.memory.consolidate(outcome):
                await self._consolidated(agent.name, ledger)
        return outcome

    async def _consolidated(self, agent: str, ledger: Ledger) -> None:
        """The cost of consolidating a memory, kept with its last version."""
        last = next((version for version in reversed(self.versions) if version.agent == agent), None)
        version = MemoryVersion(
            agent=agent,
            turn=len(self.conversation.turns),
            version=last.version if last else 0,
            status="consolidated",
            content=last.content if last and last.turn >= 0 else {},
            model=self.team.agents[0].model.name,
            usage=ledger,
        )
        await self._record(version)

    async def _turn(self, ask: Ask) -> None:
        index = len(self.conversation.turns)
        emit(TurnStarted(index=index, speaker=ask.speaker, stage=ask.stage))
        if ask.kind is TurnKind.FLAG:
            turn = Turn(
                index=index,
                speaker=ask.speaker,
                content=ask.content,
                kind=ask.kind,
                stage=ask.stage,
                flag=ask.flag,
            )
        else:
            await self._settle(ask.speaker)
            turn = await self.agents[ask.speaker].respond(self.conversation, ask)
        if self.store is not None:
            await self.store.add_turn(self.run.id, turn)
        self.conversation.append(turn)
        emit(TurnFinished(turn=turn))
        if turn.kind is TurnKind.MESSAGE:
            update = self.agents[turn.speaker].remember(turn, self.conversation.before(turn))
            self.updates[turn.speaker] = asyncio.create_task(update)
            if not self.team.overlap:
                await self._settle(turn.speaker)

    async def _catch_up(self, stop: Callable[[], bool]) -> bool:
        """Make up the memory updates that an earlier process did not live to finish, each agent's in their order.

        False when it was stopped before the end.
        """

        async def agent(name: str) -> bool:
            for turn in self.conversation.by(name):
                if turn.kind is TurnKind.MESSAGE:
                    if stop():
                        return False
                    await self.agents[name].remember(turn, self.conversation.before(turn))
            return True

        updates = [asyncio.create_task(agent(name)) for name in self.agents]
        self.updates = dict(zip(self.agents, updates, strict=True))
        done = [await update for update in updates]
        self.updates.clear()
        return all(done)

    async def _settle(self, *names: str) -> None:
        for name in names:
            if update := self.updates.pop(name, None):
                await update

    async def _abandon(self) -> None:
        """Nothing of this run goes on behind its back; what is cut short is made up at the next resume."""
        for update in self.updates.values():
            update.cancel()
        if self.updates:
            await asyncio.wait(self.updates.values())
        for update in self.updates.values():
            # Asked for, so that it does not count as lost; the run ends for a reason of its own.
            _ = update.cancelled() or update.exception()
        self.updates.clear()

    async def _record(self, version: MemoryVersion) -> None:
        if self.store is not None:
            await self.store.add_version(self.run.id, version)
        self.versions.append(version)
