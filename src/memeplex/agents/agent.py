"""An agent: a role, a memory of its own and a language model.

Source: Intrinsic Memory Agents, section 3.1: A_n = {R_n, M_n, LLM_n}; the models may be one and the same.
"""

import copy
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from memeplex.agents.ask import Ask
from memeplex.agents.context import LEAST, SHARE, Context, construct_context, printed, too_small, within
from memeplex.agents.own import LAYOUTS, Layout, Own, first_prompts, prompts_of
from memeplex.agents.reply import own_words
from memeplex.autonoms import cast_vote
from memeplex.errors import ContextBudgetError, ContextWindowError, EmptyReplyError, UnknownNameError, UserError
from memeplex.memory import Memory, MemoryScope, MemorySettings, Recollection, create_memory
from memeplex.messages import Conversation, Turn, TurnKind, is_name
from memeplex.models import ChatMessage, Completion, Model, Settings, derive_seed
from memeplex.models.structured import json_schema
from memeplex.prompts import Prompt
from memeplex.prompts.library import Prompts
from memeplex.storage import MemoryVersion, Store
from memeplex.telemetry import ContextCut, ReplyRetried, emit
from memeplex.usage import Ledger, Purpose, Usage

__all__ = ["Agent", "Layout"]

_SHRINK = 0.7
_MARGIN = 48
"""Tokens that the model's own chat format may add to a prompt."""


