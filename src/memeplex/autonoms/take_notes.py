"""Memory update, mode ``notes``: the new facts of one output, to be merged by code.

The old memory is not shown: models of about a billion parameters copy it back and stop learning.
"""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "take_notes"]

Output = TypeVar("Output", bound=BaseModel)
PROMPT = first_prompt("take_notes")


async def take_notes(
    model: Model,
    output_type: type[Output],
    settings: Settings,
    *,
    role: str,
    output: str,
    slots: Sequence[object],
    limit: int,
    prompt: Prompt = PROMPT,
) -> Completion[Output]:
    """At most ``limit`` short notes of what the output says."""
    return await ask(model, prompt, output_type, settings, role=role, output=output, slots=slots, limit=limit)
