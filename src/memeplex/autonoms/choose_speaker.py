"""A model chooses who speaks next."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, create_model

from memeplex.autonoms.base import ask, first_prompt
from memeplex.messages import Turn
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Choice", "choose_speaker"]

PROMPT = first_prompt("choose_speaker")


class Choice(BaseModel):
    """The name of the next speaker."""

    speaker: str


async def choose_speaker(
    model: Model,
    settings: Settings,
    *,
    task: str,
    team: Mapping[str, str],
    turns: Sequence[Turn],
    prompt: Prompt = PROMPT,
) -> Completion[Choice]:
    """One name out of ``team`` (names to roles); the schema admits no other."""
    fields: dict[str, Any] = {"speaker": (Literal[tuple(team)], ...)}
    output = create_model("Choice", __base__=Choice, **fields)
    return await ask(model, prompt, output, settings, task=task, team=team, turns=turns)
