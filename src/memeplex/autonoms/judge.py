"""How well a task was done, by one judge for all: an agent's answer, or a team's result.

Source: Scaling Teams or Scaling Time?, whose results have one judge for all contenders. The judge sees the task and
what came of it, and not who did it with what.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Verdict", "judge"]

PROMPT = first_prompt("judge")


class Verdict(BaseModel):
    """The reasons come first, so that the score, from 0 to 10, rests on them."""

    model_config = ConfigDict(extra="forbid")

    reasons: Annotated[str, StringConstraints(min_length=1, max_length=400, strip_whitespace=True)]
    score: Annotated[float, Field(ge=0, le=10)]


async def judge(
    model: Model, settings: Settings, *, task: str, result: str, prompt: Prompt = PROMPT
) -> Completion[Verdict]:
    """What the judge says of a ``result``."""
    return await ask(model, prompt, Verdict, settings, task=task, result=result)
