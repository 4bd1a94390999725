"""The embedded model itself: about two dozen short calls of the 0.5B model, whose weights ``pull`` brings."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal

import aiohttp
import pytest
from pydantic import BaseModel, Field, StringConstraints

from memeplex.errors import ContextWindowError, MissingExtraError, ModelError, ModelNotFoundError, UnknownNameError
from memeplex.models import ChatMessage, Model, Settings, create_model, local, schema_model
from memeplex.models.weights import DEFAULT, pull
from memeplex.usage import Purpose

pytestmark = [pytest.mark.local_model, pytest.mark.xdist_group("local_model")]
NAME = f"local:{DEFAULT}"
STORY = "The archive holds 340 TB. It moves to Graz on 30 June. " * 12


class Note(BaseModel):
    """An object without an end of its own: nothing says that it may have no other properties."""

    topic: Literal["size", "place", "date"]
    words: list[Annotated[str, StringConstraints(max_length=30)]] = Field(min_length=1, max_length=2)


@pytest.fixture(scope="module")
def weights() -> Path:
    return pull(DEFAULT)


@pytest.fixture
async def model(weights: Path) -> AsyncIterator[Model]:
    made = create_model(NAME)
    yield made
    await made.aclose()


def prompt(question: str) -> list[ChatMessage]:
    return [{"role": "system", "content": STORY}, {"role": "user", "content": question}]


def brief(purpose: Purpose = Purpose.ANSWER, tokens: int = 12) -> Settings:
    return Settings(purpose=purpose, max_tokens=tokens, temperature=0.0, seed=1)


async def test_text_repeats_and_its_prompt_is_cached(model: Model) -> None:
    first, second = [await model.generate(prompt("Where to?"), None, brief()) for _ in range(2)]
    assert first.text == second.text and first.text
    assert second.usage.cached > 0.9 * second.usage.input and second.usage.calls == 1


async def test_memory_updates_do_not_evict_the_conversation(model: Model) -> None:
    await model.generate(prompt("Where to?"), None, brief())
    other: list[ChatMessage] = [{"role": "user", "content": "Note this: bridges are built of steel. " * 10}]
    for purpose in (Purpose.MEMORY_UPDATE, Purpose.VOTE):
        await model.generate(other, None, brief(purpose))
    again = await model.generate(prompt("How much?"), None, brief())
    assert again.usage.cached > 0.8 * again.usage.input


async def test_objects_are_valid_and_compact(model: Model) -> None:
    done = await model.generate(prompt("Make a note of the size."), Note, brief(tokens=80))
    assert Note.model_validate_json(done.text) == done.output
    assert done.text == json.dumps(json.loads(done.text), separators=(",", ":"), ensure_ascii=False)


async def test_schemas_of_team_files(model: Model) -> None:
    item = {"type": "string", "pattern": "^[A-Za-z][A-Za-z ]{1,12}$"}
    schema = {
        "type": "object",
        "required": ["rows"],
        "properties": {"rows": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"$ref": "#/$defs/row"}}},
        "$defs": {"row": {"type": "object", "required": ["item"], "properties": {"item": item}}},
    }
    done = await model.generate(prompt("List the places."), schema_model("Rows", schema), brief(tokens=120))
    assert done.output.root["rows"][0]["item"]


async def test_a_schema_that_the_grammar_engine_does_not_know_is_answered_all_the_same(model: Model) -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "not": {"const": 0}}}}
    done = await model.generate(prompt('Answer {"a": 340}'), schema_model("Odd", schema), brief(tokens=60))
    assert done.usage.calls <= 3
    assert done.output.root["a"] != 0


async def test_count_is_the_models_own(model: Model) -> None:
    assert await model.count("") == 0
    said = "Die Brücke über die Mur 橋"
    alone = await model.generate([{"role": "user", "content": said}], None, brief(tokens=1))
    with_twice = await model.generate([{"role": "user", "content": said * 2}], None, brief(tokens=1))
    assert with_twice.usage.input - alone.usage.input == await model.count(said * 2) - await model.count(said)


async def test_models_of_one_file_share_a_server_that_wants_its_key(model: Model, weights: Path) -> None:
    twin = create_model(f"local:{weights}")
    await asyncio.gather(*(m.generate(prompt("Where to?"), None, brief(tokens=2)) for m in (model, twin)))  # noqa: TID251
    assert isinstance(model, local.LocalModel) and isinstance(twin, local.LocalModel)
    address = model._server.address()
    assert address == twin._server.address() and "127.0.0.1" in address
    async with aiohttp.ClientSession() as session, session.post(f"{address}/v1/chat/completions", json={}) as reply:
        assert reply.status == 401
    await twin.aclose()


def test_one_model_in_two_event_loops(weights: Path) -> None:
    made = create_model(NAME)

    async def once() -> str:
        try:
            return (await made.generate(prompt("Where to?"), None, brief(tokens=3))).text
        finally:
            await made.aclose()

    assert asyncio.run(once()) == asyncio.run(once())


async def test_a_prompt_longer_than_the_window(model: Model) -> None:
    with pytest.raises(ContextWindowError):
        await model.generate([{"role": "user", "content": "steel bridge " * 5000}], None, brief())


async def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no model at all")
    with pytest.raises(ModelError) as caught:
        await create_model(f"local:{tmp_path / 'x.gguf'}").generate(prompt("?"))
    assert "x.gguf cannot be loaded" in str(caught.value) and "\n" not in str(caught.value) and caught.value.remedy


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ModelNotFoundError) as caught:
        create_model(NAME)
    assert caught.value.remedy == f"memeplex models pull {DEFAULT}"
    for path in (f"{tmp_path}/y.gguf", "~nosuchuser/y.gguf", "y" * 300 + ".gguf", "y\0.gguf"):
        with pytest.raises(ModelNotFoundError, match="no such file"):
            create_model(f"local:{path}")
    with pytest.raises(UnknownNameError):
        create_model("local:qwen9")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError) as caught:
        local.check_runtime()
    assert caught.value.remedy == "pip install 'memeplex[local]'"


QUIET = f"""
from memeplex import create_model, run_sync
model = create_model("{NAME}")
assert run_sync(model.generate([{{"role": "user", "content": "hi"}}])).text
"""


def test_a_process_that_uses_it_prints_nothing_and_ends(weights: Path) -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
