"""Grouping what is alike: average linkage, so that one odd pair does not chain two groups together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["group", "likeness_of"]

_DIGITS = 6
"""Digits that count: what differs less is equally alike."""


def likeness_of(vectors: NDArray[np.float32], unrelated: float, types: Sequence[str] = ()) -> NDArray[np.float32]:
    """How much alike vectors of length 1 are, each to each, from 0 to 1; ``unrelated`` is their embedder's.

    Those that are known to be of other ``types`` are not alike at all; an empty one is not known.
    """
    likeness: NDArray[np.float32] = np.clip((vectors @ vectors.T - unrelated) / (1 - unrelated), 0, 1)
    if any(types):
        known = np.array(types)
        likeness[(known[:, None] != known) & (known[:, None] != "") & (known != "")] = 0
    return likeness.astype(np.float32)


def group(likeness: NDArray[np.float32], least: float) -> list[list[int]]:
    """Groups of rows whose mean likeness to each other is ``least`` or more, each in order, by their first member.

    ``likeness`` is a square, symmetric matrix. Groups that are equally alike are merged at once (Fernández & Gómez,
    "Solving non-uniqueness in agglomerative hierarchical clustering using multidendrograms", 2008), so that the sets
    depend on the likeness alone and not on the order of the rows.
    """
    groups = [[i] for i in range(len(likeness))]
    totals, sizes = likeness.astype(np.float64), np.ones(len(likeness))
    means = np.round(totals, _DIGITS)
    # What is merged into another stays as a row, and is like nothing any more.
    np.fill_diagonal(means, -np.inf)
    while groups and (best := means.max()) >= least:
        for first, *rest in _connected(means == best):
            totals[first] += totals[rest].sum(axis=0)
            totals[:, first] += totals[:, rest].sum(axis=1)
            sizes[first] += sizes[rest].sum()
            means[rest] = means[:, rest] = -np.inf
            groups[first] = sorted(row for i in (first, *rest) for row in groups[i])
            for i in rest:
                groups[i] = []
            row = np.round(totals[first] / (sizes[first] * sizes), _DIGITS)
            row[[first, *(i for i, members in enumerate(groups) if not members)]] = -np.inf
            means[first] = means[:, first] = row
    return sorted(members for members in groups if members)


def _connected(linked: NDArray[np.bool_]) -> list[list[int]]:
    """Those that are linked to others, directly or through others, in order."""
    parts: list[list[int]] = []
    left: NDArray[np.bool_] = np.asarray(linked.any(axis=1))
    while left.any():
        part = np.zeros_like(left)
        grown = np.arange(len(left)) == left.argmax()
        while (grown != part).any():
            part, grown = grown, grown | linked[grown].any(axis=0)
        parts.append(np.nonzero(part)[0].tolist())
        left &= ~part
    return parts
