"""What an autonom is: a first prompt and a typed answer.

Source: Memetic Agents, "Autonoms": subroutines that call a model, are triggered by procedure, and stay outside
the agent's own context.
"""

from functools import cache
from typing import TypeVar

from pydantic import BaseModel

from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["ask", "first_prompt"]

Output = TypeVar("Output", bound=BaseModel)


@cache
def first_prompt(name: str) -> Prompt:
    """Version 1 of an autonom's prompt: the Markdown file beside its code."""
    return Prompt.load("memeplex.autonoms", name)


async def ask(
    model: Model, prompt: Prompt, output: type[Output], settings: Settings, /, **variables: object
) -> Completion[Output]:
    """Fill in the prompt and ask the model for ``output``.

    Raises:
        ModelError: as ``Model.generate``; there is no answer that stands for "no answer".
    """
    return await model.generate(prompt.messages(**variables), output, settings)
