"""When a conversation ends: small conditions that compose with ``|`` and ``&``."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from memeplex.messages import Conversation, TurnKind
from memeplex.usage import Ledger

__all__ = ["Flagged", "MaxTokens", "MaxTurns", "Stalled", "Termination"]


class Termination(ABC):
    """A function of the conversation, so that a resumed run ends where an unbroken one would."""

    @abstractmethod
    def reached(self, conversation: Conversation) -> str:
        """Why the conversation is over, in one word; empty while it is not."""

    def __or__(self, other: "Termination") -> "Termination":
        return _Either(self, other)

    def __and__(self, other: "Termination") -> "Termination":
        return _Both(self, other)


@dataclass(frozen=True, slots=True)
class _Either(Termination):
    first: Termination
    second: Termination

    def reached(self, conversation: Conversation) -> str:
        return self.first.reached(conversation) or self.second.reached(conversation)


@dataclass(frozen=True, slots=True)
class _Both(Termination):
    first: Termination
    second: Termination

    def reached(self, conversation: Conversation) -> str:
        return self.first.reached(conversation) and self.second.reached(conversation)


@dataclass(frozen=True, slots=True)
class MaxTurns(Termination):
    """After ``limit`` turns that everybody hears (votes are not counted)."""

    limit: int

    def reached(self, conversation: Conversation) -> str:
        """``max_turns`` when the limit is reached."""
        return "max_turns" if len(conversation.heard) >= self.limit else ""


@dataclass(frozen=True, slots=True)
class MaxTokens(Termination):
    """After ``limit`` tokens, in and out, spent on turns. Checked between turns, so the last may pass it."""

    limit: int

    def reached(self, conversation: Conversation) -> str:
        """``max_tokens`` when the limit is reached."""
        spent = sum((turn.usage for turn in conversation.turns), Ledger()).total.tokens
        return "max_tokens" if spent >= self.limit else ""


@dataclass(frozen=True, slots=True)
class Flagged(Termination):
    """When a turn carries a flag, such as FINALIZE. What a turn merely says does not count."""

    flag: str

    def reached(self, conversation: Conversation) -> str:
        """The flag, in lower case."""
        return self.flag.lower() if any(turn.flag == self.flag for turn in conversation.turns) else ""


@dataclass(frozen=True, slots=True)
class Stalled(Termination):
    """When each of the last ``patience`` messages repeats, word for word, what its speaker had said before."""

    patience: int = 6

    def reached(self, conversation: Conversation) -> str:
        """``stalled`` when the team turns in circles."""
        messages = [turn for turn in conversation.heard if turn.kind is TurnKind.MESSAGE]
        seen: set[tuple[str, str]] = set()
        repeated = 0
        for turn in messages:
            key = (turn.speaker, turn.content)
            repeated = repeated + 1 if key in seen else 0
            seen.add(key)
        return "stalled" if repeated >= self.patience else ""
