"""The protocol of a memory: retrieve, update, consolidate."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from memeplex.messages import Conversation, Outcome, Turn
from memeplex.models import Model
from memeplex.prompts import first_version
from memeplex.prompts.library import Prompts
from memeplex.storage import MemoryVersion, Store
from memeplex.usage import Ledger

__all__ = ["Memory", "MemoryScope", "MemorySettings", "Recollection"]


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

    async def consolidate(self, outcome: Outcome) -> Ledger:
        """Take in how the task ended; gives what that cost."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScope:
    """Whose memory it is, and what it works with.

    ``record`` makes a version durable; ``versions`` are those of an earlier process, in the order of turns. ``members``
    are all agents of the team with their roles, ``store`` is where the run is kept, if it is, and ``conversation`` is
    the transcript that all of them share, as far as it has come. ``prompts`` gives the version of an autonom's
    prompt that the agent works with, for the first one.
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
    prompts: Prompts = first_version


class MemorySettings(Protocol):
    """One memory design with its arguments, before it belongs to anyone."""

    def open(self, scope: MemoryScope) -> Memory:
        """The memory of one agent in one run."""
        ...
