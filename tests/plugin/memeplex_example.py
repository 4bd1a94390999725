"""What a plug-in package looks like: one memory, one speaker policy, nothing registered at import."""

from pydantic import BaseModel

from memeplex.agents import Ask
from memeplex.memory import MemoryScope, Recollection
from memeplex.messages import Conversation, Outcome, Turn
from memeplex.teams import Cast, SpeakerPolicy


class Tally:
    """Counts the turns that its agent has heard."""

    async def retrieve(self, cue: Conversation) -> Recollection:
        return Recollection((f"heard:{len(cue.heard)}",))

    async def update(self, turn: Turn, conversation: Conversation) -> None:
        return None

    async def consolidate(self, outcome: Outcome) -> None:
        return None


class TallySettings(BaseModel):
    def open(self, scope: MemoryScope) -> Tally:
        return Tally()


class Twice(SpeakerPolicy):
    """Everybody speaks ``times`` in a row."""

    times: int = 2

    async def select(self, conversation: Conversation, cast: Cast) -> Ask:
        return Ask(speaker=cast.names[len(conversation.turns) // self.times % len(cast.names)])
