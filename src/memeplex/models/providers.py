"""Every other vendor, through pydantic-ai (extra ``providers``)."""

import re
import time
from typing import TYPE_CHECKING, Literal

from memeplex.endpoint.answer import too_long
from memeplex.endpoint.gate import check_allowed
from memeplex.errors import (
    AuthenticationError,
    ContextWindowError,
    MissingExtraError,
    ModelError,
    ModelNotFoundError,
    ModelUnavailableError,
    UnknownNameError,
    UserError,
)
from memeplex.messages import clean_text, one_line
from memeplex.models.base import Model, ModelOptions
from memeplex.models.generator import Generator, Reply, Request
from memeplex.models.retry import RetryModel
from memeplex.models.tokens import estimate
from memeplex.models.wire import without_thoughts
from memeplex.usage import Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model as VendorClient
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

__all__ = ["VendorModel", "create_vendor"]

# Vendors' current models all take at least this much.
DEFAULT_WINDOW = 128_000


class VendorModel(Generator):
    """A model that pydantic-ai speaks to. ``client`` is its model object; ``secret`` is kept out of errors.

    A schema goes to the vendor as native structured output where it has that, else as the one tool that must
    be called.
    """

    def __init__(
        self,
        name: str,
        client: "VendorClient",
        *,
        window: int = DEFAULT_WINDOW,
        billions: float | None = None,
        timeout: float = 120.0,
        temperature: float | None = None,
        body: dict[str, object] | None = None,
        secret: str = "",
    ) -> None:
        super().__init__(name, window=window, billions=billions)
        self._client = client
        self._timeout = timeout
        self._temperature = temperature
        self._extra = dict(body or {})
        self._secret = secret
        self._entered = False

    def _settings(self, request: Request) -> "ModelSettings":
        from pydantic_ai.settings import ModelSettings

        settings = request.settings
        made = ModelSettings(max_tokens=settings.max_tokens, timeout=self._timeout)
        temperature = self._temperature if settings.temperature is None else settings.temperature
        if temperature is not None:
            made["temperature"] = temperature
        if settings.seed is not None:
            made["seed"] = settings.seed
        if self._extra:
            made["extra_body"] = self._extra
        if request.thrifty:
            made["thinking"] = "low"
        return made

    def _parameters(self, format: dict[str, object] | None) -> "ModelRequestParameters":  # noqa: A002
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition
        from pydantic_ai.tools import ToolDefinition

        wanted = (format or {}).get("json_schema")
        if not isinstance(wanted, dict):
            return ModelRequestParameters()
        if self._client.profile.get("supports_json_schema_output"):
            schema = OutputObjectDefinition(json_schema=wanted["schema"], name=wanted["name"], strict=wanted["strict"])
            return ModelRequestParameters(output_mode="native", output_object=schema)
        tool = ToolDefinition(
            name=wanted["name"],
            parameters_json_schema=wanted["schema"],
            description="Gives the answer.",
            kind="output",
        )
        return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)

    async def send(self, request: Request) -> Reply | None:
        """One request through pydantic-ai.

        Raises:
            RequestForbiddenError: requests are turned off.
            ModelError: a subclass that says what happened; never holds the key.
        """
        from pydantic_ai.direct import model_request
        from pydantic_ai.exceptions import AgentRunError
        from pydantic_ai.exceptions import UserError as VendorUserError

        check_allowed(self.name)
        if request.format == {"type": "json_object"}:
            return None
        if request.format is not None and request.output is not None and not _is_object(request):
            # A tool's arguments are an object; other values have to come as text.
            return None
        if not self._entered:
            await self._client.__aenter__()
            self._entered = True
        started = time.perf_counter()
        try:
            response = await model_request(
                self._client,
                _messages(request),
                model_settings=self._settings(request),
                model_request_parameters=self._parameters(request.format),
            )
        except (AgentRunError, VendorUserError) as error:
            raise self._failure(error) from None
        except (TimeoutError, OSError) as error:
            raise ModelUnavailableError(f"{self.name} cannot be reached ({type(error).__name__})") from error
        return _reply(response, request, time.perf_counter() - started)

    def _failure(self, error: Exception) -> ModelError:
        from pydantic_ai import exceptions as vendor

        text = clean_text(str(error))
        text = one_line(text.replace(self._secret, "***") if self._secret else text, 200)
        message = f"{self.name}: {text}"
        status = error.status_code if isinstance(error, vendor.ModelHTTPError) else 0
        if isinstance(error, vendor.ModelAuthenticationError) or status in (401, 403):
            return AuthenticationError(message, remedy="check the api_key")
        if isinstance(error, vendor.ModelNotFoundError) or status == 404:
            return ModelNotFoundError(message, remedy="check the model's name")
        if isinstance(error, vendor.ModelContextWindowExceededError) or (status in (400, 413) and too_long(str(error))):
            return ContextWindowError(message, remedy="lower context_tokens, or set the model's window")
        passing = (
            vendor.ModelRateLimitError,
            vendor.ModelQuotaExceededError,
            vendor.ModelUnavailableError,
            vendor.ModelServerError,
            vendor.ModelConnectionError,
            vendor.ModelRequestTimeout,
        )
        if isinstance(error, passing) or status in (408, 429) or status >= 500:
            return ModelUnavailableError(message, retry_after=getattr(error, "retry_after", None))
        return ModelError(message)

    async def aclose(self) -> None:
        """Close the vendor's HTTP client."""
        if self._entered:
            self._entered = False
            await self._client.__aexit__(None, None, None)


