"""Whether a task was done: what a task says of its own answer decides, where it says something."""

from collections.abc import Sequence

from memeplex.messages import Conversation, Outcome
from memeplex.teams.answer import answer_of

__all__ = ["judged"]


def judged(conversation: Conversation, outcome: Outcome) -> Outcome:
    """The outcome, with success where nobody has judged it and the task says what to expect.

    A task's ``data["expect"]`` is a text, or several, that the last word of the team has to hold; case is ignored. The
    reward is the share that it holds.
    """
    expected = _texts(conversation.task.data.get("expect"))
    if outcome.success is not None or not expected:
        return outcome
    said = answer_of(conversation, outcome).text.casefold()
    share = sum(text.casefold() in said for text in expected) / len(expected)
    return outcome.model_copy(update={"success": share == 1.0, "reward": share})


def _texts(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [text for text in value if isinstance(text, str) and text] if isinstance(value, list | tuple) else []
