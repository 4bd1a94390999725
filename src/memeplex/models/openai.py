"""The OpenAI-compatible wire format, spoken directly over aiohttp.

Hosted models, Ollama, vLLM and llama.cpp understand it. A thin client costs a tenth and less of the processor
time of a vendor's SDK, which is what limits a large team on a fast server.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import SplitResult, urlsplit
from weakref import WeakKeyDictionary, WeakSet

import aiohttp
from pydantic import SecretStr

from memeplex.errors import AuthenticationError, ModelError, ModelUnavailableError, UserError
from memeplex.messages import clean_text
from memeplex.models.base import Model, ModelOptions, Settings
from memeplex.models.gate import allow_requests, check_allowed, requests_allowed
from memeplex.models.generator import Generator, Reply, Request
from memeplex.models.retry import RetryModel
from memeplex.models.tokens import Counter, counter_for, estimate_messages
from memeplex.models.wire import Answer, failure, field_refused, format_refused, read_reply
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

OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434/v1"
DEFAULT_WINDOW = 8192
LARGEST_ANSWER = 32 * 2**20
"""Bytes of one answer that are read at most, unpacked: an endpoint in bad faith may send without end."""

_open: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[aiohttp.ClientSession]] = WeakKeyDictionary()


async def close_connections() -> None:
    """Close what all models have opened in the running event loop; they can be used again afterwards."""
    for session in _open.pop(asyncio.get_running_loop(), ()):
        await session.close()


class Extend(Protocol):
    """Last say over a request's body: return it with fields of your own, such as llama.cpp's ``id_slot``."""

    def __call__(self, body: dict[str, object], settings: Settings) -> dict[str, object]:
        """The body to send. Called once a request, retries included; may change ``body`` in place."""
        ...


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        # Brackets of which no IPv6 address comes: as good as no address.
        return SplitResult("", "", "", "", "")


async def _bounded(response: aiohttp.ClientResponse, where: str) -> bytes:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > LARGEST_ANSWER:
            raise ModelError(
                f"{where}: the answer is longer than {LARGEST_ANSWER // 2**20} MiB", remedy="is the address right?"
            )
    return bytes(raw)


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
        parts = _split(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise UserError(
                f"the address of {name.partition(':')[0]} is not of the form http(s)://host/v1",
                remedy="give a key as api_key, not in the address",
            )
        self.endpoint = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        self.model = model
        self._query = f"?{parts.query}" if parts.query else ""
        self._key = api_key.get_secret_value().strip() if api_key else ""
        if not (self._key.isascii() and self._key.isprintable()):
            raise AuthenticationError(f"the key for {name} holds characters that cannot be sent")
        self._key_name = key_name
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._temperature = temperature
        self._extra = dict(body or {})
        self._counter = counter or counter_for(model)
        self._extend = extend
        self._refused: set[str] = set()
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()

    async def count(self, text: str) -> int:
        """Tokens in ``text``: exact for OpenAI's names with the extra ``tokens``, else errs high."""
        return self._counter(text)

    async def aclose(self) -> None:
        """Close the running loop's connections. A later call opens new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def session(self) -> aiohttp.ClientSession:
        """The running loop's connections, for requests beside the chat completions."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            # No limit of its own: how many calls run side by side is the caller's decision.
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=self._timeout,
                headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
            )
            self._sessions[loop] = session
            _open.setdefault(loop, WeakSet()).add(session)
        return session

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

    async def _post(self, body: dict[str, object]) -> Answer:
        url = f"{self.endpoint}/chat/completions{self._query}"
        where = f"{self.name} at {self.endpoint}"
        try:
            # Redirects are not followed: they would turn the POST into a GET, or carry the key elsewhere.
            async with self.session().post(url, json=body, allow_redirects=False) as response:
                raw = await _bounded(response, where)
                return Answer(response.status, response.headers, raw.decode("utf-8", "replace"))
        except TimeoutError as error:
            raise ModelUnavailableError(
                f"{where} did not answer within {self._timeout.total:g} s", remedy="raise timeout"
            ) from error
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            # UnicodeError: a host name that cannot be written in DNS.
            cause = type(error).__name__ if not isinstance(error, OSError) else (error.strerror or "no route")
            raise ModelUnavailableError(
                f"{where} cannot be reached ({' '.join(cause.split())})",
                remedy="is the server running, and the address right?",
            ) from error

    async def send(self, request: Request) -> Reply | None:
        """One request, repeated only without a field that the endpoint says it does not know.

        Raises:
            RequestForbiddenError: requests are turned off.
            ModelError: a subclass that says what happened; never holds the key.
        """
        check_allowed(self.name)
        while True:
            body = self._body(request)
            started = time.perf_counter()
            answer = await self._post(body)
            seconds = time.perf_counter() - started
            if answer.status == 200:
                reply = read_reply(answer, seconds, self._count_messages(request), self._counter)
                if reply is not None:
                    return reply
            elif request.format is not None and format_refused(answer):
                return None
            elif refused := field_refused(answer, body.keys() - self._refused):
                self._refused.add(refused)
                reason = f"the field {refused} is not supported"
                emit(ReplyRetried(model=self.name, purpose=request.settings.purpose, reason=reason))
                continue
            raise failure(answer, f"{self.name} at {self.endpoint}", secret=self._key, key_name=self._key_name)

    def _count_messages(self, request: Request) -> Callable[[], int]:
        return lambda: estimate_messages(request.messages, self._counter)


def _create(name: str, model: str, base_url: str, options: ModelOptions) -> Model:
    return RetryModel(
        OpenAIModel(
            name,
            model=model,
            base_url=base_url,
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
    key = options.api_key.get_secret_value().strip() if options.api_key else ""
    if not options.base_url and not key:
        raise AuthenticationError(
            f"{name} at {OPENAI_URL} needs a key",
            remedy=f"set the environment variable {options.key_name or 'OPENAI_API_KEY'}",
        )
    return _create(name, name.partition(":")[2], options.base_url or OPENAI_URL, options)


def create_ollama(name: str, options: ModelOptions) -> Model:
    """``ollama:NAME`` at the Ollama of this machine, or at ``base_url``. No key is needed."""
    return _create(name, name.partition(":")[2], options.base_url or OLLAMA_URL, options)


def create_endpoint(name: str, options: ModelOptions) -> Model:
    """``http(s)://host/v1#NAME``: any OpenAI-compatible endpoint.

    Raises:
        UserError: the name is not of that form.
    """
    address, _, model = name.partition("#")
    if not model or not _split(address).hostname:
        raise UserError(
            "a model at an endpoint is named by its address and its name",
            remedy="write http(s)://host/v1#NAME, such as http://127.0.0.1:8000/v1#qwen3",
        )
    return _create(name, model, options.base_url or address, options)
