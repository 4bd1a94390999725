"""A better version of a prompt, by what the agent has learnt.

Source: Memetic Agents, "Self-Reflection": the self-improvement stub and the prompt to be reflected on make the system
prompt, all reflections of the category are one message, and the answer is structured, so that thoughts are kept apart
from the prompt. The schema of the revised prompt's own answer is not shown, and cannot be changed.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Lesson", "Revision", "revise_prompt"]

PROMPT = first_prompt("revise_prompt")


class Lesson(BaseModel):
    """One reflection, as the prompt shows it."""

    lesson: str
    importance: float


class Revision(BaseModel):
    """What a revision begins with; a text for each editable section follows."""

    model_config = ConfigDict(extra="forbid")

    thoughts: str = Field(max_length=1000)

    def texts(self, titles: Sequence[str]) -> dict[str, str]:
        """The new texts by the titles of their sections."""
        fields = list(type(self).model_fields)[1:]
        return {title: str(getattr(self, name)).strip() for title, name in zip(titles, fields, strict=True)}


@cache
def _revision(count: int) -> type[Revision]:
    """A revision of so many sections. It names them by number: a title could be any text."""
    names = ["prompt"] if count == 1 else [f"part_{number}" for number in range(1, count + 1)]
    texts: dict[str, Any] = {name: (str, Field(min_length=1)) for name in names}
    made: type[Revision] = create_model("Revision", __base__=Revision, **texts)
    return made


async def revise_prompt(
    model: Model, settings: Settings, *, of: Prompt, lessons: Sequence[Lesson], wrong: str = "", prompt: Prompt = PROMPT
) -> Completion[Revision]:
    """New texts for the editable sections of ``of``, by the lessons; ``wrong`` is what is wrong with the last ones."""
    placeholders = sorted({name for section in of.sections for name in section.names})
    return await ask(
        model,
        prompt,
        _revision(len(of.editable)),
        settings,
        parts=list(of.editable.values()),
        lessons=lessons,
        wrong=wrong,
        placeholders=[f"{{{{ {name} }}}}" for name in placeholders],
    )
