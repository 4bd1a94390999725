"""From a conversation to atomic memories: extract, categorise, tag.

Source: Memetic Agents, "Transfer to Long Term Memory" and "Memory Consolidation": discrete pieces of information with a
subject, a predicate, an object and semantic tags, as structured output. Categories are those of its code.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "AtomicMemory", "Category", "ExtractedMemories", "extract_memories"]

PROMPT = first_prompt("extract_memories")

Category = Literal["fact", "preference", "capability", "relationship", "belief", "goal"]


def _category(value: object) -> object:
    # What has a category of its own is a statement all the same.
    name = value.strip().casefold() if isinstance(value, str) else value
    return name if name in get_args(Category) else "fact"


Part = Annotated[str, StringConstraints(min_length=1, max_length=120, strip_whitespace=True)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=40, strip_whitespace=True)]


class AtomicMemory(BaseModel):
    """One thing that a conversation says, as a sentence that stands on its own and in three parts."""

    model_config = ConfigDict(extra="forbid")

    statement: Annotated[str, StringConstraints(min_length=1, max_length=160, strip_whitespace=True)]
    subject: Part
    predicate: Part
    object: Part
    category: Annotated[Category, BeforeValidator(_category)]
    confidence: Annotated[float, Field(ge=0, le=1)]
    tags: Annotated[list[Tag], Field(max_length=5)]


class ExtractedMemories(BaseModel):
    """What one conversation, or a part of it, says; nothing where there is nothing to keep."""

    model_config = ConfigDict(extra="forbid")

    # Where the schema lets a small model write nothing, it writes nothing.
    memories: Annotated[list[AtomicMemory], Field(max_length=8, json_schema_extra={"minItems": 1})]


async def extract_memories(
    model: Model,
    settings: Settings,
    *,
    lines: Sequence[str],
    feedback: Sequence[str],
    social: bool,
    prompt: Prompt = PROMPT,
) -> Completion[ExtractedMemories]:
    """The atomic memories of ``lines``, a conversation, and of the feedback that was given on it."""
    return await ask(model, prompt, ExtractedMemories, settings, lines=lines, feedback=feedback, social=social)
