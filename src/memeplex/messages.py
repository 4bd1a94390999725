"""Plain typed data that travels between the floors: tasks, turns, conversations, outcomes."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from memeplex.usage import Ledger, Purpose, Usage

__all__ = [
    "Conversation",
    "FeedbackMessage",
    "LedgerField",
    "Message",
    "MessageKind",
    "Outcome",
    "SharedPrompt",
    "SocialMessage",
    "StandardMessage",
    "Task",
    "Turn",
    "TurnKind",
    "clean_text",
    "is_name",
    "one_line",
    "utc_now",
]


def utc_now() -> datetime:
    """The time, aware and in UTC."""
    return datetime.now(UTC)


def clean_text(text: str) -> str:
    """Text that every store and terminal can hold: NUL removed, lone surrogates replaced by U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_line(text: str, limit: int = 300) -> str:
    """``text`` on one line, cut to ``limit`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _ledger(value: object) -> object:
    if isinstance(value, Ledger) or not isinstance(value, dict):
        return value
    return Ledger({Purpose(purpose): Usage(**amounts) for purpose, amounts in value.items()})


def _plain(ledger: Ledger) -> dict[str, dict[str, int | float]]:
    return {p.value: {n: getattr(u, n) for n in Usage.__slots__} for p, u in ledger.items()}


LedgerField = Annotated[Ledger, BeforeValidator(_ledger), PlainSerializer(_plain)]
Text = Annotated[str, BeforeValidator(lambda value: clean_text(value) if isinstance(value, str) else value)]


def is_name(text: str) -> bool:
    """Whether a text can be an agent's name: one to 64 printable characters, no space, no bracket."""
    return 0 < len(text) <= 64 and text.isprintable() and not re.search(r"[\s\[\]]", text)


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")


class Task(_Data):
    """What a team is asked to do. ``data`` is whatever a benchmark or an application attaches."""

    text: Text
    data: dict[str, Any] = Field(default_factory=dict)


class TurnKind(StrEnum):
    """What a turn is. Only messages, flags and documents are part of what the others hear."""

    MESSAGE = "message"
    VOTE = "vote"
    FLAG = "flag"
    DOCUMENT = "document"


class Turn(_Data):
    """Who spoke, what, and what it cost. ``index`` counts from 0 within the run.

    ``data`` is the structured output, if one was asked for; a flag such as FINALIZE is in ``flag``,
    never searched for in ``content``. ``prompt`` names the versions of the prompts that it was asked with.
    """

    index: int
    speaker: str
    content: Text
    kind: TurnKind = TurnKind.MESSAGE
    stage: str = ""
    flag: str = ""
    data: Any = None
    model: str = ""
    prompt: str = ""
    usage: LedgerField = Field(default_factory=Ledger)
    created: datetime = Field(default_factory=utc_now)


class Conversation:
    """The public transcript: one task and the turns so far. It holds no agent's memory."""

    def __init__(self, task: Task, turns: Iterable[Turn] = ()) -> None:
        self.task = task
        self._turns = list(turns)

    @property
    def turns(self) -> Sequence[Turn]:
        """Every turn, votes included, in order."""
        return self._turns

    @property
    def heard(self) -> list[Turn]:
        """The turns that everybody hears: all but the votes, which are cast apart."""
        return [turn for turn in self._turns if turn.kind is not TurnKind.VOTE]

    def append(self, turn: Turn) -> None:
        """Add the next turn."""
        if turn.index != len(self._turns):
            raise ValueError(f"turn {turn.index} cannot follow {len(self._turns)} turns")
        self._turns.append(turn)

    def before(self, turn: Turn) -> "Conversation":
        """The conversation as it stood when that turn began."""
        return Conversation(self.task, self._turns[: turn.index])

    def by(self, speaker: str) -> list[Turn]:
        """What one agent said, in order."""
        return [turn for turn in self.heard if turn.speaker == speaker]


class Outcome(_Data):
    """How a task ended. ``status`` is one word (consensus, no_consensus, completed, stalled …)."""

    status: str
    success: bool | None = None
    reward: float | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class MessageKind(StrEnum):
    """What a message between agents is for."""

    STANDARD = "standard"
    FEEDBACK = "feedback"
    SOCIAL = "social"


class _Message(_Data):
    """What all messages have. ``conversation`` is the id that links them; ``id`` makes the same message twice one."""

    id: str = Field(default_factory=lambda: uuid4().hex, min_length=1, max_length=150)
    sender: Text
    recipient: Text
    conversation: Annotated[Text, Field(min_length=1, max_length=150)]
    created: datetime = Field(default_factory=utc_now)


class StandardMessage(_Message):
    """Something said to another agent. ``reply_to`` is the message that it answers; an answer asks for none."""

    kind: Literal[MessageKind.STANDARD] = MessageKind.STANDARD
    content: Annotated[Text, Field(min_length=1, max_length=2**20)]
    reply_to: str = ""


class FeedbackMessage(_Message):
    """What the sender thinks of an answer that it got in the conversation.

    ``score`` is as it was given, a number from 0 to 10 or a text with its scale, and checked by whoever gets it.
    ``about`` is the number of the answer within the conversation, where that is known.
    """

    kind: Literal[MessageKind.FEEDBACK] = MessageKind.FEEDBACK
    score: float | str
    comment: Text = ""
    about: int | None = None


class SharedPrompt(_Data):
    """A version of a prompt as another agent shows it: its editable texts by title, and how sure the owner is of it."""

    owner: Text
    name: Text
    number: int = Field(ge=1)
    texts: dict[str, Text]
    confidence: float = Field(default=0.0, ge=0, le=10)


class SocialMessage(_Message):
    """A part of an exchange of prompts: untrusted, whoever sends it.

    ``prompt`` is what is shown; ``score``, from 0 to 10, and ``content`` are what the sender thinks of the prompt that
    it was shown before.
    """

    kind: Literal[MessageKind.SOCIAL] = MessageKind.SOCIAL
    content: Annotated[Text, Field(max_length=2**20)] = ""
    prompt: SharedPrompt | None = None
    score: float | None = Field(default=None, ge=0, le=10)


Message = Annotated[StandardMessage | FeedbackMessage | SocialMessage, Field(discriminator="kind")]
"""A message of any kind, as it is kept and as it travels."""
