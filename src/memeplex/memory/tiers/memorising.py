"""Memorising: conversations and the feedback on them become atomic memories and reflections, and are then removed.

Source: Memetic Agents, "Memory Consolidation", "Reflections" and "Message Persistence".

Each conversation is one job. What is made of it is kept in one transaction, together with a receipt that lists its
sources; only then the sources are removed. So whenever a process dies, the conversation is either still in short-term
memory, and nothing was made of it, or there is a receipt: then all was made of it, and what is left of the sources is
removed first thing. How often the model is asked, and whether it says the same again, makes no difference.
"""

from collections.abc import Callable, Iterable

from pydantic import BaseModel, ConfigDict

from memeplex.autonoms.extract_memories import PROMPT as EXTRACTING
from memeplex.autonoms.extract_memories import AtomicMemory, extract_memories
from memeplex.autonoms.reflect_on_feedback import PROMPT as ON_FEEDBACK
from memeplex.autonoms.reflect_on_feedback import reflect_on_feedback
from memeplex.autonoms.reflect_on_memories import PROMPT as ON_MEMORIES
from memeplex.autonoms.reflect_on_memories import reflect_on_memories
from memeplex.memory.archive import Archive
from memeplex.memory.base import MemoryScope
from memeplex.memory.notes import words
from memeplex.memory.tiers import atomic, reflections
from memeplex.memory.tiers.evidence import SOCIAL_TRUST, TRUST, Evidence, newest, parts, repeats
from memeplex.memory.tiers.feedback import FEEDBACK
from memeplex.memory.tiers.injected import kept_elsewhere, recalled
from memeplex.memory.tiers.reflections import CATEGORIES, DrawnReflection, DrawnReflections
from memeplex.memory.tiers.short_term import all_of, by_conversation
from memeplex.memory.topology import joined
from memeplex.memory.work import Costs, Work
from memeplex.models import Settings
from memeplex.storage import Job, Jobs, Provenance, Record
from memeplex.usage import Ledger, Purpose

__all__ = ["MEMORISE", "MEMORISED", "Memorising", "Receipt", "receipts"]

MEMORISE = "memorise"
"""The kind of these jobs."""
MEMORISED = "memorised"
"""The kind of the receipts."""

_ROOM = 6000
"""Estimated tokens of a conversation that one call reads at most; half the model's window, if that is less."""
_BEGINNING = 1500
"""The same for reflections, which are drawn from the newest part."""

_SPEAKER = frozenset({"i", "me", "myself"})
"""How a model names whoever speaks, where it copies instead of naming."""