def _is_object(request: Request) -> bool:
    wanted = (request.format or {}).get("json_schema")
    schema = wanted.get("schema") if isinstance(wanted, dict) else None
    return isinstance(schema, dict) and schema.get("type") == "object"


def _messages(request: Request) -> "list[ModelMessage]":
    from pydantic_ai.messages import (
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        UserPromptPart,
    )

    made: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in request.messages:
        content = clean_text(message["content"])
        if message["role"] == "assistant":
            made += [ModelRequest(parts=parts)] if parts else []
            made.append(ModelResponse(parts=[TextPart(content)]))
            parts = []
        else:
            parts.append(SystemPromptPart(content) if message["role"] == "system" else UserPromptPart(content))
    return [*made, ModelRequest(parts=parts)] if parts else made


def _reply(response: "ModelResponse", request: Request, seconds: float) -> Reply:
    from pydantic_ai.messages import TextPart, ToolCallPart

    texts = [part.content for part in response.parts if isinstance(part, TextPart)]
    calls = [part.args_as_json_str() for part in response.parts if isinstance(part, ToolCallPart)]
    text = clean_text(calls[0] if calls else without_thoughts("".join(texts)))
    refusal = "the vendor's content filter stopped the reply"
    spent = response.usage
    finish: Literal["stop", "length"] = "length" if response.finish_reason == "length" else "stop"
    return Reply(
        text=text,
        usage=Usage(
            input=spent.input_tokens,
            cached=spent.cache_read_tokens,
            output=spent.output_tokens or estimate(text),
            calls=1,
            seconds=seconds,
        ),
        finish=finish,
        refusal=refusal if response.finish_reason == "content_filter" else "",
    )


def _client(name: str, provider: str, options: ModelOptions) -> "VendorClient":
    from pydantic_ai.exceptions import UserError as VendorUserError
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import Provider, infer_provider_class

    try:
        kind = infer_provider_class(provider)
    except ValueError:
        raise UnknownNameError(
            "model provider",
            provider,
            remedy="known: local, ollama, openai, http, and the vendors that pydantic-ai knows",
        ) from None
    except ImportError as error:
        raise _missing(provider, error) from error
    given = {"base_url": options.base_url}
    given["api_key"] = options.api_key.get_secret_value() if options.api_key else None
    given = {key: value for key, value in given.items() if value}

    def provide(_: str) -> "Provider[object]":
        made: Provider[object] = kind(**given)
        return made

    try:
        return infer_model(name, provide)
    except ImportError as error:
        raise _missing(provider, error) from error
    except TypeError as error:
        raise UserError(f"the provider {provider!r} does not take {' or '.join(given)}") from error
    except VendorUserError as error:
        remedy = f"set the environment variable {options.key_name}" if options.key_name else ""
        raise AuthenticationError(f"{name}: {one_line(str(error))}", remedy=remedy) from error


def _missing(provider: str, error: ImportError) -> MissingExtraError:
    missing = MissingExtraError(f"the provider {provider!r}", "providers")
    # pydantic-ai leaves each vendor's own package to the user, and knows best what it is called.
    if named := re.search(r"pydantic-ai-slim\[([\w,-]+)\]", str(error)):
        missing.remedy = f"pip install 'pydantic-ai-slim[{named[1]}]'"
    return missing


def create_vendor(name: str, options: ModelOptions) -> Model:
    """``VENDOR:NAME``, such as ``anthropic:claude-…``, for every vendor that pydantic-ai knows.

    Raises:
        MissingExtraError: pydantic-ai, or the vendor's own package, is not installed.
        UnknownNameError: pydantic-ai knows no such vendor.
        AuthenticationError: the vendor wants a key, and none was given.
    """
    provider = name.partition(":")[0]
    try:
        import pydantic_ai  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"the provider {provider!r}", "providers") from error
    return RetryModel(
        VendorModel(
            name,
            _client(name, provider, options),
            window=options.window or DEFAULT_WINDOW,
            billions=options.billions,
            timeout=options.timeout,
            temperature=options.temperature,
            body=options.body,
            secret=options.api_key.get_secret_value() if options.api_key else "",
        )
    )
