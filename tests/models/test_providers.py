import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from memeplex.endpoint.gate import requests_allowed
from memeplex.errors import (
    AuthenticationError,
    ContextWindowError,
    MissingExtraError,
    ModelError,
    ModelNotFoundError,
    ModelUnavailableError,
    RefusalError,
    RequestForbiddenError,
    UnknownNameError,
)
from memeplex.models.base import ChatMessage, ModelOptions, Settings
from memeplex.models.providers import VendorModel, _missing, create_vendor
from memeplex.usage import Usage

pytest.importorskip("pydantic_ai")

from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel as VendorTestModel
from pydantic_ai.usage import RequestUsage

KEY = "sk-very-secret-0123456789"
PROMPT = [
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="user", content="Who?"),
    ChatMessage(role="assistant", content="Me."),
    ChatMessage(role="user", content="Really?"),
]


class Fact(BaseModel):
    fact: str


@pytest.fixture
def allowed(requests_forbidden: None) -> Iterator[None]:
    with requests_allowed():
        yield


def vendor(reply: Any, seen: list[Any] | None = None, **options: Any) -> VendorModel:
    def function(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append((messages, info))
        if isinstance(reply, Exception):
            raise reply
        return reply(info) if callable(reply) else reply

    return VendorModel("vendor:m", FunctionModel(function), secret=KEY, **options)


@pytest.mark.usefixtures("allowed")
async def test_text_usage_and_settings_are_mapped() -> None:
    seen: list[Any] = []
    usage = RequestUsage(input_tokens=50, cache_read_tokens=40, output_tokens=7)
    model = vendor(ModelResponse(parts=[TextPart("Yes\0.")], usage=usage, finish_reason="length"), seen)
    done = await model.generate(PROMPT, settings=Settings(max_tokens=77, temperature=0.2, seed=5))
    assert (done.text, done.finish, done.model) == ("Yes.", "length", "vendor:m")
    assert done.usage == Usage(input=50, cached=40, output=7, calls=1, seconds=done.usage.seconds)
    messages, info = seen[0]
    assert [message.kind for message in messages] == ["request", "response", "request"]
    assert [part.part_kind for part in messages[0].parts] == ["system-prompt", "user-prompt"]
    settings = info.model_settings
    assert (settings["max_tokens"], settings["temperature"], settings["seed"]) == (77, 0.2, 5)


@pytest.mark.usefixtures("allowed")
async def test_a_schema_becomes_the_one_tool_where_there_is_no_native_output() -> None:
    model = VendorModel("vendor:m", VendorTestModel(custom_output_args={"fact": "S3"}))
    assert (await model.generate(PROMPT, Fact)).output == Fact(fact="S3")


@pytest.mark.usefixtures("allowed")
async def test_a_schema_goes_native_where_the_vendor_has_that() -> None:
    seen: list[Any] = []

    def function(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info.model_request_parameters)
        return ModelResponse(parts=[TextPart('{"fact": "S3"}')])

    client = FunctionModel(function, profile={"supports_json_schema_output": True})
    assert (await VendorModel("vendor:m", client).generate(PROMPT, Fact)).output == Fact(fact="S3")
    assert seen[0].output_mode == "native"
    assert seen[0].output_object.json_schema["properties"]["fact"]["type"] == "string"


@pytest.mark.usefixtures("allowed")
async def test_invalid_tool_arguments_are_asked_for_again() -> None:
    arguments: list[dict[str, Any]] = [{"fact": 3}, {"fact": "S3"}]

    def reply(info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, arguments.pop(0))])

    client = FunctionModel(lambda messages, info: reply(info), profile={"supports_json_schema_output": False})
    done = await VendorModel("vendor:m", client).generate(PROMPT, Fact)
    assert (done.output.fact, done.usage.calls) == ("S3", 2)


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ModelHTTPError(401, "m", {"message": f"bad key {KEY}"}), AuthenticationError),
        (ModelHTTPError(404, "m"), ModelNotFoundError),
        (ModelHTTPError(400, "m", {"message": "prompt is too long: 9 tokens"}), ContextWindowError),
        (ModelHTTPError(429, "m", headers={"Retry-After": "7"}), ModelUnavailableError),
        (ModelHTTPError(529, "m"), ModelUnavailableError),
        (ModelHTTPError(400, "m", {"message": f"bad\n{KEY}"}), ModelError),
        (ModelAPIError("m", "odd"), ModelError),
        (ConnectionResetError(), ModelUnavailableError),
    ],
)
async def test_errors_are_typed_and_hold_no_key(raised: Exception, error: type[ModelError]) -> None:
    with pytest.raises(error) as caught:
        await vendor(raised).generate(PROMPT)
    assert type(caught.value) is error
    assert KEY not in f"{caught.value}{caught.value.remedy}{caught.value.__cause__!r}"
    assert "vendor:m" in str(caught.value) and "\n" not in str(caught.value)
    if isinstance(caught.value, ModelUnavailableError) and "429" in str(caught.value):
        assert caught.value.retry_after == 7.0


@pytest.mark.usefixtures("allowed")
async def test_a_filtered_reply_is_a_refusal() -> None:
    with pytest.raises(RefusalError):
        await vendor(ModelResponse(parts=[], finish_reason="content_filter")).generate(PROMPT)


async def test_requests_are_forbidden_unless_asked_for() -> None:
    seen: list[Any] = []
    with pytest.raises(RequestForbiddenError):
        await vendor(ModelResponse(parts=[TextPart("x")]), seen).generate(PROMPT)
    assert seen == []


def test_an_unknown_vendor_is_named() -> None:
    with pytest.raises(UnknownNameError, match="nosuchvendor"):
        create_vendor("nosuchvendor:m", ModelOptions())


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(MissingExtraError) as caught:
        create_vendor("anthropic:m", ModelOptions(api_key=SecretStr(KEY)))
    assert "memeplex[providers]" in caught.value.remedy


def test_the_extra_is_the_one_that_pydantic_ai_names() -> None:
    # OpenRouter is spoken to with OpenAI's package.
    told = ImportError('Please install the `openai` package, e.g. `pip install "pydantic-ai-slim[openai]"`')
    assert _missing("openrouter", told).remedy == "pip install 'pydantic-ai-slim[openai]'"


def test_without_the_vendors_own_package_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    # None makes every import of the vendor's package fail, installed or not.
    monkeypatch.setitem(sys.modules, "anthropic", None)
    for name in [name for name in sys.modules if name.startswith("pydantic_ai.providers.anthropic")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError) as caught:
        create_vendor("anthropic:m", ModelOptions(api_key=SecretStr(KEY)))
    assert "pydantic-ai-slim[anthropic]" in caught.value.remedy
    assert KEY not in str(caught.value)
