"""An agent that lives: it converses, and goes through its states, and all of it outlasts its process.

Source: Memetic Agents, "State Management", "Communication Flow" and "Types of Memory". One process at a time lives an
agent; what it knows of itself is in the store: its state, its queue of messages, its memory tiers, its prompts and the
jobs that are not done. So whoever lives it next goes on where the last one stopped, or was stopped.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from memeplex.agents.agent import Agent
from memeplex.agents.conversing import Conversing
from memeplex.agents.correspondence import Correspondence, Post
from memeplex.agents.feedback import GivingFeedback
from memeplex.agents.lifecycle import ACTIVE, TAKES, TRANSITIONS, Standing, Standings, State
from memeplex.agents.queue import Queue
from memeplex.agents.rehearsal import Rehearsal
from memeplex.agents.rhythm import Condition, Load, Rhythm
from memeplex.agents.routines import ROUTINES
from memeplex.autonoms.base import first_prompt
from memeplex.errors import ModelError, RunLockedError, StateError, StorageError, UserError
from memeplex.learning import Learning, LearningSettings, Peer, Scorer, unused
from memeplex.memory import MemoryScope, MemorySettings
from memeplex.memory.combined import CombinedSettings
from memeplex.memory.tiers import TiersMemory, TiersSettings
from memeplex.memory.tiers.feedback import FEEDBACK
from memeplex.memory.tiers.short_term import all_of, by_conversation
from memeplex.memory.topology import joined
from memeplex.memory.work import Costs, Work
from memeplex.messages import Message, MessageKind, StandardMessage, utc_now
from memeplex.models import derive_seed
from memeplex.prompts import Library, Prompt
from memeplex.storage import Job, MemoryVersion, Store
from memeplex.storage.shielded import shielded
from memeplex.telemetry import StateChanged, emit
from memeplex.usage import Ledger

__all__ = ["ROUTINE", "Life", "LifeSettings", "lock_name", "tiers_of"]

ROUTINE = "routine"
"""The kind of the jobs that states are."""

_IMPROVABLE = (
    "give_feedback",
    "thought_loop",
    "extract_memories",
    "reflect_on_memories",
    "reflect_on_feedback",
    "revise_prompt",
    "evaluate_prompt",
)
"""The autonoms' prompts that a reflection can be about."""


