"""The agent's own model writes the template of its memory, once for each task.

Source: Intrinsic Memory Agents, appendix B.1.3 and B.2.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "ProposedSlot", "ProposedTemplate", "make_template"]

PROMPT = first_prompt("make_template")


class ProposedSlot(BaseModel):
    """One slot as the model proposes it."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(min_length=2, max_length=32)]
    description: Annotated[str, StringConstraints(max_length=120)]


class ProposedTemplate(BaseModel):
    """Two to five slots."""

    model_config = ConfigDict(extra="forbid")

    slots: list[ProposedSlot] = Field(min_length=2, max_length=5)


async def make_template(
    model: Model, settings: Settings, *, task: str, role: str, prompt: Prompt = PROMPT
) -> Completion[ProposedTemplate]:
    """The slots that a role will need for a task."""
    return await ask(model, prompt, ProposedTemplate, settings, task=task, role=role)
