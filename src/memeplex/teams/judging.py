"""Whether a task was done: what a task says of its own answer decides, where it says something."""

import json
from collections.abc import Sequence

from memeplex.messages import Conversation, Outcome, TurnKind

__all__ = ["final_text", "judged"]


def judged(conversation: Conversation, outcome: Outcome) -> Outcome:
    """The outcome, with success where nobody has judged it and the task says what to expect.

    A task's ``data["expect"]`` is a text, or several, that the last word of the team has to hold; case is ignored. The
    reward is the share that it holds.
    """
    expected = _texts(conversation.task.data.get("expect"))
    if outcome.success is not None or not expected:
        return outcome
    said = final_text(conversation, outcome).casefold()
    share = sum(text.casefold() in said for text in expected) / len(expected)
    return outcome.model_copy(update={"success": share == 1.0, "reward": share})


def final_text(conversation: Conversation, outcome: Outcome) -> str:
    """The team's last word: its document, its last proposal, or what was said last."""
    for name in ("document", "proposal"):
        if found := outcome.details.get(name):
            return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    heard = [turn for turn in conversation.heard if turn.kind is not TurnKind.FLAG]
    return heard[-1].content if heard else ""


def _texts(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [text for text in value if isinstance(text, str) and text] if isinstance(value, list | tuple) else []
