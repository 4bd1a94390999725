"""Lessons from the feedback that others gave.

Source: Memetic Agents, "Reflect on Memories" ("the agent's conversations and feedback") and "Feedback": a score and a
comment on what was done well and where it could have been better.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "reflect_on_feedback"]

Output = TypeVar("Output", bound=BaseModel)
PROMPT = first_prompt("reflect_on_feedback")


async def reflect_on_feedback(
    model: Model,
    output_type: type[Output],
    settings: Settings,
    *,
    agent: str,
    role: str,
    lines: Sequence[str],
    feedback: Sequence[str],
    categories: Mapping[str, str],
    prompt: Prompt = PROMPT,
) -> Completion[Output]:
    """What ``agent`` can learn from feedback on a conversation, of which ``lines`` are the newest."""
    return await ask(
        model,
        prompt,
        output_type,
        settings,
        agent=agent,
        role=role,
        lines=lines,
        feedback=feedback,
        categories=categories,
    )
