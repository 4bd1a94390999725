"""The protocol of a memory: retrieve, update, consolidate."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from memeplex.messages import Conversation, Outcome, Turn
from memeplex.models import Model
from memeplex.prompts import first_version
from memeplex.prompts.library import Prompts
from memeplex.storage import Job, MemoryVersion, Store
from memeplex.usage import Ledger

__all__ = ["Lasting", "Memory", "MemoryScope", "MemorySettings", "Recollection"]


@dataclass(frozen=True, slots=True)
class Recollection:
    """What a memory brings back. A block is what may be dropped whole when space runs out: a slot, a note.

    ``background`` is from earlier tasks, and stands before the task.
    """

    blocks: tuple[str, ...] = ()
    background: str = ""

    @property
    def text(self) -> str:
        """All blocks, one below the other."""
        return "\n".join(self.blocks)


class Memory(Protocol):
    """One agent's own memory in one run. Nobody else reads it."""

    async def retrieve(self, cue: Conversation) -> Recollection:
        """What the agent should have before it when it speaks next."""
        ...

    async def update(self, turn: Turn, conversation: Conversation) -> MemoryVersion | None:
        """Take in the agent's own turn; ``conversation`` is what had been said before it.

        A second call for the same turn changes nothing. A reply that cannot be used leaves the memory as it was and
        is reported in the version's status.

        Raises:
            ModelUnavailableError: the model could not be reached; the turn can be taken in later.
        """
        ...

    async def consolidate(self, outcome: Outcome) -> None:
        """Take in how the task ended; what that costs is told to the scope's ``spent``, call by call."""
        ...


@runtime_checkable
class Lasting(Protocol):
    """A memory beyond one run, whose work may be left over when a model fails or a process dies."""

    async def backlog(self) -> list[Job]:
        """What is left to do, the oldest first."""
        ...

    async def catch_up(self, *, again: bool = False, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """Do what is due, and with ``again`` what has failed too, until ``stop()``; gives what it cost."""
        ...


async def _told_nobody(ledger: Ledger) -> None:
    """Of a memory outside a run, nobody keeps the cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScope:
    """Whose memory it is, and what it works with.

    ``record`` makes a version durable; ``versions`` are those of an earlier process, in the order of turns. ``spent``
    keeps what a call has cost that belongs to no turn, as soon as it has been answered. ``members`` are all agents of
    the team with their roles, ``store`` is where the run is kept, if it is, and ``conversation`` is the transcript that
    all of them share, as far as it has come. ``prompts`` gives the version of an autonom's prompt that the agent works
    with, for the first one.
    """

    agent: str
    role: str
    model: Model
    record: Callable[[MemoryVersion], Awaitable[None]]
    versions: Sequence[MemoryVersion] = ()
    seed: int = 0
    run: str = ""
    team: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    store: Store | None = None
    conversation: Conversation | None = None
    spent: Callable[[Ledger], Awaitable[None]] = _told_nobody
    prompts: Prompts = first_version


class MemorySettings(Protocol):
    """One memory design with its arguments, before it belongs to anyone."""

    def open(self, scope: MemoryScope) -> Memory:
        """The memory of one agent in one run."""
        ...
