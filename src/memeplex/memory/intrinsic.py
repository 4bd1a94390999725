"""Intrinsic memory: after its turn, the speaker's structured memory is updated from its own output.

Source: Intrinsic Memory Agents, section 3, equations 1 to 3, Figure 8 and appendix B. The paper's combination is
``paper()``: rewrite, always, own. A memory updated from own output never holds a fact that its agent did not state
itself; ``source="heard"`` also takes in what the others said since the agent's last turn.
"""

import re
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memeplex.autonoms import make_template, patch_memory, rewrite_memory, take_notes
from memeplex.autonoms.base import first_prompt
from memeplex.errors import ContextWindowError, EmptyReplyError, RefusalError, StructuredOutputError
from memeplex.memory.base import MemoryScope, Recollection
from memeplex.memory.notes import condense, merge, novelty, supported
from memeplex.memory.template import GENERIC, NOTES, Content, Mode, Slot, Template
from memeplex.messages import Conversation, Outcome, Turn
from memeplex.models import Completion, Settings, derive_seed, is_small
from memeplex.models.tokens import estimate
from memeplex.storage import MemoryVersion
from memeplex.telemetry import MemoryUpdated, TemplateMade, emit
from memeplex.usage import Ledger, Purpose

__all__ = ["IntrinsicMemory", "IntrinsicSettings", "paper"]

_UNUSABLE = (ContextWindowError, EmptyReplyError, RefusalError, StructuredOutputError)
_TAG = re.compile(r"<\s*/?\s*memory\s*>", re.IGNORECASE)
_HEARD_TOKENS = 1000
"""Estimated tokens of what others said that one update takes in at most."""


