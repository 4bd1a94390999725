"""Lessons from a conversation: what the agent should do again, or otherwise.

Source: Memetic Agents, "Reflect on Memories" and "Reflections": a lesson, its importance, a category and the autonom's
thoughts. What a reflection looks like is its caller's to say, with the categories that it knows.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "reflect_on_memories"]

Output = TypeVar("Output", bound=BaseModel)
PROMPT = first_prompt("reflect_on_memories")


async def reflect_on_memories(
    model: Model,
    output_type: type[Output],
    settings: Settings,
    *,
    agent: str,
    role: str,
    lines: Sequence[str],
    memories: Sequence[str],
    categories: Mapping[str, str],
    social: bool,
    prompt: Prompt = PROMPT,
) -> Completion[Output]:
    """What ``agent`` can learn from the newest ``lines`` of a conversation and the memories that were made of it."""
    return await ask(
        model,
        prompt,
        output_type,
        settings,
        agent=agent,
        role=role,
        lines=lines,
        memories=memories,
        categories=categories,
        social=social,
    )
