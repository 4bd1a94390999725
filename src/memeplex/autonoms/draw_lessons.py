"""Lessons from one finished task.

Source: Scaling Teams or Scaling Time?, appendix D.4: one to three actionable lessons as a JSON array, from the task,
the actions and the outcome, with a focus on success or on failure. The array stands in an object here, which is what
endpoints take as a schema.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Lessons", "draw_lessons"]

PROMPT = first_prompt("draw_lessons")


class Lessons(BaseModel):
    """One to three lessons."""

    model_config = ConfigDict(extra="forbid")

    lessons: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=240, strip_whitespace=True)]],
        Field(min_length=1, max_length=3),
    ]


async def draw_lessons(
    model: Model,
    settings: Settings,
    *,
    task: str,
    actions: Sequence[str],
    outcome: str,
    success: bool,
    prompt: Prompt = PROMPT,
) -> Completion[Lessons]:
    """What to do again, or instead, when a task like this one comes."""
    return await ask(model, prompt, Lessons, settings, task=task, actions=actions, outcome=outcome, success=success)
