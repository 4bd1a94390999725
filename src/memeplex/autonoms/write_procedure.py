"""One procedure out of several episodes of the same kind.

Source: Scaling Teams or Scaling Time?, appendix D.5: task descriptions, lessons and outcomes in, a titled strategy in
JSON out; and appendix A: tool-use guidance, and failure categories to pre-empt.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Example", "Strategy", "write_procedure"]

PROMPT = first_prompt("write_procedure")

Short = Annotated[str, StringConstraints(min_length=1, max_length=120, strip_whitespace=True)]


class Example(BaseModel):
    """One episode, as the prompt shows it."""

    task: str
    success: bool
    lessons: tuple[str, ...]
    outcome: str


class Strategy(BaseModel):
    """What to do in tasks of one kind."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, StringConstraints(min_length=1, max_length=80, strip_whitespace=True)]
    strategy: Annotated[str, StringConstraints(min_length=1, max_length=600, strip_whitespace=True)]
    tools: Annotated[list[Short], Field(max_length=4)] = []
    failures: Annotated[list[Short], Field(max_length=4)] = []


async def write_procedure(
    model: Model, settings: Settings, *, episodes: Sequence[Example], prompt: Prompt = PROMPT
) -> Completion[Strategy]:
    """The strategy that the successful ones among the episodes have in common."""
    return await ask(model, prompt, Strategy, settings, episodes=episodes)
