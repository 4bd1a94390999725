"""Several memories of one agent, used as one: what each brings back stands side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from memeplex.memory.base import Memory, MemoryScope, MemorySettings, Recollection
from memeplex.messages import Conversation, Outcome, Turn
from memeplex.storage import MemoryVersion
from memeplex.usage import Ledger

__all__ = ["CombinedMemory", "CombinedSettings"]


@dataclass(frozen=True, slots=True)
class CombinedSettings:
    """The designs that make up one memory. At most one of them may keep versions."""

    parts: tuple[MemorySettings, ...]

    def open(self, scope: MemoryScope) -> "CombinedMemory":
        """The memory of one agent."""
        return CombinedMemory([part.open(scope) for part in self.parts])


class CombinedMemory:
    """Memories that do not know of each other."""

    def __init__(self, parts: Sequence[Memory]) -> None:
        self.parts = tuple(parts)

    async def retrieve(self, cue: Conversation) -> Recollection:
        """What all bring back, in the order of the parts."""
        found = [await part.retrieve(cue) for part in self.parts]
        backgrounds = [one.background for one in found if one.background]
        return Recollection(tuple(block for one in found for block in one.blocks), "\n\n".join(backgrounds))

    async def update(self, turn: Turn, conversation: Conversation) -> MemoryVersion | None:
        """All take in the turn; gives the version of the one that keeps versions."""
        versions = [await part.update(turn, conversation) for part in self.parts]
        return next((version for version in versions if version is not None), None)

    async def consolidate(self, outcome: Outcome) -> Ledger:
        """All take in how the task ended."""
        return sum([await part.consolidate(outcome) for part in self.parts], Ledger())
