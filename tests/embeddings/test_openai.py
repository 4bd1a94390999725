"""Embedders at endpoints, against a fake one on the loopback address."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession, web
from pydantic import SecretStr

from memeplex.embeddings import Embedder, EmbedderOptions, create_embedder
from memeplex.embeddings.openai import OpenAIEmbedder
from memeplex.endpoint.backoff import Backoff
from memeplex.endpoint.gate import requests_allowed
from memeplex.errors import (
    AuthenticationError,
    ContextWindowError,
    EmbeddingError,
    ModelError,
    ModelNotFoundError,
    ModelUnavailableError,
    RequestForbiddenError,
    UserError,
)
from memeplex.teams import run_sync
from memeplex.telemetry import Event, ModelCalled, ReplyRetried, subscribe
from memeplex.usage import Purpose

KEY = "sk-very-secret-0123456789"


def vectors(*rows: Any, usage: Any = None) -> dict[str, Any]:
    data = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
    return {"object": "list", "data": data, "usage": usage or {"prompt_tokens": 5}}


def fault(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


async def nap(seconds: float) -> None:
    """No waiting in tests."""


class Server:
    """Gives its answers in order; without any, each text gets the vector (1, its length)."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Any] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.made: list[Embedder] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        answer = vectors(*([1, len(text)] for text in self.bodies[-1]["input"]))
        if self.answers:
            answer = self.answers.pop(0)
        if callable(answer):
            await answer()
        return answer if isinstance(answer, web.StreamResponse) else web.Response(text=json.dumps(answer))

    def embedder(self, *answers: Any, **options: Any) -> OpenAIEmbedder:
        self.answers += answers
        defaults = {"model": "m", "base_url": self.url, "api_key": SecretStr(KEY), "backoff": Backoff(sleep=nap)}
        made = OpenAIEmbedder("openai:m", **defaults | options)
        self.made.append(made)
        return made


