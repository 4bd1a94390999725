"""Reflections as evidence: when there is enough of it, and what for.

Source: Memetic Agents, "Self-Reflection": "it will find the category with the highest combined reflection score";
prompts are only modified "when there is sufficient evidence for improvement, based on both the quantity and quality of
accumulated reflections", and "a degree of randomness" keeps all agents from converging on identical prompts.
"""

import random
from collections.abc import Collection, Iterable, Sequence

from memeplex.memory.tiers.reflections import Reflection

__all__ = ["choose"]


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