class IntrinsicSettings(BaseModel):
    """The arguments of an intrinsic memory.

    ``mode``: ``rewrite`` (the paper), ``patch`` (changed slots only) or ``notes`` (append; merged and condensed by
    code). ``policy``: ``always`` (the paper), ``every`` k-th own turn, or ``when_novel`` (skip when less than
    ``novelty`` of the output's key terms are new). ``auto`` chooses by the model's size. ``max_tokens`` caps the
    memory, in estimated tokens. ``template``: ``generic``, ``generated`` by the agent's model, or ``manual``, which
    ``slots`` imply.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["auto", "rewrite", "patch", "notes"] = "auto"
    policy: Literal["auto", "always", "every", "when_novel"] = "auto"
    every: int = Field(default=2, ge=1)
    novelty: float = Field(default=0.4, ge=0, le=1)
    source: Literal["own", "heard"] = "own"
    template: Literal["generic", "generated", "manual"] = "generic"
    slots: tuple[Slot, ...] = ()
    max_tokens: int = Field(default=300, ge=20)

    @model_validator(mode="before")
    @classmethod
    def _slots_are_a_template(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("slots") and "template" not in data:
            return {**data, "template": "manual"}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> "IntrinsicSettings":
        if (self.template == "manual") != bool(self.slots):
            raise ValueError("the template manual and slots go together: one was given without the other")
        if self.slots:
            Template(slots=self.slots)
        return self

    def open(self, scope: MemoryScope) -> "IntrinsicMemory":
        """The memory of one agent, with the versions it had in an earlier process."""
        return IntrinsicMemory(self, scope)


def paper(**arguments: Any) -> IntrinsicSettings:
    """The paper's combination: the memory is rewritten after every turn, from the agent's own output.

    ``arguments`` are those that the paper varies, such as ``template``.
    """
    return IntrinsicSettings(mode="rewrite", policy="always", source="own", **arguments)


class IntrinsicMemory:
    """One agent's memory in one run. ``versions`` are all M(n, m) with their causes."""

    def __init__(self, settings: IntrinsicSettings, scope: MemoryScope) -> None:
        # A small model keeps more by taking notes than by rewriting (docs/benchmarks.md).
        best: Mode = "notes" if is_small(scope.model.billions) else "rewrite"
        self.mode: Mode = best if settings.mode == "auto" else settings.mode
        self.policy = settings.policy if settings.policy != "auto" else "when_novel"
        self.versions = list(scope.versions)
        self._settings = settings
        self._scope = scope
        self._template = GENERIC
        if settings.slots:
            self._template = Template(slots=settings.slots)

    @property
    def content(self) -> Content:
        """What the memory now holds, by slot."""
        return self.versions[-1].content if self.versions and self.versions[-1].turn >= 0 else {}

    async def retrieve(self, cue: Conversation) -> Recollection:
        """The whole memory, slot by slot."""
        template = await self._prepared(cue)
        return Recollection(template.blocks(self.content))

    async def update(self, turn: Turn, conversation: Conversation) -> MemoryVersion:
        """M(n, m) = f(M(n, m-1), O(n, m)), equation 3, kept as a version whatever becomes of it."""
        for version in self.versions:
            if version.turn == turn.index:
                return version
        template = await self._prepared(conversation)
        source = self._source(turn, conversation)
        if cause := self._needless(turn, source, conversation):
            return await self._keep(turn, "skipped", self.content, cause, Ledger())
        ledger, cause = Ledger(), ""
        for attempt in (1, 2):
            try:
                completion = await self._ask(template, source, derive_seed(self._scope.seed, turn.index, attempt))
            except _UNUSABLE as error:
                ledger += Ledger({Purpose.MEMORY_UPDATE: error.usage})
                cause = str(error)
                continue
            ledger += Ledger({Purpose.MEMORY_UPDATE: completion.usage})
            content = self._merged(template, completion, source)
            if content is not None:
                same = content == self.content
                return await self._keep(turn, "unchanged" if same else "updated", content, cause, ledger)
            cause = "the reply held nothing that the message says"
        return await self._keep(turn, "failed", self.content, cause, ledger)

    async def consolidate(self, outcome: Outcome) -> None:
        """Does nothing: an intrinsic memory lives as long as its conversation."""

    def _source(self, turn: Turn, conversation: Conversation) -> str:
        if self._settings.source == "own":
            return turn.content
        own = conversation.by(turn.speaker)
        since = [t.content for t in conversation.heard if not own or t.index > own[-1].index]
        # The newest that fit: an agent that seldom speaks must not be given more than its model can read.
        while len(since) > 1 and estimate("\n".join(since)) > _HEARD_TOKENS:
            del since[0]
        return "\n".join((*since, turn.content))

    def _needless(self, turn: Turn, source: str, conversation: Conversation) -> str:
        """Why this update is left out; empty when it is due. The first one is always due."""
        if not self.content or self.policy == "always":
            return ""
        own = conversation.by(turn.speaker)
        if self.policy == "every":
            due = (len(own) + 1) % self._settings.every == 0
            return "" if due else f"updated every {self._settings.every} own turns"
        known = [conversation.task.text, *(t.content for t in own), *self._template.blocks(self.content)]
        share = novelty(source, known)
        return "" if share >= self._settings.novelty else f"only {share:.0%} of its key terms are new"

    async def _ask(self, template: Template, source: str, seed: int) -> Completion[BaseModel] | Completion[None]:
        scope, slots = self._scope, template.slots if template.named else ()
        settings = Settings(purpose=Purpose.MEMORY_UPDATE, max_tokens=160, temperature=0.0, seed=seed)
        output = template.output(self.mode)
        if self.mode == "notes" and output is not None:
            return await take_notes(
                scope.model,
                output,
                settings,
                role=scope.role,
                output=source,
                slots=slots,
                limit=NOTES,
                prompt=await scope.prompts(first_prompt("take_notes")),
            )
        longer = replace(settings, max_tokens=self._settings.max_tokens * 2)
        memory = Recollection(template.blocks(self.content)).text
        if self.mode == "patch" and output is not None:
            return await patch_memory(
                scope.model,
                output,
                longer,
                role=scope.role,
                memory=memory,
                output=source,
                slots=template.slots,
                prompt=await scope.prompts(first_prompt("patch_memory")),
            )
        prompt = await scope.prompts(first_prompt("rewrite_memory"))
        return await rewrite_memory(
            scope.model, output, longer, role=scope.role, memory=memory, output=source, slots=slots, prompt=prompt
        )

    def _merged(
        self, template: Template, completion: Completion[BaseModel] | Completion[None], source: str
    ) -> Content | None:
        """The new content; ``None`` when the reply is of no use. An empty patch is of use: nothing has changed."""
        if completion.output is None:
            # Models like to give the block back in which they were shown the memory.
            text = _TAG.sub("", completion.text).strip()
            replied: Content = {template.slots[0].name: [text]} if text else {}
        else:
            replied = template.read(completion.output)
        if self.mode == "rewrite":
            if not replied:
                return None
            content = replied
        elif self.mode == "patch":
            content = {**self.content, **replied}
        else:
            held = self.content
            good = {name: [n for n in notes if supported(n, source)] for name, notes in replied.items()}
            if not any(good.values()):
                return None
            content = {s.name: merge(held.get(s.name, []), good.get(s.name, [])) for s in template.slots}
        return self._capped({name: notes for name, notes in content.items() if notes})

    def _capped(self, content: Content) -> Content:
        """Within ``max_tokens``: every slot is condensed to its share."""
        if _fits(content, self._settings.max_tokens):
            return content
        share = self._settings.max_tokens // len(content) - 2 * (len(content) > 1)
        return {name: condense(notes, share) for name, notes in content.items()}

    async def _prepared(self, cue: Conversation) -> Template:
        """The template, written by the agent's model before its first turn if it is to be generated."""
        if self._settings.template != "generated" or self._template is not GENERIC:
            return self._template
        for version in self.versions:
            if version.turn < 0:
                slots = tuple(Slot(name=n, description=d[0]) for n, d in version.content.items())
                self._template = Template(slots=slots or GENERIC.slots, named=bool(slots))
                return self._template
        scope = self._scope
        settings = Settings(
            purpose=Purpose.TEMPLATE,
            max_tokens=400,
            temperature=0.0,
            seed=derive_seed(scope.seed, "template"),
        )
        status, cause = "updated", "template written by the agent's model"
        try:
            made = await make_template(
                scope.model,
                settings,
                task=cue.task.text,
                role=scope.role,
                prompt=await scope.prompts(first_prompt("make_template")),
            )
            spent, template = made.usage, Template.proposed(made.output)
        except _UNUSABLE as error:
            status, cause, spent, template = "failed", f"generic template: {error}", error.usage, GENERIC
        version = MemoryVersion(
            agent=scope.agent,
            turn=-1,
            version=0,
            status=status,
            content={slot.name: [slot.description] for slot in template.slots if template.named},
            cause=cause,
            model=scope.model.name,
            usage=Ledger({Purpose.TEMPLATE: spent}),
        )
        await scope.record(version)
        self.versions.append(version)
        emit(TemplateMade(agent=scope.agent, slots=tuple(version.content), usage=version.usage))
        self._template = template
        return template

    async def _keep(self, turn: Turn, status: str, content: Content, cause: str, usage: Ledger) -> MemoryVersion:
        last = self.versions[-1].version if self.versions else 0
        version = MemoryVersion(
            agent=self._scope.agent,
            turn=turn.index,
            version=last + (status == "updated"),
            status=status,
            content=content,
            cause=cause,
            model=self._scope.model.name,
            usage=usage,
        )
        await self._scope.record(version)
        self.versions.append(version)
        text = Recollection(self._template.blocks(content)).text
        emit(
            MemoryUpdated(
                agent=version.agent,
                turn=turn.index,
                version=version.version,
                status=status,
                text=text,
                cause=cause,
                usage=usage,
            )
        )
        return version


def _fits(content: Content, budget: int) -> bool:
    everything = [note for notes in content.values() for note in notes]
    return condense(everything, budget) == everything