class Agent:
    """One member of a team. It alone sees its memory; ``enter`` gives it one for a run.

    ``max_tokens`` bounds a reply, ``context_tokens`` a prompt. ``layout`` is the order of printing: ``paper`` (task,
    memory, turns) or ``cached`` (task, turns, then role, memory and instruction, so that the conversation is read
    once for all agents); what fits is decided by Algorithm 1 in both.

    ``role`` and ``reasoning`` (how it is to think and answer) are version 1 of its own prompts, which it may improve.
    ``capabilities`` are what it is able to do, by name: printed as they are now, whatever its prompts have become.

    Raises:
        UserError: the name is none, or beside a reply of ``max_tokens`` the model's window has no room for a prompt.
    """

    def __init__(
        self,
        name: str,
        *,
        role: str,
        reasoning: str = "",
        capabilities: Mapping[str, str] | None = None,
        model: Model,
        memory: MemorySettings | None = None,
        max_tokens: int = 256,
        temperature: float | None = 0.7,
        context_tokens: int | None = None,
        layout: Layout = "cached",
    ) -> None:
        if not is_name(name):
            raise UserError(f"{name!a} is no name for an agent", remedy="no spaces, brackets or invisible characters")
        if layout not in LAYOUTS:
            raise UnknownNameError("layout", layout, tuple(LAYOUTS))
        for made, kind, maker in ((memory, "memory", "create_memory"), (model, "model", "create_model")):
            if isinstance(made, str):
                raise UserError(f"agent {name}: {made!r} is the name of a {kind}", remedy=f"{maker}({made!r})")
        self.name = name
        self.role = role
        self.reasoning = reasoning
        self.capabilities = dict(capabilities or {})
        self.model = model
        self.layout = layout
        self.max_tokens = max_tokens
        self.temperature = temperature
        # A quarter of the window for the reply, whatever its own bound: one budget, so one window, for all agents.
        reply = max(model.window // 4, max_tokens + _MARGIN)
        self.context_tokens = context_tokens or min(model.window - reply, 4096)
        if self.context_tokens <= 0:
            raise UserError(
                f"agent {name}: a reply of {max_tokens} tokens leaves no room for a prompt"
                f" in the window of {model.name}, which is {model.window}",
                remedy=f"lower max_tokens to {model.window // 2} or less, or set the model's window",
            )
        self.settings = memory or create_memory("intrinsic")
        self._prompts = prompts_of(name)
        self._own = Own.first(self.prompts, layout)
        self.memory: Memory = create_memory("none").open(self._scope(_forget, (), 0))
        self._seed = 0
        self._members: tuple[str, ...] = (name,)
        self._sizes: list[int] = []

    @property
    def prompts(self) -> dict[str, Prompt]:
        """Version 1 of its own prompts, by name."""
        return first_prompts(self.role, self.reasoning)

    def enter(
        self,
        *,
        record: Callable[[MemoryVersion], Awaitable[None]],
        versions: Sequence[MemoryVersion] = (),
        seed: int = 0,
        run: str = "",
        team: str = "",
        members: Mapping[str, str] | None = None,
        store: Store | None = None,
        conversation: Conversation | None = None,
        spent: Callable[[Ledger], Awaitable[None]] | None = None,
    ) -> "Agent":
        """This agent in one run: with a memory of its own, or with the one it had when the run was broken off.

        ``members`` are all agents with their roles; a reply in which this one goes on to speak for another is cut
        there. ``conversation`` is the transcript, which its memory may look back on when the task is over. ``spent``
        is told what each call has cost that its memory makes then.
        """
        prompts = prompts_of(self.name, team, store, conversation)
        scope = replace(self._scope(record, versions, seed), run=run, team=team, members=dict(members or {}))
        scope = replace(scope, store=store, conversation=conversation, spent=spent or scope.spent, prompts=prompts)
        return self.with_memory(self.settings.open(scope), prompts=prompts, members=scope.members, seed=seed)

    def with_memory(self, memory: Memory, *, prompts: Prompts, members: Collection[str] = (), seed: int = 0) -> "Agent":
        """This agent with what it remembers, and with the prompts that it may use."""
        entered = copy.copy(self)
        entered.memory, entered._prompts, entered._seed = memory, prompts, seed
        entered._members, entered._sizes = (self.name, *members), []
        return entered

    async def respond(self, conversation: Conversation, ask: Ask) -> Turn:
        """O(n, m) = L(C(n, m)), equation 2: one turn, not yet part of the conversation.

        Raises:
            ContextBudgetError: the task is longer than the context budget.
            ModelError: the model gave no usable answer, or could not be reached.
        """
        self._own = await Own.first(self.prompts, self.layout).chosen(self._prompts)
        if ask.kind is TurnKind.VOTE:
            return await self._vote(conversation, ask)
        recollection = await self.memory.retrieve(conversation)
        completion = await self._speak(conversation, recollection, ask, self._call_settings(conversation, ask, 0))
        usage, text = completion.usage, self._spoken(completion, conversation)
        said = {"", *(turn.content for turn in conversation.by(self.name)[-2:])}
        if ask.output is None and text in said:
            reason = f"{self.name} repeats {'itself' if text else 'its memory'}"
            emit(ReplyRetried(model=self.model.name, purpose=Purpose.ANSWER, reason=reason))
            again = self._call_settings(conversation, ask, 1)
            completion = await self._speak(conversation, recollection, ask, again)
            usage, text = usage + completion.usage, self._spoken(completion, conversation)
            if not text:
                error = EmptyReplyError(
                    f"{self.model.name} gave {self.name} nothing but its memory to say", remedy="use a stronger model"
                )
                error.usage = usage
                raise error
        return self._turn(conversation, ask, text, _plain(completion.output), usage)

    async def remember(self, turn: Turn, conversation: Conversation) -> None:
        """Update this agent's own memory from its own turn; nobody else's changes (equation 3)."""
        await self.memory.update(turn, conversation)

    async def _vote(self, conversation: Conversation, ask: Ask) -> Turn:
        settings = replace(self._call_settings(conversation, ask, 0), purpose=Purpose.VOTE, max_tokens=96)
        fixed = "\n".join((self._own.role, *(f"- {text}" for text in ask.criteria)))
        room = self.context_tokens - await self.model.count(fixed) - 4 * _MARGIN
        completion = await cast_vote(
            self.model,
            replace(settings, temperature=0.0),
            proposal=await within(ask.proposal, room, self.model.count),
            criteria=ask.criteria,
            name=self.name,
            role=self._own.role,
            prompt=self._own.vote,
        )
        vote = completion.output
        text = f"{vote.vote}: {vote.reason}"
        return self._turn(conversation, replace(ask, flag=vote.vote), text, _plain(vote), completion.usage)

    async def _speak(
        self, conversation: Conversation, recollection: Recollection, ask: Ask, settings: Settings
    ) -> Completion[Any]:
        """Ask the model; a prompt that its endpoint calls too long is built again, smaller than it was."""
        budget, refused = self.context_tokens, list[ContextWindowError]()
        while True:
            try:
                context = await self._context(conversation, recollection, ask, budget)
            except ContextBudgetError as error:
                raise too_small(error, refused, agent=self.name, model=self.model, reply=self.max_tokens) from None
            memory = context.memory
            messages = self._messages(
                conversation, ask, background=memory.background, memory=memory.text, turns=context.turns
            )
            try:
                return await self.model.generate(messages, ask.output, settings)
            except ContextWindowError as error:
                refused.append(error)
                if len(refused) > 3:
                    raise
                size = await self.model.count("\n".join(message["content"] for message in messages))
                before, budget = budget, int(min(budget, size) * _SHRINK)
                emit(ContextCut(agent=self.name, what="window", before=before, after=budget))

    async def _context(self, conversation: Conversation, recollection: Recollection, ask: Ask, budget: int) -> Context:
        heard = conversation.heard
        for turn in heard[len(self._sizes) :]:
            self._sizes.append(await self.model.count(printed(turn)))
        fixed = await self._fixed(conversation, recollection.background, ask)
        if recollection.background and budget - fixed < LEAST:
            # The task comes first: what earlier tasks have to say must not keep it out.
            bare = await self._fixed(conversation, "", ask)
            emit(ContextCut(agent=self.name, what="experience", before=fixed - bare, after=0))
            recollection, fixed = Recollection(recollection.blocks), bare
        return await construct_context(
            agent=self.name,
            fixed=fixed,
            recollection=recollection,
            turns=heard,
            sizes=self._sizes,
            budget=budget,
            stepped=await self._step_room(conversation, budget),
            count=self.model.count,
        )

    async def _fixed(self, conversation: Conversation, background: str, ask: Ask) -> int:
        """Tokens of all but memory and turns."""
        nothing = [{"speaker": "", "content": ""}]
        bare = self._messages(conversation, ask, background=background, memory=" ", turns=nothing)
        schema = json.dumps(json_schema(ask.output)) if ask.output else ""
        return _MARGIN + await self.model.count("\n".join([*(message["content"] for message in bare), schema]))

    def _messages(self, conversation: Conversation, ask: Ask, **more: object) -> list[ChatMessage]:
        return self._own.page.messages(
            name=self.name,
            role=self._own.role,
            reasoning=self._own.thinking,
            capabilities=self.capabilities,
            task=conversation.task.text,
            instruction=ask.instruction,
            **more,
        )

    async def _step_room(self, conversation: Conversation, budget: int) -> int | None:
        """The size of a window that moves in steps. It depends on task and budget alone, not on who speaks."""
        if self.layout == "paper":
            return None
        return int((budget - await self.model.count(conversation.task.text)) * SHARE)

    def _call_settings(self, conversation: Conversation, ask: Ask, attempt: int) -> Settings:
        temperature = self.temperature
        if attempt and temperature is not None:
            temperature = min(temperature + 0.3, 1.5)
        return Settings(
            max_tokens=ask.max_tokens or self.max_tokens,
            temperature=temperature,
            seed=derive_seed(self._seed, len(conversation.turns), self.name, attempt),
        )

    def _spoken(self, completion: Completion[Any], conversation: Conversation) -> str:
        if completion.output is not None:
            return json.dumps(_plain(completion.output), ensure_ascii=False)
        names = {*self._members, *(turn.speaker for turn in conversation.turns)}
        return own_words(completion.text, names=names, agent=self.name)

    def _turn(self, conversation: Conversation, ask: Ask, text: str, data: Any, usage: Usage) -> Turn:
        purpose = Purpose.VOTE if ask.kind is TurnKind.VOTE else Purpose.ANSWER
        return Turn(
            index=len(conversation.turns),
            speaker=self.name,
            content=text,
            kind=ask.kind,
            stage=ask.stage,
            flag=ask.flag,
            data=data,
            model=self.model.name,
            prompt=self._own.label(ask.kind),
            usage=ask.usage + Ledger({purpose: usage}),
        )

    def _scope(
        self,
        record: Callable[[MemoryVersion], Awaitable[None]],
        versions: Sequence[MemoryVersion],
        seed: int,
    ) -> MemoryScope:
        own = [version for version in versions if version.agent == self.name]
        return MemoryScope(
            agent=self.name,
            role=self.role,
            model=self.model,
            record=record,
            versions=own,
            seed=derive_seed(seed, "memory", self.name),
        )


async def _forget(version: MemoryVersion) -> None:
    """An agent outside a run keeps nothing."""


def _plain(output: BaseModel | None) -> Any:
    return None if output is None else output.model_dump(mode="json")
