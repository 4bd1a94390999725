"""Fusing two rankings of the same records into one score."""

from collections.abc import Mapping

__all__ = ["fuse"]

_RANK = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009)."""


def fuse(similar: Mapping[int, float], worded: Mapping[int, float]) -> dict[int, float]:
    """Scores by reciprocal rank; of one ranking alone, its own scores."""
    if not similar or not worded:
        return dict(similar or worded)
    scores: dict[int, float] = {}
    for ranking in (similar, worded):
        for rank, num in enumerate(sorted(ranking, key=lambda num: (-ranking[num], num)), 1):
            scores[num] = scores.get(num, 0.0) + 1 / (_RANK + rank)
    return scores
