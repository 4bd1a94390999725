"""Whether to go on reasoning, or to send what there is.

Source: Memetic Agents, "Thought Loop". How often it may be asked is bounded by whoever asks.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Thought", "thought_loop"]

PROMPT = first_prompt("thought_loop")


class Thought(BaseModel):
    """What is missing comes first, so that the decision rests on it."""

    model_config = ConfigDict(extra="forbid")

    missing: Annotated[str, StringConstraints(max_length=240, strip_whitespace=True)]
    decision: Literal["STOP", "CONTINUE"]

    @property
    def goes_on(self) -> bool:
        """Whether there is something to think about: to continue with nothing missing is to stop."""
        return self.decision == "CONTINUE" and bool(self.missing)


async def thought_loop(
    model: Model, settings: Settings, *, name: str, role: str, asked: str, draft: str, prompt: Prompt = PROMPT
) -> Completion[Thought]:
    """What ``name`` decides on the draft of its answer to what it was ``asked``."""
    return await ask(model, prompt, Thought, settings, name=name, role=role, asked=asked, draft=draft)
