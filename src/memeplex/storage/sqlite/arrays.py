"""Owners' vectors in memory: one contiguous array each, searched exactly, the least recently used dropped first."""

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

__all__ = ["Array", "Arrays"]


class Array:
    """One owner's vectors, in no particular order. ``clock`` is the change up to which it is current."""

    def __init__(self, dimension: int) -> None:
        self.clock = 0
        self._nums = np.empty(0, np.int64)
        self._kinds = np.empty(0, np.int32)
        self._values = np.empty((0, dimension), np.float32)
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def nbytes(self) -> int:
        """Memory taken, in bytes; the table of places is estimated."""
        return self._values.nbytes + self._nums.nbytes + self._kinds.nbytes + 100 * len(self._places)

    @property
    def nums(self) -> Iterable[int]:
        """The records that it holds."""
        return self._places.keys()

    def put(self, nums: list[int], kinds: list[int], values: np.ndarray) -> None:
        """Add records, or put new vectors in place of those that they have."""
        fresh = [num for num in nums if num not in self._places]
        start = len(self)
        self._grow(start + len(fresh))
        self._places.update(zip(fresh, range(start, start + len(fresh)), strict=True))
        places = [self._places[num] for num in nums]
        self._nums[places], self._kinds[places], self._values[places] = nums, kinds, values

    def remove(self, nums: Iterable[int]) -> None:
        """Take records out; the last ones move into their places."""
        for num in nums:
            place, last = self._places.pop(num), len(self._places)
            if place != last:
                moved = int(self._nums[last])
                self._nums[place], self._kinds[place] = moved, self._kinds[last]
                self._values[place] = self._values[last]
                self._places[moved] = place

    def best(self, vector: np.ndarray, limit: int, kinds: Iterable[int] | None) -> list[tuple[int, float]]:
        """The records with the greatest cosine to ``vector``, best first, with their cosines; of equals, the oldest."""
        count = len(self)
        nums, scores = self._nums[:count], _products(self._values[:count], vector)
        if kinds is not None:
            wanted = np.isin(self._kinds[:count], list(kinds))
            nums, scores = nums[wanted], scores[wanted]
        if len(scores) > limit:
            # All that equal the last one, so that the oldest of those are taken.
            top = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit])
            nums, scores = nums[top], scores[top]
        order = np.lexsort((nums, -scores))[:limit]
        return list(zip(nums[order].tolist(), scores[order].tolist(), strict=True))

    def cosines(self, vector: np.ndarray, nums: Iterable[int]) -> dict[int, float]:
        """The cosines of the records among ``nums`` that have a vector."""
        places = {num: self._places[num] for num in nums if num in self._places}
        scores = _products(self._values[list(places.values())], vector)
        return dict(zip(places, scores.tolist(), strict=True))

    def _grow(self, size: int) -> None:
        if size > len(self._nums):
            room = max(size, len(self._nums) * 3 // 2, 64)
            for name in ("_nums", "_kinds", "_values"):
                old = getattr(self, name)
                new = np.empty((room, *old.shape[1:]), old.dtype)
                new[: len(self)] = old[: len(self)]
                setattr(self, name, new)


def _products(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    # Row by row: what a record scores does not depend on where it stands. And in this thread alone, while for a product
    # with a matrix there are several, which wait for one another for many milliseconds when another process computes.
    products: np.ndarray = np.vecdot(rows, vector)
    return products


class Arrays:
    """The arrays of the owners that were searched last, within ``budget`` bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[tuple[int, int], Array] = OrderedDict()

    def of(self, owner: int, embedder: int, dimension: int) -> Array:
        """The array of an owner, empty if it is not held."""
        array = self._held.setdefault((owner, embedder), Array(dimension))
        self._held.move_to_end((owner, embedder))
        return array

    def trim(self) -> None:
        """Drop what goes beyond the budget, but never the array used last."""
        while len(self._held) > 1 and sum(array.nbytes for array in self._held.values()) > self._budget:
            self._held.popitem(last=False)