class Receipt(BaseModel):
    """What a record of kind ``memorised`` holds: what was made of which part of a conversation.

    ``end`` is the number of messages that the conversation had by then; 0 where there was only feedback.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    conversation: str
    end: int
    sources: tuple[str, ...]
    memories: tuple[str, ...]
    reflections: int


async def receipts(archive: Archive, owner: str, conversation: str) -> list[Receipt]:
    """What has been made of a conversation so far, oldest first; one for each time that it was memorised."""
    found: list[Receipt] = []
    while record := await archive.records.by_key(owner, MEMORISED, joined(conversation, str(len(found)))):
        found.append(Receipt.model_validate(record.payload))
    return found


class Memorising:
    """The work of turning one owner's conversations into memories."""

    def __init__(self, archive: Archive, jobs: Jobs, scope: MemoryScope, owner: str) -> None:
        self._archive = archive
        self._scope = scope
        self._owner = owner
        name = joined(scope.run, scope.agent)
        self._work = Work(jobs, [MEMORISE], owner=owner, name=name, agent=scope.agent, spent=scope.spent)

    async def enqueue(self) -> None:
        """Ask for every conversation that is in short-term memory, or that there is feedback on."""
        for conversation, evidence in (await self._evidence()).items():
            # Its first source stands for it until it is removed, whatever else comes in meanwhile.
            key = joined(conversation, min(evidence.sources))
            payload = {"conversation": conversation}
            await self._work.jobs.enqueue(Job(kind=MEMORISE, owner=self._owner, key=key, payload=payload))

    async def left(self) -> list[Job]:
        """What is not done, the oldest first."""
        return await self._work.left()

    async def drain(self, *, again: bool, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """As ``Work.drain``. Where the model fails, all stays as it was."""
        return await self._work.drain(self._memorise, again=again, stop=stop)

    async def settle(self) -> None:
        """Finish, without a model, what a process had stored and did not live to remove from short-term memory."""
        for job in await self.left():
            for receipt in (await receipts(self._archive, self._owner, job.payload["conversation"]))[-1:]:
                await self._conclude(receipt)

    async def _evidence(self) -> dict[str, Evidence]:
        chunks = await by_conversation(self._archive, self._owner)
        given: dict[str, list[Record]] = {}
        for record in await all_of(self._archive, self._owner, [FEEDBACK]):
            given.setdefault(record.payload["conversation"], []).append(record)
        names = dict.fromkeys([*chunks, *given])
        return {name: Evidence.of(name, chunks.get(name, ()), given.get(name, ())) for name in names}

    async def _memorise(self, job: Job, costs: Costs) -> str:
        conversation = str(job.payload["conversation"])
        past = await receipts(self._archive, self._owner, conversation)
        for receipt in past[-1:]:
            await self._conclude(receipt)
        evidence = (await self._evidence()).get(conversation)
        if evidence is None:
            return "nothing left to do"
        batch = joined(conversation, str(len(past)))
        known, drawn = await self._made(evidence, batch, job, costs)
        held = await atomic.known(self._archive, self._owner)
        kept, repeated = atomic.place(known, held)
        receipt = Receipt(
            conversation=conversation,
            end=evidence.end,
            sources=evidence.sources,
            memories=tuple(record.id for record in kept),
            reflections=len(drawn),
        )
        if not await self._work.hold(job) or not await self._there(receipt.sources):
            return "it has gone to another worker, or was forgotten"
        for present, record in repeated:
            await atomic.confirm(self._archive, present, record, actor=self._scope.agent)
        await self._archive.keep(
            [*kept, *drawn, self._receipt_record(receipt, batch)],
            actor=self._scope.agent,
            cause=f"memorised {conversation}",
        )
        await self._conclude(receipt)
        return f"{len(kept)} memories, {len(drawn)} reflections"

    async def _there(self, sources: tuple[str, ...]) -> bool:
        return len(await self._archive.records.get(sources)) == len(sources)

    async def _conclude(self, receipt: Receipt) -> None:
        """What follows from a receipt. Once more changes nothing."""
        made = await self._archive.records.get(receipt.memories)
        await atomic.close(self._archive, made, actor=self._scope.agent)
        cause = f"memorised {receipt.conversation}"
        await self._archive.records.forget(self._owner, receipt.sources, actor=self._scope.agent, cause=cause)

    def _receipt_record(self, receipt: Receipt, batch: str) -> Record:
        told = f"{len(receipt.memories)} memories and {receipt.reflections} reflections of {receipt.conversation}"
        return Record(
            owner=self._owner,
            kind=MEMORISED,
            text=told,
            key=batch,
            payload=receipt.model_dump(mode="json"),
            provenance=Provenance(run=receipt.conversation, author=self._scope.agent),
        )

    async def _made(self, evidence: Evidence, batch: str, job: Job, costs: Costs) -> tuple[list[Record], list[Record]]:
        """The records of what the model makes of a conversation: atomic memories, and reflections."""
        given = await recalled(self._archive, self._owner, evidence.conversation)
        told = [
            self._scope.role,
            *[(await self._scope.prompts(prompt)).text for prompt in (EXTRACTING, ON_MEMORIES, ON_FEEDBACK)],
            *(said.content for said in evidence.put_in),
            given.text if given else "",
        ]
        elsewhere = await kept_elsewhere(self._archive, self._scope, self._owner, evidence.conversation)
        extracted, model = await self._extract(evidence, job, costs)
        news = [memory for memory in extracted if not repeats(memory.statement, elsewhere)]
        records = (self._memory(memory, evidence, told, batch, model) for memory in news)
        known = [record for record in records if record is not None]
        drawn = await self._reflect(evidence, [record.payload["statement"] for record in known], job, costs)
        # A small model writes one lesson under several categories.
        lessons = {
            one.lesson: (one, name) for one, name in reversed(drawn) if not repeats(one.lesson, [*told, *elsewhere])
        }
        return known, [
            reflections.record_of(
                reflection,
                owner=self._owner,
                batch=batch,
                provenance=Provenance(run=evidence.conversation, author=self._scope.agent, model=name),
                trust=SOCIAL_TRUST if evidence.social else TRUST,
                social=evidence.social,
            )
            for reflection, name in reversed(lessons.values())
        ]

    def _memory(
        self, memory: AtomicMemory, evidence: Evidence, told: Iterable[str], batch: str, model: str
    ) -> Record | None:
        """The record of a memory; none where nobody said it, or where it only repeats what had been put in.

        What was put in is news once somebody else says it in full.
        """
        witness = evidence.witness(memory.statement)
        if witness is None:
            return None
        by_others = witness.speaker != self._scope.agent and words(memory.statement) <= words(witness.text)
        if not by_others and repeats(memory.statement, told):
            return None
        turns = () if witness.turn is None else (witness.turn,)
        if atomic.plain(memory.subject) in _SPEAKER:
            # Else what two of them say of themselves would contradict each other.
            memory = memory.model_copy(update={"subject": witness.speaker[:120]})
        return atomic.record_of(
            memory,
            owner=self._owner,
            batch=batch,
            provenance=Provenance(run=evidence.conversation, turns=turns, author=witness.speaker, model=model),
            trust=witness.trust,
            social=evidence.social,
            at=witness.at,
        )

    def _settings(self, purpose: Purpose, max_tokens: int) -> Settings:
        return Settings(purpose=purpose, max_tokens=max_tokens, temperature=0.0, seed=self._scope.seed)

    async def _extract(self, evidence: Evidence, job: Job, costs: Costs) -> tuple[list[AtomicMemory], str]:
        found: list[AtomicMemory] = []
        name = self._scope.model.name
        read = parts(evidence.lines, min(_ROOM, self._scope.model.window // 2)) if evidence.lines else []
        for number, lines in enumerate(read, 1):
            await self._work.hold(job)
            call = extract_memories(
                self._scope.model,
                self._settings(Purpose.EXTRACTION, 900),
                lines=lines,
                feedback=newest(evidence.comments, 500) if number == len(read) else (),
                social=evidence.social,
                prompt=await self._scope.prompts(EXTRACTING),
            )
            completion = await costs.of(Purpose.EXTRACTION, call)
            found += completion.output.memories
            name = completion.model
        return found, name

    async def _reflect(
        self, evidence: Evidence, memories: list[str], job: Job, costs: Costs
    ) -> list[tuple[DrawnReflection, str]]:
        found: list[tuple[DrawnReflection, str]] = []
        scope, settings = self._scope, self._settings(Purpose.REFLECTION, 500)
        lines = newest(
            evidence.compared if evidence.social else evidence.lines, min(_BEGINNING, scope.model.window // 4)
        )
        if lines:
            await self._work.hold(job)
            call = reflect_on_memories(
                scope.model,
                DrawnReflections,
                settings,
                agent=scope.agent,
                role=scope.role,
                lines=lines,
                memories=newest(memories, 500),
                categories=CATEGORIES,
                social=evidence.social,
                prompt=await self._scope.prompts(ON_MEMORIES),
            )
            completion = await costs.of(Purpose.REFLECTION, call)
            found += [(one, completion.model) for one in completion.output.reflections]
        if evidence.feedback:
            await self._work.hold(job)
            call = reflect_on_feedback(
                scope.model,
                DrawnReflections,
                settings,
                agent=scope.agent,
                role=scope.role,
                lines=lines,
                feedback=newest(evidence.comments, 500),
                categories=CATEGORIES,
                prompt=await self._scope.prompts(ON_FEEDBACK),
            )
            completion = await costs.of(Purpose.REFLECTION, call)
            found += [(one, completion.model) for one in completion.output.reflections]
        return found
