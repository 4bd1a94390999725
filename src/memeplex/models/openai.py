"""The OpenAI-compatible wire format, which hosted models, Ollama, vLLM and llama.cpp understand."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import aiohttp
from pydantic import SecretStr

from memeplex.endpoint.address import Place, at_address, at_ollama, at_openai
from memeplex.endpoint.client import Endpoint, close_connections
from memeplex.endpoint.gate import allow_requests, requests_allowed
from memeplex.messages import clean_text
from memeplex.models.base import Model, ModelOptions, Settings
from memeplex.models.generator import Generator, Reply, Request
from memeplex.models.retry import RetryModel
from memeplex.models.tokens import Counter, counter_for, estimate_messages
from memeplex.models.wire import field_refused, format_refused, read_reply
from memeplex.telemetry import ReplyRetried, emit

__all__ = [
    "Extend",
    "OpenAIModel",
    "allow_requests",
    "close_connections",
    "create_endpoint",
    "create_ollama",
    "create_openai",
    "requests_allowed",
]

DEFAULT_WINDOW = 8192


class Extend(Protocol):
    """Last say over a request's body: return it with fields of your own, such as llama.cpp's ``id_slot``."""

    def __call__(self, body: dict[str, object], settings: Settings) -> dict[str, object]:
        """The body to send. Called once a request, retries included; may change ``body`` in place."""
        ...


def guess_billions(model: str) -> float | None:
    """Parameters in billions from a name such as ``gemma3:12b`` or ``qwen2.5-coder-0.5b``; else ``None``."""
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z0-9])", model.lower())
    return float(found[1]) if found else None


class OpenAIModel(Generator):
    """A model behind an OpenAI-compatible endpoint. Connects at the first call, once per event loop.

    Args:
        name: what ``create_model`` was given; used in errors and events.
        model: the name sent on the wire.
        base_url: up to and with ``/v1``.
        api_key: sent as a bearer token; ``None`` sends none.
        key_name: the environment variable to name when a key is refused.
        window: longest prompt and reply together, in tokens.
        billions: number of parameters; by default read from the model's name.
        timeout: seconds for a whole request.
        temperature: used where ``Settings`` leave it open.
        body: fields sent along with every request.
        counter: counts tokens; by default chosen by the model's name.
        extend: last say over each request's body.

    Raises:
        UserError: the address is not an HTTP address, or holds a password.
        AuthenticationError: the key holds characters that cannot be sent.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str,
        base_url: str,
        api_key: SecretStr | None = None,
        key_name: str | None = None,
        window: int = DEFAULT_WINDOW,
        billions: float | None = None,
        timeout: float = 120.0,
        temperature: float | None = None,
        body: dict[str, object] | None = None,
        counter: Counter | None = None,
        extend: Extend | None = None,
    ) -> None:
        super().__init__(name, window=window, billions=billions or guess_billions(model))
        self.connection = Endpoint(name, base_url, api_key=api_key, key_name=key_name, timeout=timeout)
        self.model = model
        self._temperature = temperature
        self._extra = dict(body or {})
        self._counter = counter or counter_for(model)
        self._extend = extend
        self._refused: set[str] = set()

    @property
    def endpoint(self) -> str:
        """Its address, up to and with ``/v1``."""
        return self.connection.address

    async def count(self, text: str) -> int:
        """Tokens in ``text``: exact for OpenAI's names with the extra ``tokens``, else errs high."""
        return self._counter(text)

    async def aclose(self) -> None:
        """Close the running loop's connections. A later call opens new ones."""
        await self.connection.aclose()

    def session(self) -> aiohttp.ClientSession:
        """The running loop's connections, for requests beside the chat completions."""
        return self.connection.session()

    def _body(self, request: Request) -> dict[str, object]:
        settings = request.settings
        temperature = self._temperature if settings.temperature is None else settings.temperature
        optional = {
            "temperature": temperature,
            "seed": settings.seed,
            "response_format": request.format,
            "reasoning_effort": "low" if request.thrifty else None,
        }
        limit = "max_completion_tokens" if "max_tokens" in self._refused else "max_tokens"
        body: dict[str, object] = {
            "model": self.model,
            # A lone surrogate would make some endpoints refuse the whole prompt.
            "messages": [{**m, "content": clean_text(m["content"])} for m in request.messages],
            limit: settings.max_tokens,
            **self._extra,
            **{key: value for key, value in optional.items() if value is not None},
        }
        for key in self._refused:
            body.pop(key, None)
        return self._extend(body, settings) if self._extend else body

    async def send(self, request: Request) -> Reply | None:
        """One request, repeated only without a field that the endpoint says it does not know.

        Raises:
            RequestForbiddenError: requests are turned off.
            ModelError: a subclass that says what happened; never holds the key.
        """
        while True:
            body = self._body(request)
            started = time.perf_counter()
            answer = await self.connection.post("/chat/completions", body)
            seconds = time.perf_counter() - started
            if 200 <= answer.status < 300:
                reply = read_reply(answer, seconds, self._count_messages(request), self._counter)
                if reply is not None:
                    return replace(reply, refusal=self.connection.masked(reply.refusal))
            elif request.format is not None and format_refused(answer):
                return None
            elif refused := field_refused(answer, body.keys() - self._refused):
                self._refused.add(refused)
                reason = f"the field {refused} is not supported"
                emit(ReplyRetried(model=self.name, purpose=request.settings.purpose, reason=reason))
                continue
            raise self.connection.failure(answer)

    def _count_messages(self, request: Request) -> Callable[[], int]:
        return lambda: estimate_messages(request.messages, self._counter)


def _create(name: str, place: Place, options: ModelOptions) -> Model:
    return RetryModel(
        OpenAIModel(
            name,
            model=place.model,
            base_url=place.address,
            api_key=options.api_key,
            key_name=options.key_name,
            window=options.window or DEFAULT_WINDOW,
            billions=options.billions,
            timeout=options.timeout,
            temperature=options.temperature,
            body=options.body,
        )
    )


def create_openai(name: str, options: ModelOptions) -> Model:
    """``openai:NAME`` at OpenAI, or at ``base_url``, where no key is demanded.

    Raises:
        AuthenticationError: OpenAI itself is meant, and there is no key.
    """
    return _create(name, at_openai(name, options), options)


def create_ollama(name: str, options: ModelOptions) -> Model:
    """``ollama:NAME`` at the Ollama of this machine, or at ``base_url``. No key is needed."""
    return _create(name, at_ollama(name, options), options)


def create_endpoint(name: str, options: ModelOptions) -> Model:
    """``http(s)://host/v1#NAME``: any OpenAI-compatible endpoint.

    Raises:
        UserError: the name is not of that form.
    """
    return _create(name, at_address(name, options), options)