@pytest.fixture
async def server(requests_forbidden: None) -> AsyncIterator[Server]:
    fake = Server()
    app = web.Application(client_max_size=10_000_000)
    app.router.add_post("/v1/embeddings", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    with requests_allowed():
        yield fake
    for embedder in fake.made:
        await embedder.aclose()
    await runner.cleanup()


async def fails(embedder: Embedder, error: type[ModelError], texts: tuple[str, ...] = ("a", "b")) -> ModelError:
    """The error, after a check of what holds for every error."""
    with pytest.raises(error) as caught:
        await embedder.embed(texts, kind="query")
    shown = f"{caught.value}{caught.value.remedy}{caught.value!r}{caught.value.__cause__!r}"
    assert KEY not in shown and "\n" not in str(caught.value) and "openai:m" in str(caught.value)
    return caught.value


async def test_vectors_and_what_they_cost(server: Server) -> None:
    seen: list[Event] = []
    embedder = server.embedder(vectors([3.0, 4.0], [0, -2]), body={"dimensions": 2})
    with subscribe(seen.append):
        made = await embedder.embed(["one", "two"], kind="passage")
    assert np.allclose(made, [[0.6, 0.8], [0.0, -1.0]]) and made.dtype == np.float32
    assert embedder.dimension == 2
    assert server.bodies == [{"model": "m", "input": ["one", "two"], "dimensions": 2}]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    (event,) = seen
    assert isinstance(event, ModelCalled) and event.purpose is Purpose.EMBEDDING and event.model == embedder.id
    assert (event.usage.input, event.usage.calls, event.usage.seconds > 0) == (5, 1, True)


async def test_usage_is_estimated_when_the_endpoint_is_silent(server: Server) -> None:
    seen: list[Event] = []
    with subscribe(seen.append):
        await server.embedder({"data": [{"embedding": [1.0]}]}).embed(["x" * 400], kind="query")
    assert isinstance(seen[0], ModelCalled) and 100 <= seen[0].usage.input < 120


async def test_vectors_come_in_any_order(server: Server) -> None:
    answer = vectors([1, 0], [0, 1], [1, 1])
    answer["data"].reverse()
    made = await server.embedder(answer).embed(["a", "b", "c"], kind="query")
    assert np.allclose(made[:2], [[1, 0], [0, 1]])


async def test_without_numbers_the_order_is_that_of_the_answer(server: Server) -> None:
    answer = {"data": [{"embedding": [1, 0]}, {"embedding": [0, 1]}]}
    assert np.allclose(await server.embedder(answer).embed(["a", "b"], kind="query"), [[1, 0], [0, 1]])


async def test_a_long_list_goes_in_several_requests(server: Server) -> None:
    texts = [f"{n:0>{n + 1}}" for n in range(130)]
    made = await server.embedder().embed(texts, kind="passage")
    assert [len(body["input"]) for body in server.bodies] == [64, 64, 2]
    assert np.allclose(made[:, 1] / made[:, 0], [len(text) for text in texts], rtol=1e-5)
    await server.embedder().embed(["a" * 60_000, "b" * 60_000, "c"], kind="passage")
    assert [len(body["input"]) for body in server.bodies[3:]] == [1, 2]


async def test_prefixes_go_before_texts_and_into_the_id(server: Server) -> None:
    plain = server.embedder()
    embedder = server.embedder(query_prefix="query: ", passage_prefix="passage: ")
    await embedder.embed(["a"], kind="query")
    await embedder.embed(["a"], kind="passage")
    assert [body["input"] for body in server.bodies] == [["query: a"], ["passage: a"]]
    assert plain.id == "openai:m" and embedder.id.startswith("openai:m+")
    assert len({plain.id, embedder.id, server.embedder(body={"dimensions": 2}).id}) == 3


async def test_text_is_fit_to_be_sent(server: Server) -> None:
    await server.embedder(longest=4).embed(["", "\0", "a\ud800b\0", "abcdefgh"], kind="query")
    assert server.bodies[0]["input"] == [" ", "a\ufffdb", "abcd"]


@pytest.mark.parametrize(
    "answer",
    [
        vectors([1, 2]),
        vectors([1, 2], [1, 2], [1, 2]),
        vectors([1, 2], [1]),
        vectors([1, 2, 3], [1, 2, 3]),
        vectors([1, 2], [0, 0]),
        vectors([1, 2], None),
        vectors([1, 2], ["1", "2"]),
        vectors([[1, 2]], [[1, 2]]),
        vectors("AACAPwAAAEA=", "AACAPwAAAEA="),
        web.Response(text='{"data": [{"index": 0, "embedding": [NaN, 1]}, {"index": 1, "embedding": [1, 1]}]}'),
        web.Response(text='{"data": [{"index": 0, "embedding": [1e999, 1]}, {"index": 1, "embedding": [1, 1]}]}'),
        {"data": [{"index": 0, "embedding": [1, 2]}, {"index": 0, "embedding": [1, 2]}]},
        {"data": [{"index": 1, "embedding": [1, 2]}, {"index": 2, "embedding": [1, 2]}]},
        {"data": [{"index": "x", "embedding": [1, 2]}, {"index": None, "embedding": [1, 2]}]},
        {"data": [{"embedding": [1, 2]}, 7]},
        {"data": []},
    ],
    ids=lambda answer: None,
)
async def test_an_answer_that_is_not_one_vector_for_each_text_is_an_error(server: Server, answer: Any) -> None:
    if isinstance(answer, web.Response):
        answer = web.Response(text=answer.text)
    embedder = server.embedder(answer, dimension=2)
    await fails(embedder, EmbeddingError)
    assert np.allclose((await embedder.embed(["a"], kind="query")) ** 2, 0.5), "nothing of it was kept"


@pytest.mark.parametrize("text", ["<html>Sign in</html>", "[]", '{"data": {}}', "[" * 100_000, "", '{"data": null}'])
async def test_an_answer_without_vectors_is_an_error(server: Server, text: str) -> None:
    await fails(server.embedder(web.Response(text=text)), ModelError)


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (401, f"Incorrect API key provided: {KEY}", AuthenticationError),
        (404, "The model m does not exist", ModelNotFoundError),
        (400, "This model's maximum context length is 8192 tokens.", ContextWindowError),
        (500, "input is too large to process. increase the physical batch size", ContextWindowError),
        (400, f"bad\nrequest {KEY}", ModelError),
        (307, "elsewhere", ModelError),
    ],
)
async def test_http_errors_are_typed_and_not_tried_again(
    server: Server, status: int, message: str, error: type[ModelError]
) -> None:
    caught = await fails(server.embedder(fault(status, message, {"Location": "/v1/embeddings"})), error)
    assert type(caught) is error and len(server.bodies) == 1
    assert error is not ContextWindowError or "longest" in caught.remedy


