"""Memory update, mode ``patch``: only the slots that changed.

The answer is a JSON merge patch (RFC 7396) over the slots, but for one thing: an empty value means "no change",
since small models write one into every slot that they have nothing to say about.
"""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "patch_memory"]

Output = TypeVar("Output", bound=BaseModel)
PROMPT = first_prompt("patch_memory")


async def patch_memory(
    model: Model,
    output_type: type[Output],
    settings: Settings,
    *,
    role: str,
    memory: str,
    output: str,
    slots: Sequence[object],
    prompt: Prompt = PROMPT,
) -> Completion[Output]:
    """The slots that the agent's own output changes."""
    return await ask(model, prompt, output_type, settings, role=role, memory=memory, output=output, slots=slots)
