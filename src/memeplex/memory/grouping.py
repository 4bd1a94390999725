"""Grouping what is alike: average linkage, so that one odd pair does not chain two groups together."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["group"]

_DIGITS = 6
"""Digits that count: what differs less is equally alike."""


def group(likeness: NDArray[np.float32], least: float) -> list[list[int]]:
    """Groups of rows whose mean likeness to each other is ``least`` or more, each in order, by their first member.

    ``likeness`` is a square, symmetric matrix. Groups that are equally alike are merged at once (Fernández & Gómez,
    "Solving non-uniqueness in agglomerative hierarchical clustering using multidendrograms", 2008), so that the sets
    depend on the likeness alone and not on the order of the rows.
    """
    groups = [[i] for i in range(len(likeness))]
    totals = likeness.astype(np.float64)
    while len(groups) > 1:
        sizes = np.array([len(one) for one in groups])
        means = np.round(totals / np.outer(sizes, sizes), _DIGITS)
        np.fill_diagonal(means, -np.inf)
        best = means.max()
        if best < least:
            break
        parts = _connected(means == best)
        members = np.array([[float(i in part) for i in range(len(groups))] for part in parts])
        totals = members @ totals @ members.T
        groups = [sorted(row for i in part for row in groups[i]) for part in parts]
    return sorted(groups)


def _connected(linked: NDArray[np.bool_]) -> list[list[int]]:
    """What is linked, directly or through others."""
    parts: list[list[int]] = []
    left = set(range(len(linked)))
    while left:
        part = [left.pop()]
        for i in part:
            near = [j for j in left if linked[i, j] or linked[j, i]]
            left.difference_update(near)
            part += near
        parts.append(sorted(part))
    return parts
