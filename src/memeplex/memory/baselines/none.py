"""No memory: the context is the task and the newest turns.

Source: Intrinsic Memory Agents, section 5.1, the baseline system.
"""

from pydantic import BaseModel, ConfigDict

from memeplex.memory.base import MemoryScope, Recollection
from memeplex.messages import Conversation, Outcome, Turn

__all__ = ["NoMemory", "NoMemorySettings"]


class NoMemory:
    """Remembers nothing."""

    async def retrieve(self, cue: Conversation) -> Recollection:
        """Nothing."""
        return Recollection()

    async def update(self, turn: Turn, conversation: Conversation) -> None:
        """Does nothing."""

    async def consolidate(self, outcome: Outcome) -> None:
        """Does nothing."""


class NoMemorySettings(BaseModel):
    """There is nothing to set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def open(self, scope: MemoryScope) -> NoMemory:
        """The empty memory of one agent."""
        return NoMemory()
