"""Working memory: the conversations that an agent is having, by their ids, in this process alone.

Source: Memetic Agents, "Types of Memory": new messages are added to the end of the conversation, each conversation
has its own id, and all is gone when the agent shuts down; what is to last is put into short-term memory before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from memeplex.messages import Conversation, Text, Turn, utc_now

__all__ = ["Said", "Source", "Talk", "ToolCall", "heard"]

Source = Literal["said", "memory", "prompt", "example"]
"""Where a message comes from: somebody said it, or it was put in from a memory, a prompt, or examples."""


class _Exact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Exact):
    """A call that a message asks for; ``arguments`` as the model wrote them."""

    id: Text
    name: Text
    arguments: Text = ""


class Said(_Exact):
    """One message of a conversation, with all that a model's native format has.

    ``source`` marks what was put in, which is never taken for news. Text is any Unicode but NUL and lone surrogates.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: Annotated[Text, Field(max_length=2**20)] = ""
    name: Text = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text = ""
    source: Source = "said"
    created: datetime = Field(default_factory=utc_now)

    @property
    def new(self) -> bool:
        """Whether somebody said it in this conversation: what a system prompt says is put in, too."""
        return self.source == "said" and self.role != "system"

    @property
    def line(self) -> str:
        """The message as it is shown to a model."""
        calls = (f"→ {call.name}({call.arguments})" for call in self.tool_calls)
        return "\n".join([f"[{self.name or self.role}] {self.content}".rstrip(), *calls])


@dataclass(slots=True)
class Talk:
    """One conversation in working memory.

    ``start`` messages of it have been turned into long-term memories and are not here; of those that are, the first
    ``stored`` are in short-term memory as well. ``social``: the agents exchanged prompts.
    """

    id: str
    social: bool = False
    start: int = 0
    stored: int = 0
    messages: list[Said] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The messages that there have been in all."""
        return self.start + len(self.messages)

    @property
    def fresh(self) -> Sequence[Said]:
        """What short-term memory does not have yet."""
        return self.messages[self.stored :]


def heard(conversation: Conversation, agent: str, *turns: Turn) -> list[Said]:
    """A team's conversation, and ``turns`` that follow, as one agent has it: the task, then what everybody heard."""
    told = [*conversation.heard, *turns]
    first = told[0].created if told else utc_now()
    return [Said(role="user", content=conversation.task.text, created=first), *(_said(turn, agent) for turn in told)]


def _said(turn: Turn, agent: str) -> Said:
    role: Literal["assistant", "user"] = "assistant" if turn.speaker == agent else "user"
    return Said(role=role, name=turn.speaker, content=turn.content, created=turn.created)
