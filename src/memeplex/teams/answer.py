"""What a team came to: its document, else the proposal that it hands out, else what was said last."""

from dataclasses import dataclass
from typing import Literal

from memeplex.messages import Conversation, Outcome, Turn, TurnKind

__all__ = ["Answer", "answer_of"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The last word of a team, as a text, and the turn that it was said in; none where nobody has spoken.

    ``kind`` says what it is: a ``document``, a ``proposal`` that no document was written of, or a ``message``.
    """

    kind: Literal["document", "proposal", "message"]
    text: str
    turn: Turn | None


def answer_of(conversation: Conversation, outcome: Outcome | None) -> Answer:
    """The answer so far; ``outcome`` is ``None`` as long as the team is at work."""
    heard = [turn for turn in conversation.heard if turn.kind is not TurnKind.FLAG]
    last = heard[-1] if heard else None
    if any(turn.kind is TurnKind.DOCUMENT for turn in heard):
        return Answer(kind="document", text=last.content if last else "", turn=last)
    if proposal := _proposal(outcome):
        said = [turn for turn in heard if turn.content == proposal]
        return Answer(kind="proposal", text=proposal, turn=said[-1] if said else last)
    return Answer(kind="message", text=last.content if last else "", turn=last)


def _proposal(outcome: Outcome | None) -> str:
    """The proposal that an outcome hands out; empty where there is none, or nobody ``proposed`` it."""
    details = outcome.details if outcome else {}
    found = details.get("proposal") if details.get("proposed", True) else None
    return found if isinstance(found, str) else ""
