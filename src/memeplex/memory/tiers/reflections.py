"""Reflections: what an agent has learnt about its own way of working, until it has made use of it.

Source: Memetic Agents, "Reflections" and "Self-Reflection": a lesson, its importance, a category "related to an
aspect of the agent's makeup", and the autonom's thoughts; tools, agentic structure and insight are categories without
a prompt.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from memeplex.memory.archive import Archive
from memeplex.memory.tiers.short_term import all_of
from memeplex.storage import Provenance, Record

__all__ = [
    "CATEGORIES",
    "INSIGHT",
    "REFLECTION",
    "DrawnReflection",
    "DrawnReflections",
    "Reflection",
    "as_reflection",
    "mark_used",
    "record_of",
    "unused",
]

REFLECTION = "reflection"
"""The kind of these records."""

INSIGHT = "insight"
CATEGORIES = {
    "reasoning": "how it thinks and answers",
    "system": "its role",
    "tools": "which tools it has and uses",
    "agentic_structure": "whom it works with, and how",
    "give_feedback": "the feedback that it gives to others",
    "thought_loop": "when it stops thinking",
    "extract_memories": "what it keeps of conversations",
    "reflect_on_memories": "what it learns from conversations",
    "reflect_on_feedback": "what it learns from feedback",
    "revise_prompt": "how it improves its prompts",
    "evaluate_prompt": "how it judges prompts",
    INSIGHT: "anything else",
}
"""What a reflection can be about, and what that means: the names of prompts, and three that have none."""


def _category(value: object) -> object:
    # Models write it in many ways; what is of no known category must not be lost.
    name = re.sub(r"[\W_]+", "_", value.strip().casefold()).strip("_") if isinstance(value, str) else ""
    return name if name in CATEGORIES else INSIGHT


Category = Annotated[str, BeforeValidator(_category), Field(json_schema_extra={"enum": list(CATEGORIES)})]


class DrawnReflection(BaseModel):
    """One reflection, as an autonom writes it; the thoughts come first, so that the rest follows from them."""

    model_config = ConfigDict(extra="forbid")

    thoughts: Annotated[str, StringConstraints(max_length=240, strip_whitespace=True)]
    lesson: Annotated[str, StringConstraints(min_length=1, max_length=240, strip_whitespace=True)]
    importance: Annotated[float, Field(ge=0, le=1)]
    category: Category


class DrawnReflections(BaseModel):
    """What there was to learn, which may be nothing."""

    model_config = ConfigDict(extra="forbid")

    # Where the schema lets a small model write nothing, it writes nothing.
    reflections: Annotated[list[DrawnReflection], Field(max_length=3, json_schema_extra={"minItems": 1})]


class Reflection(DrawnReflection):
    """A reflection as it is kept. ``id`` is its record's; ``conversation`` is where it was drawn from.

    ``used``: a prompt was changed by it; it counts no more, and stays.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(default="", exclude=True)
    lesson: str
    category: str
    thoughts: str = ""
    conversation: str = ""
    social: bool = False
    used: bool = False


def as_reflection(record: Record) -> Reflection:
    """The reflection in a record."""
    return Reflection.model_validate({**record.payload, "id": record.id})


def record_of(
    drawn: DrawnReflection, *, owner: str, batch: str, provenance: Provenance, trust: float, social: bool
) -> Record:
    """The record of a reflection. Twice from one ``batch`` of a conversation is once."""
    reflection = Reflection(**drawn.model_dump(), conversation=provenance.run, social=social)
    return Record(
        owner=owner,
        kind=REFLECTION,
        text=drawn.lesson,
        key=hashlib.sha256(f"{batch}\n{drawn.category}\n{drawn.lesson}".encode()).hexdigest(),
        payload=reflection.model_dump(mode="json"),
        provenance=provenance,
        trust=trust,
    )


async def unused(archive: Archive, owner: str) -> list[Reflection]:
    """The reflections that no prompt was changed by yet, oldest first."""
    found = [as_reflection(record) for record in await all_of(archive, owner, [REFLECTION])]
    return [one for one in found if not one.used]


async def mark_used(archive: Archive, ids: Iterable[str], *, actor: str, cause: str) -> None:
    """Mark reflections as used: they stay, and count no more."""

    def used(record: Record) -> Record | None:
        if record.payload.get("used"):
            return None
        return record.model_copy(update={"payload": {**record.payload, "used": True}})

    for record_id in ids:
        await archive.revise(record_id, used, actor=actor, cause=cause)
