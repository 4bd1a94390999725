"""Grouping: a partition by average linkage that depends on the likeness alone."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from memeplex.memory.grouping import group, likeness_of

Likeness = NDArray[np.float32]


@st.composite
def likenesses(draw: st.DrawFn) -> Likeness:
    """Symmetric matrices with many ties among their values."""
    size = draw(st.integers(0, 9))
    values = draw(st.lists(st.integers(0, 20), min_size=size * size, max_size=size * size))
    half = np.array(values, np.float32).reshape(size, size) / 20
    made = np.maximum(half, half.T)
    np.fill_diagonal(made, 1)
    return made


leasts = st.integers(0, 20).map(lambda value: value / 20)


def sets(groups: list[list[int]]) -> set[frozenset[int]]:
    return {frozenset(one) for one in groups}


@given(likeness=likenesses(), least=leasts)
def test_it_is_a_partition_in_order(likeness: Likeness, least: float) -> None:
    groups = group(likeness, least)
    assert sorted(row for one in groups for row in one) == list(range(len(likeness)))
    assert all(one == sorted(one) for one in groups) and groups == sorted(groups)


@given(likeness=likenesses(), least=leasts, data=st.data())
def test_the_order_of_the_rows_changes_nothing(likeness: Likeness, least: float, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(likeness))))
    moved = likeness[np.ix_(order, order)]
    assert sets(group(likeness, least)) == {frozenset(order[i] for i in one) for one in group(moved, least)}


@given(likeness=likenesses(), least=leasts)
def test_no_two_groups_are_left_that_are_alike_enough(likeness: Likeness, least: float) -> None:
    for a, b in combinations(group(likeness, least), 2):
        assert np.round(likeness[np.ix_(a, b)].astype(float).mean(), 6) < least


@given(likeness=likenesses())
def test_the_extremes_of_the_threshold(likeness: Likeness) -> None:
    assert len(group(likeness, 0.0)) == min(1, len(likeness)), "all belong together"
    assert group(likeness, 1.01) == [[i] for i in range(len(likeness))], "nothing belongs together"


@given(likeness=likenesses(), least=leasts)
def test_the_matrix_is_left_as_it_is(likeness: Likeness, least: float) -> None:
    before = likeness.copy()
    group(likeness, least)
    assert np.array_equal(likeness, before)


def test_average_linkage_does_not_chain() -> None:
    """Of four in a row, each like its neighbour, single linkage would make one group."""
    chain = np.eye(4, dtype=np.float32)
    for i, value in ((0, 0.9), (1, 0.7), (2, 0.9)):
        chain[i, i + 1] = chain[i + 1, i] = value
    assert group(chain, 0.6) == [[0, 1], [2, 3]]
    assert group(chain, 0.17) == [[0, 1, 2, 3]], "(0.7 + 0 + 0 + 0) / 4 = 0.175"


@pytest.mark.parametrize("wobble", [0.0, 1e-7, -1e-7])
def test_the_same_text_belongs_together_whatever_float32_makes_of_it(wobble: float) -> None:
    assert group(np.full((3, 3), 1 + wobble, np.float32), 1.0) == [[0, 1, 2]]


def test_what_is_known_to_be_of_another_type_is_not_alike() -> None:
    vectors = np.full((4, 4), 0.5, np.float32)
    likeness = likeness_of(vectors, 0.5, ["bill", "bill", "card", ""])
    assert likeness.tolist() == [[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]], (
        "nobody knows what the last is"
    )
    assert likeness_of(vectors, 0.5, ["", "", "", ""]).min() == likeness_of(vectors, 0.5).min() == 1
