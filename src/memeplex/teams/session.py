"""One run of a team: the loop of Figure 1 of Intrinsic Memory Agents.

Select a speaker, let it respond, keep the turn, update its memory, see whether it is over. A turn is durable before
the next begins. While the next agent speaks, the last one's memory is updated; it is waited for only before the same
agent speaks again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memeplex.agents import Ask
from memeplex.memory import Lasting
from memeplex.messages import Conversation, Outcome, Turn, TurnKind
from memeplex.storage import MemoryVersion, Run, Store
from memeplex.storage.shielded import shielded
from memeplex.teams.judging import judged
from memeplex.telemetry import RunFinished, RunStarted, TurnFinished, TurnStarted, emit
from memeplex.usage import Ledger

if TYPE_CHECKING:
    from memeplex.teams.team import Team

__all__ = ["RunResult", "Session"]


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


class Session:
    """One run of a team, from wherever it stands to its end."""

    def __init__(
        self, team: "Team", run: Run, store: Store | None, turns: Sequence[Turn], versions: Sequence[MemoryVersion]
    ) -> None:
        self.team = team
        self.run = run
        self.store = store
        self.cast = team.cast(run.seed)
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
                spent=partial(self._spent, agent.name),
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
                    await shielded(self.store.end_run(self.run.id, status, outcome))
        if outcome is not None:
            emit(RunFinished(run=self.run.id, outcome=outcome))
        return self.result(outcome)

    def result(self, outcome: Outcome | None) -> RunResult:
        """What there is so far."""
        return RunResult(
            run=self.run.id, conversation=self.conversation, outcome=outcome, versions=tuple(self.versions)
        )

    @property
    def lasting(self) -> list[Lasting]:
        """The memories that may have work left over from earlier processes."""
        return [agent.memory for agent in self.agents.values() if isinstance(agent.memory, Lasting)]

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
            await agent.memory.consolidate(outcome)
        return outcome

    async def _spent(self, agent: str, ledger: Ledger) -> None:
        """The cost of one call after the last turn, kept with the last version of the memory that it was for."""
        last = next((version for version in reversed(self.versions) if version.agent == agent), None)
        version = MemoryVersion(
            agent=agent,
            # Each has a place of its own, behind the turns.
            turn=max(len(self.conversation.turns), last.turn + 1 if last else 0),
            version=last.version if last else 0,
            status="consolidated",
            content=last.content if last and last.turn >= 0 else {},
            cause=", ".join(ledger),
            model=self.agents[agent].model.name,
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
