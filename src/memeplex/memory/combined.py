"""Several memories of one agent, used as one: what each brings back stands side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memeplex.memory.base import Lasting, Memory, MemoryScope, MemorySettings, Recollection
from memeplex.messages import Conversation, Outcome, Turn
from memeplex.storage import Job, MemoryVersion
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

    async def consolidate(self, outcome: Outcome) -> None:
        """All take in how the task ended."""
        for part in self.parts:
            await part.consolidate(outcome)

    async def backlog(self) -> list[Job]:
        """What is left to do for all parts that last."""
        return [job for part in self._lasting for job in await part.backlog()]

    async def catch_up(self, *, again: bool = False, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """Make up what is left to do for all parts that last."""
        return sum([await part.catch_up(again=again, stop=stop) for part in self._lasting], Ledger())

    @property
    def _lasting(self) -> list[Lasting]:
        return [part for part in self.parts if isinstance(part, Lasting)]
