"""Plain typed data that travels between the floors: tasks, turns, conversations, outcomes."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from memeplex.usage import Ledger, Purpose, Usage

__all__ = [
    "Conversation",
    "LedgerField",
    "Outcome",
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
