"""Feedback to another agent on its answer.

Source: Memetic Agents, "Give Feedback" and "Feedback Messages": after an interaction, a score and a comment on what was
done well and where it could have been better. There is no score for "no answer": a model that gives none is an error.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "GivenFeedback", "give_feedback"]

PROMPT = first_prompt("give_feedback")


class GivenFeedback(BaseModel):
    """The comment comes first, so that the score rests on it."""

    model_config = ConfigDict(extra="forbid")

    comment: Annotated[str, StringConstraints(min_length=1, max_length=400, strip_whitespace=True)]
    score: Annotated[float, Field(ge=0, le=10)]


async def give_feedback(
    model: Model,
    settings: Settings,
    *,
    name: str,
    role: str,
    asked: str,
    answer: str,
    by: str,
    prompt: Prompt = PROMPT,
) -> Completion[GivenFeedback]:
    """What ``name``, who had ``asked``, thinks of the answer that ``by`` gave."""
    return await ask(model, prompt, GivenFeedback, settings, name=name, role=role, asked=asked, answer=answer, by=by)
