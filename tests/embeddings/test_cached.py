"""What holds for every embedder of ours, on one that needs no model."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memeplex.embeddings.base import Kind, Vectors
from memeplex.embeddings.cached import CachingEmbedder, Computed, VectorCache, normalised
from memeplex.embeddings.testing import HashingEmbedder
from memeplex.errors import EmbeddingError, ModelUnavailableError, UnknownNameError, UserError
from memeplex.telemetry import Event, ModelCalled, TextCut, subscribe
from memeplex.usage import Purpose, Usage

any_text = st.text(st.characters(codec=None), max_size=30)
any_texts = st.lists(any_text, max_size=12)
kinds = st.sampled_from(["query", "passage"])


class Listening(CachingEmbedder):
    """Two numbers for a text, and all it was asked. ``hold`` lets batches through one by one."""

    def __init__(self, **options: Any) -> None:
        super().__init__("listening:2", **options)
        self.asked: list[tuple[str, ...]] = []
        self.faults: list[Exception] = []
        self.hold: asyncio.Semaphore | None = None
        self.started = asyncio.Event()

    async def compute(self, texts: Sequence[str], kind: Kind) -> Computed:
        self.asked.append(tuple(texts))
        self.started.set()
        if self.hold:
            await self.hold.acquire()
        if self.faults:
            raise self.faults.pop(0)
        side = 2.0 if kind == "query" else 1.0
        return Computed([[side, 1.0 + len(text)] for text in texts], Usage(input=len(texts), calls=1))


def alone(embedder: CachingEmbedder, text: str, kind: Kind) -> Vectors:
    return asyncio.run(embedder.embed([text], kind=kind))[0]


# ---- what is handed out


@given(any_texts, kinds)
def test_vectors_are_of_length_one_and_in_order(texts: list[str], kind: Kind) -> None:
    vectors = asyncio.run(HashingEmbedder(32).embed(texts, kind=kind))
    assert vectors.shape == (len(texts), 32) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    for text, vector in zip(texts, vectors, strict=True):
        assert np.array_equal(alone(HashingEmbedder(32), text, kind), vector)


@given(any_texts, st.integers(1, 5), st.integers(1, 50))
def test_batches_do_not_show(texts: list[str], most: int, characters: int) -> None:
    whole = asyncio.run(Listening().embed(texts, kind="query"))
    cut = Listening(texts=most, characters=characters)
    vectors = asyncio.run(cut.embed(texts, kind="query"))
    assert whole.size == vectors.size == 0 or np.array_equal(whole, vectors)
    assert all(len(batch) <= most for batch in cut.asked)
    assert all(len(batch) == 1 or sum(map(len, batch)) <= characters for batch in cut.asked)


@given(any_texts, st.integers(0, 64))
def test_a_cache_of_any_size_changes_nothing(texts: list[str], limit: int) -> None:
    embedder = Listening(cache=VectorCache(limit), texts=2)
    first, again = [asyncio.run(embedder.embed(texts, kind="passage")) for _ in range(2)]
    assert np.array_equal(first, again)


async def test_what_is_handed_out_is_the_callers_own() -> None:
    embedder = HashingEmbedder(32)
    first = await embedder.embed(["a bridge"], kind="query")
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(await embedder.embed(["a bridge"], kind="query"), kept)


async def test_no_text_is_no_row() -> None:
    embedder = Listening()
    assert (await embedder.embed([], kind="query")).shape == (0, 0)
    await embedder.embed(["a"], kind="query")
    assert (await embedder.embed([], kind="query")).shape == (0, 2)
    assert embedder.asked == [("a",)]


# ---- what is computed


async def test_a_text_is_computed_once_for_each_kind() -> None:
    embedder = Listening()
    texts = ["b", "a", "b", "b\0"]
    vectors = await embedder.embed(texts, kind="query")
    assert np.array_equal(vectors[0], vectors[2]) and np.array_equal(vectors[0], vectors[3])
    await embedder.embed(("a", "c"), kind="query")
    other = await embedder.embed(["a"], kind="passage")
    assert embedder.asked == [("b", "a"), ("c",), ("a",)]
    assert not np.array_equal(other[0], vectors[1])


async def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    embedder = Listening(cache=VectorCache(3 * 8))
    for text in ("a", "b", "c", "a", "d", "a", "b"):
        await embedder.embed([text], kind="query")
    assert [batch[0] for batch in embedder.asked] == ["a", "b", "c", "d", "b"]


async def test_embedders_that_share_a_cache_do_not_mix_vectors() -> None:
    cache = VectorCache()
    small, large = HashingEmbedder(16, cache=cache), HashingEmbedder(32, cache=cache)
    await small.embed(["a"], kind="query")
    assert (await large.embed(["a"], kind="query")).shape == (1, 32)
    assert len(cache) == 2
    with subscribe(lambda event: pytest.fail(f"computed again: {event}")):
        await HashingEmbedder(16, cache=cache).embed(["a"], kind="query")


async def test_texts_are_cleaned_and_cut_before_anything_else() -> None:
    seen: list[Event] = []
    embedder = Listening(longest=4)
    with subscribe(seen.append):
        vectors = await embedder.embed(["abcdefgh", "abcdX", "abcd", "a\0b\ud800", "ab\ufffd"], kind="query")
    assert embedder.asked == [("abcd", "ab\ufffd")]
    assert np.array_equal(vectors[0], vectors[2]) and np.array_equal(vectors[3], vectors[4])
    cuts = [event for event in seen if isinstance(event, TextCut)]
    assert [(cut.embedder, cut.before, cut.after) for cut in cuts] == [("listening:2", 8, 4), ("listening:2", 5, 4)]


async def test_each_batch_is_an_event_with_its_cost() -> None:
    seen: list[Event] = []
    with subscribe(seen.append):
        await Listening(texts=2).embed(["a", "b", "c", "a"], kind="query")
    calls = [event for event in seen if isinstance(event, ModelCalled)]
    assert [(call.model, call.purpose, call.usage.input) for call in calls] == [
        ("listening:2", Purpose.EMBEDDING, 2),
        ("listening:2", Purpose.EMBEDDING, 1),
    ]


@pytest.mark.parametrize("texts", ["a text", [b"a"], [None], ["a", 1], None, 7, {"a", "b"}, (t for t in "ab")])
async def test_what_is_no_list_of_texts_is_refused(texts: Any) -> None:
    with pytest.raises(UserError, match="a list of texts"):
        await HashingEmbedder().embed(texts, kind="query")


async def test_an_unknown_kind_is_refused_with_no_text_too() -> None:
    for texts in ([], ["a"]):
        with pytest.raises(UnknownNameError) as caught:
            await HashingEmbedder().embed(texts, kind="document")  # type: ignore[arg-type]
        assert caught.value.known == ("query", "passage")


# ---- side by side


async def test_calls_side_by_side_compute_a_text_once() -> None:
    embedder = Listening(texts=1)
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(embedder.embed([text, "cue"], kind="query")) for text in "abcd"]
    assert sorted(embedder.asked) == [("a",), ("b",), ("c",), ("cue",), ("d",)]
    assert len({call.result()[1].tobytes() for call in calls}) == 1


@pytest.mark.parametrize("fault", ["cancelled", "failed"])
async def test_what_came_to_nothing_for_one_is_computed_for_the_others(fault: str) -> None:
    embedder = Listening()
    embedder.hold = asyncio.Semaphore(0)
    first = asyncio.create_task(embedder.embed(["cue"], kind="query"))
    await embedder.started.wait()
    others = [asyncio.create_task(embedder.embed(["cue"], kind="query")) for _ in range(2)]
    if fault == "cancelled":
        await asyncio.wait(others, timeout=0)
        first.cancel()
    else:
        embedder.faults.append(ModelUnavailableError("HTTP 503"))
    for _ in range(3):
        embedder.hold.release()
    with pytest.raises(asyncio.CancelledError if fault == "cancelled" else ModelUnavailableError):
        await first
    assert np.array_equal(await others[0], await others[1])
    # One at least tries for itself; the other may find its vector in the cache.
    assert len(embedder.asked) in (2, 3)


async def test_a_cancelled_call_keeps_what_it_has_and_leaves_nothing_behind() -> None:
    embedder = Listening(texts=1)
    embedder.hold = asyncio.Semaphore(1)
    task = asyncio.create_task(embedder.embed(["a", "b", "c"], kind="query"))
    while len(embedder.asked) < 2:
        await asyncio.wait([task], timeout=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    embedder.hold = None
    await embedder.embed(["a", "b", "c"], kind="query")
    assert embedder.asked == [("a",), ("b",), ("b",), ("c",)]
    assert not any(embedder._under_way.values())


def test_one_embedder_in_several_threads() -> None:
    embedder = HashingEmbedder(16, cache=VectorCache(10 * 64))
    texts = [f"text {n % 20}" for n in range(200)]
    expected = asyncio.run(HashingEmbedder(16).embed(texts, kind="query"))
    results: list[Vectors] = []

    def work() -> None:
        results.append(asyncio.run(embedder.embed(texts, kind="query")))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(np.array_equal(result, expected) for result in results)


# ---- what is taken for a vector

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=numbers))
def test_any_finite_vector_but_zero_is_brought_to_length_one(values: Any) -> None:
    count, dimension = values.shape
    if values.any(axis=1).all():
        vectors = normalised(values.tolist(), count=count, dimension=dimension, who="x")
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
        assert np.array_equal(np.sign(vectors) * np.sign(values) >= 0, np.ones_like(values, dtype=bool))
    else:
        with pytest.raises(EmbeddingError, match="zero"):
            normalised(values, count=count, dimension=dimension, who="x")


@pytest.mark.parametrize(
    "values",
    [
        [[1.0, 2.0]],
        [[1.0, 2.0]] * 3,
        [[1.0, 2.0], [1.0]],
        [[1.0, 2.0, 3.0]] * 2,
        [[1.0, float("nan")], [1.0, 1.0]],
        [[1.0, float("inf")], [1.0, 1.0]],
        [[0.0, 0.0], [1.0, 1.0]],
        [["1", "2"], ["3", "4"]],
        [[1.0, None], [1.0, 1.0]],
        [[True, True], [True, True]],
        [[10**400, 1], [1, 1]],
        [[[1.0, 2.0]], [[1.0, 2.0]]],
        [[], []],
        [1.0, 2.0],
        [None, None],
        None,
        {},
        "AAAA",
        ["AAAA", "BBBB"],
    ],
    ids=repr,
)
def test_anything_else_is_an_error_that_says_whose(values: Any) -> None:
    with pytest.raises(EmbeddingError, match=r"^x sent"):
        normalised(values, count=2, dimension=2, who="x")


async def test_the_dimension_is_learnt_from_the_first_answer_and_kept_to() -> None:
    class Changing(Listening):
        async def compute(self, texts: Sequence[str], kind: Kind) -> Computed:
            return Computed([[1.0] * len(text) for text in texts], Usage())

    embedder = Changing()
    await embedder.embed(["abc"], kind="query")
    assert embedder.dimension == 3
    with pytest.raises(EmbeddingError, match="dimension 2, not 3"):
        await embedder.embed(["de"], kind="query")
    assert (await embedder.embed(["fgh"], kind="query")).shape == (1, 3)
