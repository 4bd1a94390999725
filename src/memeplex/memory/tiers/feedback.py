"""Feedback: what others thought of an agent's answers, kept apart from the conversations and linked to them.

Source: Memetic Agents, "Feedback" and "Message Types": a score and a comment on what was done well and where it could
have been better, with the conversation's id.
"""

import hashlib
import math
import re

from pydantic import BaseModel, ConfigDict, Field

from memeplex.errors import FeedbackScoreError
from memeplex.memory.archive import record_text
from memeplex.messages import Text
from memeplex.storage import Provenance, Record

__all__ = ["FEEDBACK", "HIGHEST", "Feedback", "as_feedback", "record_of", "score_of"]

FEEDBACK = "feedback"
"""The kind of these records."""

HIGHEST = 10.0
"""Scores are from 0 to this."""

_NUMBER = r"[+-]?\d+(?:[.,]\d+)?"
_SCALED = re.compile(rf"({_NUMBER})\s*(?:/|out of|of)\s*({_NUMBER})", re.IGNORECASE)
_SHARE = re.compile(rf"({_NUMBER})\s*%")
_PLAIN = re.compile(_NUMBER)


class Feedback(BaseModel):
    """What a record of feedback holds. ``about`` is the number of the message that it is on, where that is known."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    conversation: Text
    sender: Text
    score: float = Field(ge=0, le=HIGHEST)
    comment: Text = ""
    about: int | None = None

    @property
    def line(self) -> str:
        """The feedback as it is shown to a model."""
        return f"[{self.sender}] score {self.score:g} of {HIGHEST:g}{': ' if self.comment else ''}{self.comment}"


def score_of(value: object, scale: tuple[float, float] | None = None) -> float:
    """A score from 0 to 10.

    A number in that range is taken, also one in a text. Another one is put in proportion if its scale is stated: by
    ``scale``, the lowest and the highest possible score, or in the text, as in ``85/100``, ``4 out of 5`` or ``80 %``.

    Raises:
        FeedbackScoreError: it is no number, or out of range.
    """
    number, lowest, highest = _read(value, scale)
    if not (math.isfinite(number) and lowest < highest and lowest <= number <= highest):
        raise FeedbackScoreError(value, lowest, highest)
    return (number - lowest) / (highest - lowest) * HIGHEST if (lowest, highest) != (0, HIGHEST) else number


def _read(value: object, scale: tuple[float, float] | None) -> tuple[float, float, float]:
    lowest, highest = scale or (0.0, HIGHEST)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), lowest, highest
    text = value.strip() if isinstance(value, str) else ""
    if found := _SCALED.fullmatch(text):
        return _number(found[1]), 0.0, _number(found[2])
    if found := _SHARE.fullmatch(text):
        return _number(found[1]), 0.0, 100.0
    return _number(text) if _PLAIN.fullmatch(text) else math.nan, lowest, highest


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def as_feedback(record: Record) -> Feedback:
    """The feedback in a record."""
    return Feedback.model_validate(record.payload)


def record_of(feedback: Feedback, *, owner: str, source: str = "") -> Record:
    """The record of feedback that ``owner`` got. The same feedback, or the same ``source``, twice is one record."""
    body = source or feedback.model_dump_json()
    return Record(
        owner=owner,
        kind=FEEDBACK,
        text=record_text(feedback.comment or f"score {feedback.score:g}"),
        key=hashlib.sha256(body.encode()).hexdigest(),
        payload=feedback.model_dump(mode="json"),
        provenance=Provenance(run=feedback.conversation, author=feedback.sender),
    )
