"""What models and embedders share; how a model meets the faults of an endpoint is in tests/models."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from pydantic import SecretStr

from memeplex.endpoint.backoff import Backoff
from memeplex.endpoint.client import Endpoint
from memeplex.endpoint.gate import requests_allowed
from memeplex.errors import ModelError, ModelUnavailableError, RequestForbiddenError


@asynccontextmanager
async def serving(answer: web.Response, longest: int) -> AsyncIterator[Endpoint]:
    async def handle(request: web.Request) -> web.Response:
        return answer

    app = web.Application()
    app.router.add_post("/v1/any", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/?version=1"
    endpoint = Endpoint("x:m", address, api_key=SecretStr("secret-key"), longest=longest)
    with requests_allowed():
        yield endpoint
    await endpoint.aclose()
    await runner.cleanup()


async def test_an_answer_is_read_to_its_bound_and_no_further() -> None:
    async with serving(web.Response(text="x" * 1000), longest=1000) as endpoint:
        assert (await endpoint.post("/any", {})).text == "x" * 1000
    async with serving(web.Response(text="x" * 1001), longest=1000) as endpoint:
        with pytest.raises(ModelError, match=r"x:m at http://127.* sent more than 1,000 bytes"):
            await endpoint.post("/any", {})


async def test_the_bound_counts_what_comes_out_of_a_compressed_answer() -> None:
    packed = gzip.compress(b"x" * 10_000_000)
    answer = web.Response(body=packed, headers={"Content-Encoding": "gzip"})
    async with serving(answer, longest=100_000) as endpoint:
        with pytest.raises(ModelError, match="sent more than"):
            await endpoint.post("/any", {})


async def test_no_request_leaves_while_they_are_turned_off() -> None:
    async with serving(web.Response(text="x"), longest=10) as endpoint:
        with requests_allowed(False), pytest.raises(RequestForbiddenError, match="x:m"):
            await endpoint.post("/any", {})


async def test_a_cancelled_wait_ends_the_tries() -> None:
    reached = asyncio.Event()
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise ModelUnavailableError("HTTP 429")

    async def forever(seconds: float) -> None:
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(Backoff(sleep=forever).run(call, lambda reason: None))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert calls == 1 and caught.value.__context__ is None
