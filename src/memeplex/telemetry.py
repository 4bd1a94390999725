"""Everything that happens is one typed event in one stream.

The live view, the log and the token tables are subscribers of that stream; none is called by name.
Subscribers live in a context variable, so runs side by side in one process do not mix their events.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime

from memeplex.messages import Outcome, Turn, utc_now
from memeplex.usage import Ledger, Purpose, Usage

__all__ = [
    "ContextCut",
    "DayFinished",
    "DayStarted",
    "EmbeddingFailed",
    "Event",
    "FeedbackReceived",
    "FilePassedOver",
    "MemoryConsolidated",
    "MemoryUpdated",
    "MessageAnswered",
    "ModelCalled",
    "PromptRevised",
    "ReplyCut",
    "ReplyRetried",
    "RunFinished",
    "RunStarted",
    "Sink",
    "StateChanged",
    "TemplateMade",
    "TextCut",
    "TurnFinished",
    "TurnStarted",
    "emit",
    "subscribe",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events."""

    at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A run begins, or goes on after ``turns`` turns."""

    run: str
    team: str
    task: str
    agents: tuple[str, ...]
    turns: int = 0


@dataclass(frozen=True, kw_only=True)
class TurnStarted(Event):
    """An agent has the floor."""

    index: int
    speaker: str
    stage: str


@dataclass(frozen=True, kw_only=True)
class TurnFinished(Event):
    """A turn is over and durable."""

    turn: Turn


@dataclass(frozen=True, kw_only=True)
class MemoryUpdated(Event):
    """What became of one memory after one turn. ``status``: updated, unchanged, skipped or failed."""

    agent: str
    turn: int
    version: int
    status: str
    text: str
    cause: str = ""
    usage: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, kw_only=True)
class MemoryConsolidated(Event):
    """What became of the work on a lifelong memory after a task. ``status``: done or failed."""

    agent: str
    job: str
    status: str
    cause: str = ""
    usage: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, kw_only=True)
class FeedbackReceived(Event):
    """An agent got feedback. ``placed``: its conversation is in the agent's memory, or was made into memories."""

    agent: str
    sender: str
    conversation: str
    score: float
    placed: bool


@dataclass(frozen=True, kw_only=True)
class StateChanged(Event):
    """An agent has gone over to another state. ``cause`` is what it goes for, or what came of the state before."""

    agent: str
    state: str
    before: str
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class MessageAnswered(Event):
    """What became of a standard message. ``status``: answered, or waiting, where the model gave no answer."""

    agent: str
    sender: str
    conversation: str
    status: str
    text: str = ""
    usage: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, kw_only=True)
class DayStarted(Event):
    """A team begins a day, or goes on with one that was broken off. ``number`` counts from 1, up to ``of`` for now."""

    team: str
    number: int
    of: int
    tasks: int


@dataclass(frozen=True, kw_only=True)
class DayFinished(Event):
    """A day and its night are over, and what came of them is kept."""

    team: str
    number: int
    usage: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, kw_only=True)
class PromptRevised(Event):
    """What came of an agent's wish to improve a prompt. ``status``: adopted, proposed (a human decides), rejected or
    unusable; ``version`` is the number that was made, 0 if there is none."""

    agent: str
    prompt: str
    version: int
    status: str
    cause: str


@dataclass(frozen=True, kw_only=True)
class FilePassedOver(Event):
    """The text that a prompt began with is another one now. The version in use was made from the older one."""

    owner: str
    prompt: str
    version: int


@dataclass(frozen=True, kw_only=True)
class TemplateMade(Event):
    """An agent's model has written the template of its memory."""

    agent: str
    slots: tuple[str, ...]
    usage: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, kw_only=True)
class ContextCut(Event):
    """Something did not fit the context budget. ``what``: memory condensed, memory cut, turn cut, experience,
    window."""

    agent: str
    what: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class ReplyCut(Event):
    """A reply went on to what is not its agent's to say, and ends before it. Lengths are in characters."""

    agent: str
    reason: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class ModelCalled(Event):
    """One request to a model has been answered."""

    model: str
    purpose: Purpose
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class ReplyRetried(Event):
    """A reply was unusable or did not come, and is asked for again."""

    model: str
    purpose: Purpose
    reason: str


@dataclass(frozen=True, kw_only=True)
class TextCut(Event):
    """A text was longer than its embedder reads: its meaning is that of its beginning. Lengths are in characters."""

    embedder: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class EmbeddingFailed(Event):
    """An embedder gave no vectors, or none that the store can use: what was to be kept or found is so by its words."""

    embedder: str
    cause: str


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    """A run has ended."""

    run: str
    outcome: Outcome


Sink = Callable[[Event], None]
_sinks: ContextVar[tuple[Sink, ...]] = ContextVar("memeplex_sinks", default=())


def emit(event: Event) -> None:
    """Hand an event to all subscribers of this context."""
    for sink in _sinks.get():
        sink(event)


@contextmanager
def subscribe(sink: Sink) -> Iterator[None]:
    """Send every event emitted inside the block, and in tasks started there, to ``sink``."""
    token = _sinks.set((*_sinks.get(), sink))
    try:
        yield
    finally:
        _sinks.reset(token)