class LifeSettings(BaseModel):
    """How an agent lives: how often it thinks about an answer at most, whether it gives feedback, and how it learns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    thoughts: int = Field(default=2, ge=1, le=10)
    feedback: bool = True
    learning: LearningSettings = LearningSettings()


class Life:
    """One agent's life, as an asynchronous context: ``async with Life(agent, store, team="desk") as life``.

    ``members`` are the agents that it can write to, with their roles; ``peer`` is whom it meets when it socialises.
    ``score`` tries prompts out, by default by answering with them before a judge. ``clock`` is the time it lives by.

    Raises:
        UserError: the agent has no memory tiers.
        RunLockedError: another process lives it.
    """

    def __init__(
        self,
        agent: Agent,
        store: Store,
        *,
        team: str = "",
        members: Mapping[str, str] | None = None,
        settings: LifeSettings | None = None,
        score: Scorer | None = None,
        peer: Peer | None = None,
        clock: Callable[[], datetime] = utc_now,
        seed: int = 0,
    ) -> None:
        self.agent, self.name, self.team, self.peer = agent, agent.name, team, peer
        self.owner = joined(team, agent.name)
        self.settings = settings or LifeSettings()
        self.members = dict(members or {})
        self.store = store
        self.queue = Queue(store.records, self.owner)
        self.usage = Ledger()
        self._clock = clock
        self._library = Library(store.records, self.owner)
        self._post = Post(store.records, team, {agent.name, *self.members})
        self._standings = Standings(store.records)
        self._standing = Standing()
        self._busy = asyncio.Lock()
        self._woken = False
        self._held = ExitStack()
        self._seed = derive_seed(seed, "life", self.owner)
        self.tiers = self._tiers()
        self.giving = GivingFeedback(
            agent, store.jobs, owner=self.owner, prompts=self.prompts, post=self._post, seed=self._seed
        )
        self._messages = self._correspondence()
        self.learning = self._learning(score or Rehearsal(agent, prompts=self.prompts, seed=self._seed))
        self._work = Work(store.jobs, [ROUTINE], owner=self.owner, name=f"{self.owner} {ROUTINE}", agent=agent.name)

    # ---- its beginning and its end

    async def __aenter__(self) -> Self:
        """Take the agent over, with what an earlier process had it at: that is finished first."""
        try:
            self._held.enter_context(self.store.lock(lock_name(self.owner)))
        except RunLockedError as error:
            raise RunLockedError(f"another process lives {self.owner}", remedy=error.remedy) from error
        try:
            present = await self._standings.of(self.owner)
            self._standing = present or await self._begun("it begins to live")
            await self._messages.restore()
            if self.state is not State.AVAILABLE:
                await self._routine()
        except BaseException:
            self._held.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """Let go of the agent; what it is at stays in the store."""
        self._held.close()

    async def start(self) -> Standing:
        """Begin anew after it has shut down; elsewise nothing changes."""
        if self.state is State.SHUTTING_DOWN:
            self._standing = await self._begun("it begins anew")
        return self._standing

    async def _begun(self, cause: str) -> Standing:
        return await self._standings.begin(self.owner, actor=self.name, at=self._clock(), cause=cause)

    # ---- its states

    @property
    def state(self) -> State:
        """What it is at."""
        return self._standing.state

    @property
    def standing(self) -> Standing:
        """What it is at, since when and why."""
        return self._standing

    async def enter(self, state: State, *, cause: str = "") -> Standing:
        """Go over to a state, do what belongs to it, and be available again; then what waited is dealt with.

        A routine that is going on ends at its next step when the agent is to be available or to shut down.

        Raises:
            StateError: the state cannot follow; the error names those that can.
        """
        if state is State.AVAILABLE and self.state is State.AVAILABLE:
            return self._standing
        if state not in TRANSITIONS[self.state]:
            possible = [one for one in State if one in TRANSITIONS[self.state]]
            raise StateError(
                f"{self.name} is {self.state}, and cannot be {state} next", state=self.state, possible=possible
            )
        self._woken = self.state is not State.AVAILABLE
        async with self._busy:
            self._woken = False
            if state is not State.AVAILABLE:
                await self._change(state, cause or "asked to")
                await self._routine()
        if self.state is State.AVAILABLE:
            # What the model gives no answer to goes on waiting, and an event says so.
            with suppress(ModelError):
                await self.attend()
        return self._standing

    def woken(self) -> bool:
        """Whether the routine that goes on is to end at its next step."""
        return self._woken

    def spend(self, usage: Ledger) -> None:
        """Count what something has cost."""
        self.usage += usage

    async def _change(self, state: State, cause: str) -> None:
        before = self.state
        at = self._clock()
        self._standing = await self._standings.change(self.owner, state, actor=self.name, at=at, cause=cause)
        emit(StateChanged(agent=self.name, state=state, before=before, cause=cause))

    async def _routine(self) -> None:
        """The routine of its state, as a job; whatever comes of it, the agent is available again."""
        state, number = self.state, self._standing.number
        job = Job(kind=ROUTINE, owner=self.owner, key=str(number), payload={"state": state, "number": number})
        try:
            await self.store.jobs.enqueue(job)
            await self._work.drain(self._do, again=True)
        except (Exception, asyncio.CancelledError) as error:
            with suppress(StorageError):
                await shielded(self._back(state, f"{state} failed: {type(error).__name__}"))
            raise
        await self._back(state, f"{state} was broken off")

    async def _back(self, state: State, cause: str) -> None:
        """Available again, where the routine has not come to its end."""
        if self.state is state and state is not State.SHUTTING_DOWN:
            await self._change(State.AVAILABLE, cause)

    async def _do(self, job: Job, costs: Costs) -> str:
        if job.payload["number"] != self._standing.number:
            return "it has gone on since"
        state = self.state
        told = await ROUTINES[state](self)
        if state is not State.SHUTTING_DOWN:
            await self._change(State.AVAILABLE, told)
        return told

    async def follow(self, rhythm: Rhythm, *, stop: Callable[[], bool] = lambda: False) -> list[State]:
        """Enter the states that a rhythm wants now, each once at most; gives them."""
        entered: list[State] = []
        while not stop():
            state = rhythm.wants(await self.condition(weigh=rhythm.weighs))
            if state is None or state in entered or self.state is not State.AVAILABLE:
                break
            await self.enter(state, cause="by its rhythm")
            entered.append(state)
        return entered

    async def condition(self, *, weigh: bool = True) -> Condition:
        """How it is; to ``weigh`` what has piled up takes a look at its memory."""
        load = await self._load() if weigh else Load()
        standing = self._standing
        return Condition(agent=self.name, now=self._clock(), began=standing.began, entered=standing.entered, load=load)

    async def _load(self) -> Load:
        archive = self.tiers.archive
        waiting = {*self.tiers.working, *await by_conversation(archive, self.owner)}
        sums: dict[str, float] = {}
        for one in await unused(archive, self.owner):
            sums[one.category] = sums.get(one.category, 0.0) + one.importance
        feedback = len(await all_of(archive, self.owner, [FEEDBACK]))
        return Load(conversations=len(waiting), feedback=feedback, reflections=max(sums.values(), default=0.0))

    # ---- its messages

    async def receive(self, message: Message) -> None:
        """Keep a message, whatever the agent is at; it is dealt with in its turn, when the agent is available.

        Raises:
            UserError: it is for somebody else.
            FeedbackScoreError: it is feedback with a score that is none.
        """
        await self._messages.receive(message)

    async def tell(self, recipient: str, content: str, *, conversation: str = "") -> StandardMessage:
        """Say something to another agent of the team; its answer comes as a message, and gets feedback.

        Raises:
            UnknownNameError: there is no such agent.
            StateError: it is not available, so it says nothing.
        """
        if self.state is not State.AVAILABLE:
            raise StateError(f"{self.name} is {self.state}, and says nothing", state=self.state)
        return await self._messages.tell(recipient, content, conversation=conversation)

    async def attend(self, *, stop: Callable[[], bool] = lambda: False) -> list[StandardMessage]:
        """Deal with the messages that wait, as far as its state lets it; gives the answers that it gave.

        Raises:
            ModelError: the model gave no answer; its message, and those behind it, go on waiting.
        """
        async with self._busy:
            return await self._messages.attend(TAKES[self.state], stop=stop)

    async def ask(self, message: StandardMessage) -> StandardMessage | None:
        """Keep a message and wait for the answer; ``None`` where the agent is not available, and will answer later.

        The same message again gets the same answer, as long as it has not been slept over.

        Raises:
            ModelError: the model gave no answer; the message waits.
        """
        await self.receive(message)
        await self.attend()
        letter = await self.queue.find(message.id)
        return letter.reply if letter else None

    async def hear_social(self) -> int:
        """Take in the social messages that wait; gives how many. A part of socialising."""
        waiting = [one for one in await self.queue.waiting() if one.message.kind is MessageKind.SOCIAL]
        await self._messages.attend([MessageKind.SOCIAL], stop=self.woken)
        return len(waiting)

    # ---- what it is made of

    async def prompts(self, first: Prompt) -> Prompt:
        """The version in use of a prompt that is active in its state.

        Raises:
            StateError: it is not.
        """
        if first.name not in ACTIVE[self.state]:
            raise StateError(
                f"{self.name} is {self.state}, where the prompt {first.name} is not active",
                state=self.state,
                remedy=f"active: {', '.join(sorted(ACTIVE[self.state])) or 'none'}",
            )
        return await self._library.current(first)

    def _correspondence(self) -> Correspondence:
        return Correspondence(
            self.name,
            self.queue,
            self.tiers,
            conversing=Conversing(
                self.agent,
                self.tiers,
                prompts=self.prompts,
                members=self.members,
                thoughts=self.settings.thoughts,
                seed=self._seed,
            ),
            give=self.giving if self.settings.feedback else None,
            post=self._post,
            spend=self.spend,
        )

    def _learning(self, score: Scorer) -> Learning:
        return Learning(
            self._library,
            self.store.jobs,
            agent=self.name,
            model=self.agent.model,
            prompts={**self.agent.prompts, **{name: first_prompt(name) for name in _IMPROVABLE}},
            score=score,
            settings=self.settings.learning,
            seed=self._seed,
        )

    def _tiers(self) -> TiersMemory:
        settings = tiers_of(self.agent.settings)
        if settings is None:
            raise UserError(
                f"agent {self.name} has no memory tiers to live with", remedy="memory: tiers, or [intrinsic, tiers]"
            )
        scope = MemoryScope(
            agent=self.name,
            role=self.agent.role,
            model=self.agent.model,
            record=_forget,
            seed=self._seed,
            team=self.team,
            members=self.members,
            store=self.store,
            prompts=self.prompts,
        )
        return settings.open(scope)


def tiers_of(memory: MemorySettings) -> TiersSettings | None:
    """The memory tiers of an agent, alone or among others; ``None`` if it has none."""
    parts = memory.parts if isinstance(memory, CombinedSettings) else (memory,)
    return next((part for part in parts if isinstance(part, TiersSettings)), None)


def lock_name(owner: str) -> str:
    """What a store's lock on a life is called: ``store.held`` says whether somebody lives the agent."""
    return f"life of {owner}"


async def _forget(version: MemoryVersion) -> None:
    """The tiers keep no versions."""
