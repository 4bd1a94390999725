"""From two rankings of the same records to one score.

What is near in meaning and what shares words count alike. A record then takes a share of what its neighbours have,
since what answers a question is often said beside what sounds like it; and it gains when the question names its
author. The values are round numbers, and flat around where they stand (docs/benchmarks.md).
"""

from collections.abc import Collection, Mapping

__all__ = ["CANDIDATES", "DISTANCE", "fuse"]

CANDIDATES = 200
"""Records taken from each ranking."""

DISTANCE = 3
"""How far away a neighbour may be, in turns."""

_SHARE = 0.5
"""Of a neighbour's score, by each step of distance."""

_NAMED = 0.15
"""What being named is worth, where 1 is being first in both rankings."""

Place = tuple[object, int]
"""A source, and the position in it."""


def fuse(
    similar: Mapping[int, float],
    worded: Mapping[int, float],
    places: Mapping[int, Place] | None = None,
    named: Collection[int] = (),
) -> dict[int, float]:
    """Scores from 0 to a little over 1.

    ``similar`` are cosines, ``worded`` BM25 scores; the lowest cosine counts as nothing. ``places`` says where records
    stand, those of neighbours that are in neither ranking too; one without a place has no neighbours. ``named`` are
    records whose author is named.
    """
    weight = 1.0 if not worded else 0.0 if not similar else 0.5
    scores: dict[int, float] = {}
    if similar:
        floor, top = min(similar.values()), max(similar.values())
        # Of one ranking alone, all that it has is to come out in its order.
        span = (top - floor) or 1.0
        scores = {num: weight * (cosine - floor) / span for num, cosine in similar.items()}
    if worded:
        top = max(worded.values()) or 1.0
        for num, score in worded.items():
            scores[num] = scores.get(num, 0.0) + (1 - weight) * score / top
    scores = _shared(scores, places or {})
    return {num: score + _NAMED * (num in named and score > 0) for num, score in scores.items()}


def _shared(scores: Mapping[int, float], places: Mapping[int, Place]) -> dict[int, float]:
    at: dict[Place, float] = {}
    for num, place in places.items():
        at[place] = max(at.get(place, 0.0), scores.get(num, 0.0))
    shared = {num: score for num, score in scores.items() if num not in places}
    for num, (source, position) in places.items():
        total, mass = scores.get(num, 0.0), 1.0
        for step in range(1, DISTANCE + 1):
            for neighbour in ((source, position - step), (source, position + step)):
                if neighbour in at:
                    total += _SHARE**step * at[neighbour]
                    mass += _SHARE**step
        shared[num] = total / mass
    return shared
