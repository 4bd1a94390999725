"""Reflections as evidence: when there is enough of it, and what for.

Source: Memetic Agents, "Self-Reflection": "it will find the category with the highest combined reflection score";
prompts are only modified "when there is sufficient evidence for improvement, based on both the quantity and quality of
accumulated reflections", and "a degree of randomness" keeps all agents from converging on identical prompts.
"""

import random
from collections.abc import Collection, Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from memeplex.messages import Text
from memeplex.storage import Record, Records

__all__ = ["REFLECTION", "Reflection", "as_reflection", "choose", "unused"]

REFLECTION = "reflection"
"""The kind of records that hold a reflection."""

_PAGE = 500


class Reflection(BaseModel):
    """A lesson that an agent drew from a ``conversation``. ``category`` names the prompt that it is about."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    lesson: Text = Field(min_length=1)
    importance: float = Field(ge=0, le=1)
    category: str
    thoughts: Text = ""
    conversation: str = ""
    used: bool = False


def as_reflection(record: Record) -> Reflection:
    """The reflection in a record."""
    return Reflection.model_validate({"conversation": record.provenance.run, **record.payload, "id": record.id})


async def unused(records: Records, owner: str) -> list[Reflection]:
    """An owner's reflections that no prompt was changed by yet, oldest first."""
    found: list[Record] = []
    while page := await records.page(owner, [REFLECTION], limit=_PAGE, after=found[-1].id if found else ""):
        found += page
    return [one for one in map(as_reflection, found) if not one.used]


def choose(
    reflections: Iterable[Reflection],
    *,
    among: Collection[str],
    least: int = 3,
    least_importance: float = 0.5,
    randomness: float = 0.1,
    seed: int = 0,
) -> str | None:
    """The category to learn in; ``None`` as long as no evidence is good enough.

    A category passes from ``least`` reflections on, if their importance is ``least_importance`` on average. Of those
    that pass, the one with the highest sum of importances is taken, or with a probability of ``randomness`` another
    one, by their sums. The same seed gives the same choice.
    """
    groups: dict[str, list[float]] = {}
    for one in reflections:
        if one.category in among:
            groups.setdefault(one.category, []).append(one.importance)
    sums = {category: sum(values) for category, values in groups.items() if _enough(values, least, least_importance)}
    if not sums:
        return None
    # By name where sums are equal, so that the order of the evidence makes no difference.
    best, *others = sorted(sums, key=lambda category: (-sums[category], category))
    drawn = random.Random(seed)  # noqa: S311 - a choice that can be repeated, not a secret
    if others and drawn.random() < randomness:
        return drawn.choices(others, [sums[category] or 1e-9 for category in others])[0]
    return best


def _enough(values: Sequence[float], least: int, least_importance: float) -> bool:
    return len(values) >= least and sum(values) / len(values) >= least_importance
