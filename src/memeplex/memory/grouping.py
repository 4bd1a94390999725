"""Grouping what is alike: average linkage, so that one odd pair does not chain two groups together."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["group"]


def group(likeness: NDArray[np.float32], least: float) -> list[list[int]]:
    """Groups of rows whose mean likeness to each other is ``least`` or more, each in order, by their first member.

    ``likeness`` is a square, symmetric matrix. The result depends on it alone: the same episodes are grouped in the
    same way however often they are.
    """
    groups = [[i] for i in range(len(likeness))]
    means = likeness.astype(np.float64)
    np.fill_diagonal(means, -np.inf)
    while len(groups) > 1:
        a, b = sorted(divmod(int(np.argmax(means)), len(groups)))
        if means[a, b] < least:
            break
        sizes = len(groups[a]), len(groups[b])
        merged = (means[a] * sizes[0] + means[b] * sizes[1]) / sum(sizes)
        means[a], means[:, a] = merged, merged
        means[a, a] = -np.inf
        means = np.delete(np.delete(means, b, 0), b, 1)
        groups[a] = sorted(groups[a] + groups.pop(b))
    return sorted(groups)
