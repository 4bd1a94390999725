"""How an agent answers a message: its prompts, what it recalls, the conversation, and whether to think once more.

Source: Memetic Agents, "Types of Memory" and "Thought Loop"; what it reads is put together by Algorithm 1 of Intrinsic
Memory Agents, as in a team's run: the opening of the conversation stands where the task does.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from memeplex.agents.agent import Agent
from memeplex.agents.ask import Ask
from memeplex.autonoms.thought_loop import PROMPT as THOUGHT_LOOP
from memeplex.autonoms.thought_loop import thought_loop
from memeplex.memory import MemoryScope, Recollection
from memeplex.memory.tiers import Said, Talk, TiersMemory
from memeplex.messages import Conversation, Outcome, StandardMessage, Task, Turn
from memeplex.models import Settings, derive_seed
from memeplex.prompts import Prompt
from memeplex.prompts.library import Prompts
from memeplex.storage import MemoryVersion
from memeplex.usage import Ledger, Purpose

__all__ = ["Answer", "Conversing", "Recalling"]

PROMPT = Prompt.load("memeplex.agents", "converse")
_READ = 3000
"""Characters of a message and of a draft that the thought loop is shown."""


@dataclass(frozen=True, slots=True)
class Recalling:
    """A memory that says one thing, whatever it is asked."""

    text: str = ""

    def open(self, scope: MemoryScope) -> "Recalling":
        """The same for everybody."""
        return self

    async def retrieve(self, cue: Conversation) -> Recollection:
        """What it says."""
        return Recollection(background=self.text)

    async def update(self, turn: Turn, conversation: Conversation) -> MemoryVersion | None:
        """Takes nothing in."""
        return None

    async def consolidate(self, outcome: Outcome) -> None:
        """Takes nothing in."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, what it adds to the conversation (the message, what was recalled, the answer), and what it cost."""

    text: str
    said: tuple[Said, ...]
    usage: Ledger


class Conversing:
    """One agent's way of answering. It thinks ``thoughts`` times about an answer at most: 1 is without the loop."""

    def __init__(
        self,
        agent: Agent,
        tiers: TiersMemory,
        *,
        prompts: Prompts,
        members: Collection[str] = (),
        thoughts: int = 3,
        seed: int = 0,
    ) -> None:
        self._agent = agent
        self._tiers = tiers
        self._prompts = prompts
        self._members = members
        self._thoughts = thoughts
        self._seed = seed

    async def answer(self, talk: Talk, message: StandardMessage) -> Answer:
        """The answer to a message that comes next in a conversation; nothing is kept.

        Raises:
            ModelError: there is none.
            ContextBudgetError: the opening of the conversation is longer than the context budget.
        """
        heard = Said(role="user", name=message.sender, content=message.content, created=message.created)
        recalled = await self._tiers.recall(message.content, conversation=talk.id)
        speaker = self._agent.with_memory(
            Recalling(recalled.text),
            prompts=self._prompts,
            members=(*self._members, message.sender),
            seed=derive_seed(self._seed, talk.id, talk.end),
        )
        conversation = _conversation([*talk.messages, heard], self._agent.name)
        turn = await self._thought(speaker, conversation, message)
        put_in = [Said(role="system", content=recalled.text, source="memory")] if recalled.text else []
        own = Said(role="assistant", name=self._agent.name, content=turn.content)
        return Answer(turn.content, (heard, *put_in, own), turn.usage)

    async def _thought(self, speaker: Agent, conversation: Conversation, message: StandardMessage) -> Turn:
        """The answer, thought over until nothing is missing or the bound is reached."""
        ask = Ask(speaker=speaker.name, instruction=PROMPT.section("answer", sender=message.sender))
        turn, usage = await speaker.respond(conversation, ask), Ledger()
        for number in range(1, self._thoughts):
            usage += turn.usage
            prompt = await self._prompts(THOUGHT_LOOP)
            seed = derive_seed(self._seed, message.id, number)
            thought = await thought_loop(
                self._agent.model,
                Settings(purpose=Purpose.THOUGHT, max_tokens=120, temperature=0.0, seed=seed),
                name=speaker.name,
                role=speaker.role,
                asked=message.content[:_READ],
                draft=turn.content[:_READ],
                prompt=prompt,
            )
            usage += Ledger({Purpose.THOUGHT: thought.usage})
            if not thought.output.goes_on:
                return turn.model_copy(update={"usage": usage})
            again = PROMPT.section(
                "again", sender=message.sender, draft=turn.content[:_READ], missing=thought.output.missing
            )
            turn = await speaker.respond(conversation, Ask(speaker=speaker.name, instruction=again))
        return turn.model_copy(update={"usage": usage + turn.usage})


def _conversation(messages: Sequence[Said], agent: str) -> Conversation:
    """What was said, as an agent's context is made of it; what had been put in is left out."""
    said = [one for one in messages if one.new]
    turns = [
        Turn(index=index, speaker=agent if one.role == "assistant" else one.name or one.role, content=_text(one))
        for index, one in enumerate(said[1:])
    ]
    return Conversation(Task(text=_text(said[0])), turns)


def _text(said: Said) -> str:
    return said.content if not said.tool_calls else said.line
