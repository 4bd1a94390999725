import asyncio
import gc
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import ClientSession, web
from pydantic import BaseModel, Field, SecretStr

from memeplex.endpoint.client import LONGEST_ANSWER
from memeplex.endpoint.gate import requests_allowed
from memeplex.errors import (
    AuthenticationError,
    ContextWindowError,
    EmptyReplyError,
    ModelError,
    ModelNotFoundError,
    ModelUnavailableError,
    RefusalError,
    RequestForbiddenError,
    StructuredOutputError,
    UserError,
)
from memeplex.models.base import ChatMessage, Model, ModelOptions, Settings
from memeplex.models.openai import (
    OpenAIModel,
    create_endpoint,
    create_ollama,
    create_openai,
    guess_billions,
)
from memeplex.models.retry import RetryModel
from memeplex.teams import run_sync
from memeplex.telemetry import Event, ModelCalled, ReplyRetried, subscribe
from memeplex.usage import Purpose, Usage

KEY = "sk-very-secret-0123456789"
PROMPT = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Who are you?")]


class Fact(BaseModel):
    fact: str = Field(max_length=40)


def chat(content: Any = "", finish: str = "stop", usage: Any = None, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **fields}
    usage = usage or {"prompt_tokens": 10, "completion_tokens": 3}
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def fault(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


class Server:
    """A fake endpoint on the loopback address that gives a list of answers in order."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Any] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.models: list[OpenAIModel] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        answer = self.answers.pop(0)
        if callable(answer):
            answer = await answer()
        if isinstance(answer, web.StreamResponse):
            return answer
        # ASCII escapes, as an endpoint would send a lone surrogate.
        return web.Response(text=json.dumps(answer), content_type="application/json")

    def model(self, *answers: Any, **options: Any) -> OpenAIModel:
        self.answers += answers
        options = {"model": "m", "base_url": self.url, "api_key": SecretStr(KEY)} | options
        self.models.append(OpenAIModel("openai:m", **options))
        return self.models[-1]


@pytest.fixture
async def server(requests_forbidden: None) -> AsyncIterator[Server]:
    fake = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    with requests_allowed():
        yield fake
    for model in fake.models:
        await model.aclose()
    await runner.cleanup()


async def fails(model: Model, error: type[ModelError]) -> ModelError:
    """The error, after a check of what holds for every error."""
    with pytest.raises(error) as caught:
        await model.generate(PROMPT)
    shown = f"{caught.value}{caught.value.remedy}{caught.value!r}{caught.value.__cause__!r}"
    assert KEY not in shown
    assert "\n" not in str(caught.value)
    assert "openai:m" in str(caught.value) and "127.0.0.1" in str(caught.value)
    return caught.value


async def test_a_reply_and_what_it_cost(server: Server) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}}
    model = server.model(chat("A moderator.", usage=usage), temperature=0.3, body={"top_p": 0.9})
    done = await model.generate(PROMPT, settings=Settings(max_tokens=77, seed=5))
    assert (done.text, done.output, done.finish, done.model) == ("A moderator.", None, "stop", "openai:m")
    assert done.usage.seconds > 0
    assert done.usage == Usage(input=50, cached=40, output=7, calls=1, seconds=done.usage.seconds)
    assert server.bodies == [
        {"model": "m", "messages": PROMPT, "max_tokens": 77, "seed": 5, "temperature": 0.3, "top_p": 0.9}
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_cached_tokens_of_llama_cpp(server: Server) -> None:
    model = server.model({**chat("x"), "timings": {"cache_n": 8}})
    assert (await model.generate(PROMPT)).usage.cached == 8


async def test_more_from_the_cache_than_was_sent_is_not_believed(server: Server) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 10**15}}
    assert (await server.model(chat("x", usage=usage)).generate(PROMPT)).usage.cached == 7


@pytest.mark.parametrize("status", [201, 203])
async def test_a_success_by_another_number_is_one(server: Server, status: int) -> None:
    answer = web.json_response(chat("x"), status=status)
    assert (await server.model(answer).generate(PROMPT)).text == "x"


async def test_a_byte_order_mark_is_passed_over(server: Server) -> None:
    answer = web.Response(body=b"\xef\xbb\xbf" + json.dumps(chat("x")).encode(), content_type="application/json")
    assert (await server.model(answer).generate(PROMPT)).text == "x"


@pytest.mark.parametrize("quoted", [KEY, KEY[:5] + "\x1b[0m" + KEY[5:], "\x00".join((KEY[:9], KEY[9:]))])
async def test_a_key_quoted_in_a_refusal_or_an_error_is_not_repeated(server: Server, quoted: str) -> None:
    for answer in (chat(None, refusal=f"your key {quoted} is bad"), fault(400, f"your key {quoted} is bad")):
        with pytest.raises(ModelError) as caught:
            await server.model(answer).generate(PROMPT)
        assert KEY not in str(caught.value).replace("\x1b[0m", "").replace("\x00", "")
        assert "***" in str(caught.value)


@pytest.mark.parametrize("amount", ["1e999", "Infinity", "NaN", "-1", "9" * 400])
async def test_an_amount_that_no_count_can_be_is_not_believed(server: Server, amount: str) -> None:
    text = f'{{"choices": [{{"message": {{"content": "Hi"}}}}], "usage": {{"prompt_tokens": {amount}}}}}'
    done = await server.model(web.Response(text=text)).generate(PROMPT)
    assert done.text == "Hi" and 0 < done.usage.input < 100


async def test_a_reply_far_beyond_max_tokens_is_cut(server: Server) -> None:
    done = await server.model(chat("word " * 100_000)).generate(PROMPT, settings=Settings(max_tokens=10))
    assert (len(done.text), done.finish) == (320, "length")


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_without_end_is_not_read_to_its_end(server: Server, status: int) -> None:
    # A bomb: a few kilobytes on the wire, sixty-four megabytes unpacked.
    bomb = gzip.compress(bytes(2 * LONGEST_ANSWER))
    answer = web.Response(status=status, body=bomb, headers={"Content-Encoding": "gzip"})
    tracemalloc.start()
    error = await fails(server.model(answer), ModelError)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "sent more than 33,554,432 bytes" in str(error)
    assert peak < 1.75 * LONGEST_ANSWER


async def test_a_host_name_that_cannot_be_is_out_of_reach(server: Server) -> None:
    model = server.model(base_url=f"http://{'a' * 70}.127.0.0.1.test/v1")
    await fails(model, ModelUnavailableError)


async def test_usage_is_estimated_when_the_endpoint_is_silent(server: Server) -> None:
    answer = chat("four words are here")
    del answer["usage"]
    usage = (await server.model(answer).generate(PROMPT)).usage
    assert usage.input > 4 and usage.output >= 4


async def test_settings_go_before_the_models_own_temperature(server: Server) -> None:
    await server.model(chat("x"), temperature=0.3).generate(PROMPT, settings=Settings(temperature=0.0))
    assert server.bodies[0]["temperature"] == 0.0


async def test_extend_has_the_last_say(server: Server) -> None:
    def extend(body: dict[str, object], settings: Settings) -> dict[str, object]:
        return {**body, "temperature": None, "id_slot": {Purpose.VOTE: 2}.get(settings.purpose, 0)}

    await server.model(chat("x"), extend=extend).generate(PROMPT, settings=Settings(purpose=Purpose.VOTE))
    assert (server.bodies[0]["temperature"], server.bodies[0]["id_slot"]) == (None, 2)


async def test_nul_and_lone_surrogates_are_cleaned_both_ways(server: Server) -> None:
    model = server.model(chat("a\0b\ud83dc 🎉"))
    done = await model.generate([ChatMessage(role="user", content="x\ud800\0")])
    assert done.text == "ab\ufffdc 🎉"
    assert server.bodies[0]["messages"][0]["content"] == "x\ufffd"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>I wonder.</think>\n\nYes.", "Yes."),
        ("I wonder.\n</think>\n\nYes.", "Yes."),
        ("Yes, <think> is a tag.", "Yes, <think> is a tag."),
        ("<think>a</think><think>b</think>Yes.", "Yes."),
        ("<THINK>a</THINK >\nYes.", "Yes."),
        ("<think>a <think>b</think> c</think>Yes.", "Yes."),
        ([{"type": "text", "text": "Ye"}, {"type": "text", "text": "s."}], "Yes."),
    ],
)
async def test_thoughts_are_not_part_of_the_reply(server: Server, content: Any, text: str) -> None:
    assert (await server.model(chat(content)).generate(PROMPT)).text == text


@pytest.mark.parametrize(
    "first",
    [
        chat("", reasoning_content="Hm."),
        chat(None, reasoning="Hm."),
        chat("", thinking="Hm."),
        chat("", "length"),
        chat("<think>Hm, let me", "length"),
    ],
)
async def test_a_reply_lost_in_thought_is_asked_for_again_with_more_room(server: Server, first: Any) -> None:
    seen: list[Event] = []
    with subscribe(seen.append):
        done = await server.model(first, chat("Yes.")).generate(PROMPT, settings=Settings(max_tokens=100))
    assert done.text == "Yes."
    assert (done.usage.calls, done.usage.input, done.usage.output) == (2, 20, 6)
    assert [body["max_tokens"] for body in server.bodies] == [100, 400]
    assert [body.get("reasoning_effort") for body in server.bodies] == [None, "low"]
    assert [type(event) for event in seen] == [ModelCalled, ReplyRetried, ModelCalled]


async def test_the_adapted_retry_drops_a_field_that_the_endpoint_does_not_know(server: Server) -> None:
    refusal = fault(400, "Unrecognized request argument supplied: reasoning_effort")
    done = await server.model(chat("", "length"), refusal, chat("Yes.")).generate(PROMPT)
    assert done.text == "Yes."
    assert "reasoning_effort" not in server.bodies[2]
    assert server.bodies[2]["max_tokens"] == 4 * server.bodies[0]["max_tokens"]


async def test_an_empty_reply_is_an_error_after_one_adapted_retry(server: Server) -> None:
    await_error = server.model(chat("", reasoning="Hm."), chat(" \n", "length"), chat("never asked for"))
    with pytest.raises(EmptyReplyError):
        await await_error.generate(PROMPT)
    assert len(server.bodies) == 2


async def test_more_room_never_passes_the_window(server: Server) -> None:
    await server.model(chat(""), chat("x"), window=1000).generate(PROMPT, settings=Settings(max_tokens=300))
    assert server.bodies[1]["max_tokens"] == 500


async def test_max_tokens_gets_its_new_name_where_the_old_one_is_refused(server: Server) -> None:
    told = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
    model = server.model(fault(400, told), chat("x"), chat("y"))
    await model.generate(PROMPT)
    await model.generate(PROMPT)
    assert ["max_tokens" in body for body in server.bodies] == [True, False, False]
    assert server.bodies[2]["max_completion_tokens"] == 512


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (401, f"Incorrect API key provided: {KEY}", AuthenticationError),
        (403, "forbidden", AuthenticationError),
        (404, "The model m does not exist", ModelNotFoundError),
        (400, "This model's maximum context length is 4096 tokens.", ContextWindowError),
        (400, "the request exceeds the available context size, try increasing it", ContextWindowError),
        (413, "prompt is too long: 5000 tokens", ContextWindowError),
        (429, "slow down", ModelUnavailableError),
        (500, f"boom {KEY}", ModelUnavailableError),
        (503, "Loading model", ModelUnavailableError),
        (400, f"bad\nrequest {KEY} {'x' * 180} {KEY}", ModelError),
    ],
)
async def test_http_errors_are_typed_and_hold_no_key(
    server: Server, status: int, message: str, error: type[ModelError]
) -> None:
    caught = await fails(server.model(fault(status, message)), error)
    assert type(caught) is error
    assert str(status) in str(caught)


async def test_an_error_within_a_success_is_an_error(server: Server) -> None:
    await fails(server.model({"error": {"message": "overloaded", "code": 429}}), ModelUnavailableError)


@pytest.mark.parametrize("text", ["<html>Sign in</html>", "[]", '{"choices": []}', "[" * 100_000, ""])
async def test_an_answer_without_a_reply_is_an_error(server: Server, text: str) -> None:
    await fails(server.model(web.Response(text=text)), ModelError)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("Fri, 01 Jan 2021 00:00:00 GMT", 0.0),
        ("Fri, 01 Jan 99999999999 00:00:00 GMT", None),
        ("soon", None),
    ],
)
async def test_retry_after_in_both_forms(server: Server, header: str, seconds: float | None) -> None:
    error = await fails(server.model(fault(429, "slow down", {"Retry-After": header})), ModelUnavailableError)
    assert isinstance(error, ModelUnavailableError) and error.retry_after == seconds


async def test_a_storm_of_429_is_waited_out(server: Server) -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    busy = [fault(429, "slow down", {"Retry-After": "3"}) for _ in range(2)]
    model = RetryModel(server.model(*busy, chat("x")), sleep=nap, jitter=lambda longest: 0.0)
    assert (await model.generate(PROMPT)).text == "x"
    assert naps == [3.0, 3.0]


async def test_an_endpoint_that_is_not_there(server: Server, unused_port: int) -> None:
    model = server.model(base_url=f"http://127.0.0.1:{unused_port}/v1")
    await fails(model, ModelUnavailableError)


@pytest.fixture
async def unused_port() -> int:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port: int = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    return port


async def test_an_endpoint_that_does_not_answer_in_time(server: Server) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    error = await fails(server.model(never, timeout=0.05), ModelUnavailableError)
    assert "0.05 s" in str(error)


async def test_a_redirect_says_where_to(server: Server) -> None:
    answer = web.Response(status=301, headers={"Location": "https://elsewhere.example/v1"})
    error = await fails(server.model(answer), ModelError)
    assert "https://elsewhere.example/v1" in error.remedy


async def test_an_answer_that_breaks_off_was_reached(server: Server) -> None:
    async def cut() -> web.StreamResponse:
        return web.Response(body=b"not gzip at all", headers={"Content-Encoding": "gzip"})

    error = await fails(server.model(cut), ModelUnavailableError)
    assert "cannot be read" in str(error) and "cannot be reached" not in str(error)


async def test_redirects_do_not_carry_the_key_away(server: Server) -> None:
    away = web.Response(status=307, headers={"Location": server.url + "/chat/completions"})
    await fails(server.model(away, chat("x")), ModelError)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("answer", [chat("par", "content_filter"), chat(None, refusal="I cannot help.")])
async def test_refusals_are_not_retried(server: Server, answer: Any) -> None:
    with pytest.raises(RefusalError):
        await server.model(answer).generate(PROMPT)
    assert len(server.bodies) == 1


async def test_the_schema_goes_over_the_wire(server: Server) -> None:
    done = await server.model(chat('{"fact": "S3"}')).generate(PROMPT, Fact)
    assert done.output == Fact(fact="S3")
    sent = server.bodies[0]["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["properties"]["fact"]["maxLength"] == 40
    assert server.bodies[0]["messages"] == PROMPT


@pytest.mark.parametrize(("status", "told"), [(400, "response_format"), (422, "json_schema"), (501, "no")])
async def test_weaker_modes_are_found_and_remembered(server: Server, status: int, told: str) -> None:
    good = chat('{"fact": "S3"}')
    model = server.model(fault(status, told), fault(status, told), good, good)
    assert (await model.generate(PROMPT, Fact)).usage.calls == 1
    assert (await model.generate(PROMPT, Fact)).output.fact == "S3"
    kinds = [body.get("response_format", {}).get("type") for body in server.bodies]
    assert kinds == ["json_schema", "json_object", None, None]
    assert [("maxLength" in body["messages"][-1]["content"]) for body in server.bodies] == [False, True, True, True]
    assert server.bodies[3]["messages"][-1]["content"].startswith("Who are you?")


async def test_a_400_about_something_else_does_not_change_the_mode(server: Server) -> None:
    model = server.model(fault(400, "maximum context length is 10"), chat('{"fact": "S3"}'))
    with pytest.raises(ContextWindowError):
        await model.generate(PROMPT, Fact)
    await model.generate(PROMPT, Fact)
    assert server.bodies[1]["response_format"]["type"] == "json_schema"


async def test_empty_then_prose_then_fenced_json_succeeds_at_the_third(server: Server) -> None:
    fenced = chat('Here:\n```json\n{"fact": "S3"}\n```')
    done = await server.model(chat(""), chat("I think S3."), fenced).generate(PROMPT, Fact)
    assert done.output.fact == "S3"
    assert done.usage.calls == 3
    roles = [message["role"] for message in server.bodies[2]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert server.bodies[2]["messages"][2]["content"] == "I think S3."
    assert "no JSON" in server.bodies[2]["messages"][3]["content"]
    assert "maxLength" in server.bodies[2]["messages"][3]["content"]


async def test_an_endpoint_that_ignores_the_schema_gets_it_in_the_prompt_from_then_on(server: Server) -> None:
    good = chat('{"fact": "S3"}')
    model = server.model(chat("prose"), good, good)
    await model.generate(PROMPT, Fact)
    await model.generate(PROMPT, Fact)
    assert "maxLength" in server.bodies[2]["messages"][-1]["content"]
    assert server.bodies[2]["response_format"]["type"] == "json_schema"


async def test_three_bad_replies_are_an_error_that_holds_them(server: Server) -> None:
    model = server.model(chat("one"), chat('{"fact": 2}'), chat('{"fiction": "three"}'), chat('{"fact": "4"}'))
    with pytest.raises(StructuredOutputError) as caught:
        await model.generate(PROMPT, Fact)
    assert caught.value.replies == ("one", '{"fact": 2}', '{"fiction": "three"}')
    assert len(server.bodies) == 3


async def test_a_truncated_object_gets_twice_the_room(server: Server) -> None:
    model = server.model(chat('{"fact": "Kafka on three no', "length"), chat('{"fact": "Kafka on three nodes"}'))
    done = await model.generate(PROMPT, Fact, Settings(max_tokens=10))
    assert done.output.fact == "Kafka on three nodes"
    assert [body["max_tokens"] for body in server.bodies] == [10, 20]
    assert server.bodies[1]["messages"] == PROMPT


async def test_an_object_truncated_again_is_taken_repaired_and_marked(server: Server) -> None:
    cut = chat('{"fact": "Kafka on', "length")
    done = await server.model(cut, cut).generate(PROMPT, Fact)
    assert (done.output.fact, done.finish, done.usage.calls) == ("Kafka on", "length", 2)


async def test_events_name_model_purpose_and_usage(server: Server) -> None:
    seen: list[Event] = []
    with subscribe(seen.append):
        await server.model(chat("x")).generate(PROMPT, settings=Settings(purpose=Purpose.MEMORY_UPDATE))
    (event,) = seen
    assert isinstance(event, ModelCalled)
    assert (event.model, event.purpose, event.usage.input) == ("openai:m", Purpose.MEMORY_UPDATE, 10)


async def test_side_by_side_calls_share_one_session_and_it_can_be_reopened(server: Server) -> None:
    model = server.model(*[chat(str(n)) for n in range(9)])
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(model.generate(PROMPT)) for _ in range(8)]
    assert sorted(call.result().text for call in calls) == list("01234567")
    await model.aclose()
    await model.aclose()
    assert (await model.generate(PROMPT)).text == "8"


def test_one_model_serves_several_event_loops() -> None:
    async def ask(url: str) -> str:
        text = (await model.generate(PROMPT)).text
        await model.aclose()
        return text

    async def serve(use: Callable[[str], Any]) -> Any:
        fake = Server()
        fake.answers = [chat("x")]
        app = web.Application()
        app.router.add_post("/v1/chat/completions", fake.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        model.connection.address = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            return await use(model.endpoint)
        finally:
            await runner.cleanup()

    model = OpenAIModel("openai:m", model="m", base_url="http://127.0.0.1:1/v1")
    with requests_allowed():
        assert [asyncio.run(serve(ask)) for _ in range(2)] == ["x", "x"]


async def test_requests_are_forbidden_unless_asked_for() -> None:
    model = OpenAIModel("openai:m", model="m", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(RequestForbiddenError, match="openai:m"):
        await model.generate(PROMPT)


def test_openai_wants_a_key_before_any_request() -> None:
    for key in (None, SecretStr(" ")):
        with pytest.raises(AuthenticationError) as caught:
            create_openai("openai:gpt-5", ModelOptions(api_key=key, key_name="MY_KEY"))
        assert "MY_KEY" in caught.value.remedy
    with pytest.raises(AuthenticationError) as caught:
        create_openai("openai:gpt-5", ModelOptions())
    assert "OPENAI_API_KEY" in caught.value.remedy


def inner(model: Model) -> OpenAIModel:
    assert isinstance(model, RetryModel) and isinstance(model.inner, OpenAIModel)
    return model.inner


def test_no_key_is_wanted_elsewhere() -> None:
    assert inner(create_openai("openai:m", ModelOptions(base_url="http://h/v1/"))).endpoint == "http://h/v1"
    ollama = create_ollama("ollama:gemma3:12b", ModelOptions(window=4096))
    assert (inner(ollama).endpoint, inner(ollama).model) == ("http://127.0.0.1:11434/v1", "gemma3:12b")
    assert (ollama.name, ollama.window, ollama.billions) == ("ollama:gemma3:12b", 4096, 12.0)
    endpoint = inner(create_endpoint("https://h:8000/v1#org/qwen3", ModelOptions()))
    assert (endpoint.endpoint, endpoint.model) == ("https://h:8000/v1", "org/qwen3")


@pytest.mark.parametrize("name", ["http://h/v1", "http://h/v1#", "http://#m", "http:#m", "http://[::1#m"])
def test_a_malformed_endpoint_is_told_the_right_form(name: str) -> None:
    with pytest.raises(UserError) as caught:
        create_endpoint(name, ModelOptions())
    assert "http(s)://host/v1#NAME" in caught.value.remedy


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError) as caught:
        create_endpoint("http://me:hunter2@h/v1#m", ModelOptions())
    assert "hunter2" not in str(caught.value) + caught.value.remedy


def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated() -> None:
    with pytest.raises(AuthenticationError) as caught:
        OpenAIModel("openai:m", model="m", base_url="http://h/v1", api_key=SecretStr("a\nb-secret"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gemma3:12b", 12.0),
        ("qwen2.5-coder-0.5b", 0.5),
        ("Llama-3.1-8B-Instruct", 8.0),
        ("gpt-4o", None),
        ("bge-base", None),
        ("model-4bit", None),
    ],
)
def test_size_is_read_from_the_name(name: str, billions: float | None) -> None:
    assert guess_billions(name) == billions


async def test_run_sync_leaves_no_connection_open_and_the_model_usable(server: Server) -> None:
    model = server.model(chat("one"), chat("two"))
    said = [(await asyncio.to_thread(run_sync, model.generate(PROMPT))).text for _ in range(2)]
    assert said == ["one", "two"]
    assert not [o for o in gc.get_objects() if isinstance(o, ClientSession) and not o.closed]
