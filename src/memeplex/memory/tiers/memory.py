"""The memory tiers: working, short-term, feedback, long-term and reflections, as one memory of one agent.

Source: Memetic Agents, "Types of Memory" and "Memory Consolidation". By day, conversations are in working memory;
asleep, an agent puts them into short-term memory, whole; memorising, it makes atomic memories and reflections of them
and of the feedback that it got, and lets go of the conversations.
"""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from memeplex.errors import UserError
from memeplex.memory.archive import Archive, EmbedderChoice, embedder_of, record_text
from memeplex.memory.base import MemoryScope, Recollection
from memeplex.memory.tiers import atomic, feedback, short_term
from memeplex.memory.tiers.injected import keep_recalled, recalled
from memeplex.memory.tiers.memorising import Memorising, receipts
from memeplex.memory.tiers.recall import Recalled, recall
from memeplex.memory.tiers.working import Said, Talk, heard
from memeplex.memory.topology import joined
from memeplex.messages import Conversation, Outcome, Turn
from memeplex.storage import Job, MemoryVersion, Store
from memeplex.telemetry import FeedbackReceived, emit
from memeplex.usage import Ledger

__all__ = ["TiersMemory", "TiersSettings"]


class TiersSettings(BaseModel):
    """The arguments of the memory tiers.

    ``every``: conversations in short-term memory from which on a finished task leads to memorising; 0 leaves that to
    whoever rules the agent's states. ``top``: entries that are recalled, each of at least ``least_relevance``;
    ``max_tokens`` bounds what is put before the task. ``inject=False`` keeps everything and shows nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(default=5, ge=0)
    top: int = Field(default=8, ge=1)
    least_relevance: float = Field(default=0.2, ge=0, le=1)
    max_tokens: int = Field(default=600, ge=50)
    inject: bool = True
    embedder: EmbedderChoice = "auto"

    def open(self, scope: MemoryScope) -> "TiersMemory":
        """The memory of one agent."""
        return TiersMemory(self, scope)


class TiersMemory:
    """One agent's memory in tiers: in a team's run, or for the days of an agent that lives outside of one.

    Raises:
        UserError: there is no store.
    """

    def __init__(self, settings: TiersSettings, scope: MemoryScope) -> None:
        if scope.store is None:
            raise UserError("memory tiers need a store", remedy="give Team.run one: store=open_store('team.db')")
        self.settings = settings
        self.owner = joined(scope.team, scope.agent)
        self.working: dict[str, Talk] = {}
        self._scope = scope
        self._store: Store = scope.store
        self._embedder = embedder_of(settings.embedder)
        self._given: Recalled | None = None
        self._settled = False

    @property
    def archive(self) -> Archive:
        """The records that it lives in."""
        return Archive(self._store.records, self._embedder)

    # ---- in a team's run, of which the conversation has the run's id

    async def retrieve(self, cue: Conversation) -> Recollection:
        """What the tiers have to say on the task: looked up once, and the same after a resume."""
        if not self.settings.inject:
            return Recollection()
        if self._given is None:
            self._given = await recalled(self.archive, self.owner, self._scope.run)
        if self._given is None:
            self._given = await self.recall(cue.task.text, conversation=self._scope.run)
            await keep_recalled(self.archive, self.owner, self._scope.run, self._given, agent=self._scope.agent)
        return Recollection(background=self._given.text)

    async def update(self, turn: Turn, conversation: Conversation) -> MemoryVersion | None:
        """Take the conversation, up to the agent's own turn, into working memory."""
        await self._hear(conversation, turn)
        return None

    async def consolidate(self, outcome: Outcome) -> None:
        """The conversation is over: it goes into short-term memory, and where enough are there, they are memorised.

        An agent that had no part in the task keeps nothing of it.
        """
        conversation = self._scope.conversation
        if conversation is not None and conversation.by(self._scope.agent):
            await self._hear(conversation)
            await self.sleep()
        if self.settings.every == 0:
            return
        waiting = await short_term.by_conversation(self.archive, self.owner)
        await (self.memorise() if len(waiting) >= self.settings.every else self.catch_up(again=True))

    async def _hear(self, conversation: Conversation, *turns: Turn) -> None:
        talk = await self.open(self._scope.run)
        talk.messages += heard(conversation, self._scope.agent, *turns)[talk.end :]

    # ---- in the days of an agent

    async def open(self, conversation: str, *, social: bool = False) -> Talk:
        """A conversation in working memory: a new one, or one that is taken back from short-term memory whole.

        One that has been memorised begins anew, behind where it was.
        """
        if (talk := self.working.get(conversation)) is None:
            await self._settle()
            chunks = (await short_term.by_conversation(self.archive, self.owner)).get(conversation, [])
            held = [short_term.as_chunk(record) for record in chunks]
            past = await receipts(self.archive, self.owner, conversation)
            start = held[0].start if held else max([0, *(receipt.end for receipt in past)])
            messages = [said for chunk in held for said in chunk.messages]
            social = social or any(chunk.social for chunk in held)
            talk = self.working[conversation] = Talk(conversation, social, start, len(messages), messages)
        talk.social = talk.social or social
        return talk

    async def say(self, conversation: str, *said: Said, social: bool = False) -> Talk:
        """Add messages to a conversation in working memory. What is put in from memories or prompts is marked so."""
        talk = await self.open(conversation, social=social)
        talk.messages += said
        return talk

    async def recall(self, text: str, *, conversation: str = "") -> Recalled:
        """What the tiers have to say on a text, in a conversation that need not be told of itself."""
        await self._settle()
        return await recall(self.archive, self.settings, self.owner, record_text(text), conversation=conversation)

    async def receive_feedback(
        self,
        conversation: str,
        score: object,
        comment: str = "",
        *,
        sender: str,
        scale: tuple[float, float] | None = None,
        about: int | None = None,
        source: str = "",
    ) -> str:
        """Keep feedback on a conversation; gives the record's id. Where the conversation is unknown, an event says so.

        ``source`` is the id of the message that it came in, so that the same message twice is one record.

        Raises:
            FeedbackScoreError: the score is none from 0 to 10, and no scale is stated.
        """
        given = feedback.Feedback(
            conversation=conversation,
            sender=sender,
            score=feedback.score_of(score, scale),
            comment=comment,
            about=about,
        )
        placed = (await self.open(conversation)).end > 0
        if not placed:
            del self.working[conversation]
        record = feedback.record_of(given, owner=self.owner, source=source)
        added = await self.archive.keep([record], actor=sender or self._scope.agent, cause="feedback")
        emit(
            FeedbackReceived(
                agent=self._scope.agent, sender=sender, conversation=conversation, score=given.score, placed=placed
            )
        )
        return added.ids[0]

    async def sleep(self) -> int:
        """Put what is new in working memory into short-term memory, and let go of it; gives how many conversations.

        A conversation is kept whole, or not at all. One that cannot be kept stays in working memory.
        """
        count = 0
        for talk in list(self.working.values()):
            if fresh := tuple(talk.fresh):
                start, agent = talk.start + talk.stored, self._scope.agent
                records = short_term.records_of(
                    talk.id, fresh, start=start, social=talk.social, owner=self.owner, agent=agent
                )
                await self.archive.keep(records, actor=agent, cause="sleep")
                talk.stored = max(talk.stored, start + len(fresh) - talk.start)
                count += 1
            if not talk.fresh:
                # What was said meanwhile is still to be kept.
                self.working.pop(talk.id, None)
        return count

    async def memorise(self, *, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """Make memories and reflections of all conversations in short-term memory, until ``stop()``; gives the cost.

        A conversation that the model fails on stays where it is, with its job, and is tried again later.
        """
        work = self._work()
        await work.enqueue()
        return await work.drain(again=True, stop=stop)

    async def backlog(self) -> list[Job]:
        """What is left to do of what was asked for."""
        return await self._work().left()

    async def catch_up(self, *, again: bool = False, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """Make up what was broken off, and with ``again`` what failed, until ``stop()``; gives what it cost."""
        return await self._work().drain(again=again, stop=stop)

    async def conflicts(self) -> list[atomic.Conflict]:
        """What the long-term memories contradict each other in, and which of them holds."""
        await self._settle()
        return await atomic.conflicts(self.archive, self.owner)

    async def _settle(self) -> None:
        """Once in a process: finish what an earlier one did not live to."""
        if not self._settled:
            await self._work().settle()
            self._settled = True

    def _work(self) -> Memorising:
        return Memorising(self.archive, self._store.jobs, self._scope, self.owner)