async def test_an_endpoint_that_is_overloaded_is_tried_again(server: Server) -> None:
    seen: list[Event] = []
    busy = [fault(429, "slow down", {"Retry-After": "3"}), {"error": {"message": "overloaded", "code": 503}}]
    with subscribe(seen.append):
        await server.embedder(*busy).embed(["a"], kind="query")
    assert [type(event) for event in seen] == [ReplyRetried, ReplyRetried, ModelCalled]
    await fails(server.embedder(*[fault(503, "loading") for _ in range(4)]), ModelUnavailableError)


async def test_an_endpoint_that_does_not_answer_in_time(server: Server) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    error = await fails(server.embedder(never, timeout=0.05, backoff=Backoff(attempts=1)), ModelUnavailableError)
    assert "0.05 s" in str(error)


async def test_requests_are_forbidden_unless_asked_for(server: Server) -> None:
    with requests_allowed(False):
        await fails(server.embedder(), RequestForbiddenError)
    assert not server.bodies


async def test_run_sync_leaves_no_connection_open_and_the_embedder_usable(server: Server) -> None:
    embedder = server.embedder()
    for text in ("a", "b"):
        await asyncio.to_thread(run_sync, embedder.embed([text], kind="query"))
    assert len(server.bodies) == 2
    assert not [o for o in gc.get_objects() if isinstance(o, ClientSession) and not o.closed]


async def test_a_name_with_an_address_works_end_to_end(server: Server) -> None:
    embedder = create_embedder(f"{server.url}?api-version=secret#bge-m3")
    server.made.append(embedder)
    assert (await embedder.embed(["a"], kind="query")).shape == (1, 2)
    assert server.bodies[0]["model"] == "bge-m3" and "Authorization" not in server.headers[0]
    assert embedder.id == f"{server.url}#bge-m3", "what an address asks for beside may be a key"


def made(name: str, **options: Any) -> OpenAIEmbedder:
    embedder = create_embedder(name, EmbedderOptions(**options))
    assert isinstance(embedder, OpenAIEmbedder)
    return embedder


def test_names_lead_to_addresses() -> None:
    assert made("ollama:bge-m3").connection.address == "http://127.0.0.1:11434/v1"
    assert made("openai:e", api_key=SecretStr(KEY)).connection.address == "https://api.openai.com/v1"
    assert made("openai:e", base_url="http://h/v1/").connection.address == "http://h/v1"
    assert made("https://h:8000/v1#org/e5").model == "org/e5"
    with pytest.raises(AuthenticationError) as caught:
        made("openai:e", key_name="MY_KEY")
    assert "MY_KEY" in caught.value.remedy


@pytest.mark.parametrize("name", ["http://h/v1", "http://h/v1#", "http://#m", "http://[::1#m", "http://me:pw@h/v1#m"])
def test_a_malformed_address_is_told_and_not_repeated(name: str) -> None:
    with pytest.raises(UserError) as caught:
        made(name)
    assert caught.value.remedy and "pw" not in str(caught.value)
