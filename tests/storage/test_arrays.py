"""Arrays of vectors in memory never serve what is gone, nor miss what is there, whoever wrote it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.test_records import add, near, record, texts, vectors

from memeplex.storage import Store, open_store
from memeplex.storage.sqlite.arrays import Array, Arrays


@pytest.fixture
async def pair(tmp_path: Path) -> Any:
    """Two stores on one file, as two processes have them."""
    opened = [open_store(str(tmp_path / "x.db")) for _ in range(2)]
    yield opened
    for one in opened:
        await one.aclose()


async def test_what_another_process_does_is_seen_at_once(pair: list[Store]) -> None:
    ours, theirs = pair
    made = await add(theirs, "steel", "granite", seeds=(1, 2))
    assert await texts(ours, near(1)) == ["steel", "granite"]
    await add(theirs, "wood", seeds=(3,))
    assert (await texts(ours, near(3)))[0] == "wood"
    await theirs.records.forget("ada", [made[0].id], actor="test")
    assert set(await texts(ours, near(1))) == {"granite", "wood"}
    await theirs.records.edit(made[1].model_copy(update={"text": "iron"}), vectors(9), actor="test")
    assert (await texts(ours, near(9)))[0] == "iron"
    await theirs.records.purge("ada", actor="test")
    assert await texts(ours, near(1)) == []
    await add(theirs, "new", seeds=(1,))
    assert await texts(ours, near(1)) == ["new"], "an owner of the same name is another"


async def test_owners_beyond_the_budget_are_dropped_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memeplex.storage.sqlite.store._ARRAYS", 1)
    store = open_store(str(tmp_path / "x.db"))
    for name in "abc":
        await store.records.add([record(f"steel of {name}", name)], vectors(1), actor="test")
    for name in "abcabc":
        assert await texts(store, near(1, owners=(name,))) == [f"steel of {name}"]
        assert len(store.records._searcher._arrays._held) == 1  # type: ignore[attr-defined]
    assert len(await texts(store, near(1, owners=("a", "b", "c")))) == 3
    await store.aclose()


def test_the_owner_searched_last_is_dropped_last() -> None:
    held = Arrays(budget=4000)  # enough for two arrays
    for owner in (1, 2, 1, 3, 1, 4):
        array = held.of(owner, 1, 4)
        if not len(array):
            array.put([owner], [0], np.ones((1, 4), np.float32))
        held.trim()
    assert {owner for owner, _ in held._held} == {1, 4}


@given(st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.integers(0, 20)), max_size=60))
def test_an_array_is_what_a_table_would_be(steps: list[tuple[str, int]]) -> None:
    array, table = Array(3), dict[int, np.ndarray]()
    for count, (what, num) in enumerate(steps):
        value = np.random.default_rng(count).normal(size=3).astype(np.float32)
        if what == "put":
            array.put([num], [num % 2], value[None])
            table[num] = value
        elif num in table:
            array.remove([num])
            del table[num]
    query = np.ones(3, np.float32)
    assert dict(array.best(query, 50, None)) == pytest.approx({n: float(v @ query) for n, v in table.items()}, abs=1e-5)
    odd = {num for num, _ in array.best(query, 50, [1])}
    assert odd == {num for num in table if num % 2}
    best = [num for num, _ in array.best(query, 3, None)]
    assert best == sorted(table, key=lambda n: -float(table[n] @ query))[:3]


def test_what_a_record_scores_does_not_depend_on_where_it_stands() -> None:
    """Each process has its own order, in which equal records would else come now in this order, now in that."""
    rng = np.random.default_rng(0)
    same, query = rng.normal(size=(2, 384)).astype(np.float32)
    values = rng.normal(size=(2000, 384)).astype(np.float32) / 9
    values[::7] = same
    for order in (np.arange(2000), rng.permutation(2000)):
        array = Array(384)
        array.put(order.tolist(), [0] * 2000, values[order])
        equal = range(0, 2000, 7)
        scores = array.cosines(query, equal)
        assert len(set(scores.values())) == 1
        assert dict(array.best(query, 2000, None)).items() >= scores.items()
        assert [num for num, _ in array.best(same, 10, None)] == list(equal[:10]), "of equals, the oldest"


def test_searching_changes_nothing() -> None:
    array = Array(2)
    array.put([1, 2], [0, 0], np.eye(2, dtype=np.float32))
    first = array.best(np.array([1, 0], np.float32), 2, None)
    assert array.best(np.array([1, 0], np.float32), 2, None) == first == [(1, 1.0), (2, 0.0)]
