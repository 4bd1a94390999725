"""How well a prompt would serve in one situation.

Source: Memetic Agents, "Social Messaging Flow" and "Evolving Prompts": a score and written feedback. The thoughts come
first, so that the score rests on them.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Evaluation", "evaluate_prompt"]

PROMPT = first_prompt("evaluate_prompt")


class Evaluation(BaseModel):
    """What is good or missing, and a score from 0 to 10."""

    model_config = ConfigDict(extra="forbid")

    thoughts: Annotated[str, StringConstraints(min_length=1, max_length=400, strip_whitespace=True)]
    score: Annotated[float, Field(ge=0, le=10)]


async def evaluate_prompt(
    model: Model, settings: Settings, *, text: str, situation: str, prompt: Prompt = PROMPT
) -> Completion[Evaluation]:
    """The evaluation of a prompt's text in a situation."""
    return await ask(model, prompt, Evaluation, settings, text=text, situation=situation)
