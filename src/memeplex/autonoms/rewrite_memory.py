"""Memory update, mode ``rewrite``: the reply becomes the new memory.

Source: Intrinsic Memory Agents, section 3.2, equation 3 and Figure 8 (ROLE, MEMORY_CONTENT, AGENT_OUTPUT), with the
five rules of the generic template (appendix B.1.2).
"""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from memeplex.autonoms.base import first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "rewrite_memory"]

Output = TypeVar("Output", bound=BaseModel)
PROMPT = first_prompt("rewrite_memory")


async def rewrite_memory(
    model: Model,
    output_type: type[Output] | None,
    settings: Settings,
    *,
    role: str,
    memory: str,
    output: str,
    slots: Sequence[object] = (),
    prompt: Prompt = PROMPT,
) -> Completion[Output] | Completion[None]:
    """Write the memory anew from the old one and the agent's own output.

    With no ``output_type`` the text of the reply is the memory, in whatever form the model chose.
    """
    messages = prompt.messages(role=role, memory=memory, output=output, slots=slots)
    return await model.generate(messages, output_type, settings)
