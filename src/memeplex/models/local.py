"""The embedded model: llama.cpp's server inside this process, on a loopback port of its own.

All agents and models of one file share one started server. It has a slot with a prompt cache for each kind of
prompt: conversation, memory updates, votes. So the conversation is read once for all agents.
"""

import asyncio
import json
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import aiohttp
from pydantic import BaseModel, SecretStr

from memeplex.endpoint.gate import check_allowed
from memeplex.errors import MissingExtraError, ModelError, ModelNotFoundError, ModelUnavailableError
from memeplex.models.base import Answering, ChatMessage, Completion, ModelOptions, Settings
from memeplex.models.openai import OpenAIModel, guess_billions
from memeplex.models.weights import cached_path, known_models
from memeplex.usage import Purpose

__all__ = ["LocalModel", "check_runtime", "create"]

WINDOW = 4096
"""Tokens of each slot, prompt and reply together. A slot of the 0.5B model takes about 50 MB."""

_SLOTS = {
    Purpose.MEMORY_UPDATE: 1,
    Purpose.TEMPLATE: 1,
    Purpose.PROBE: 1,
    Purpose.VOTE: 2,
    Purpose.FEEDBACK: 2,
}
_COUNT_CACHE = 4096


class _Server:
    """One file's server in this process, started at the first use and stopped when nobody holds it any more."""

    shared: ClassVar[WeakValueDictionary[tuple[Path, int], "_Server"]] = WeakValueDictionary()
    guard: ClassVar = threading.Lock()

    def __init__(self, path: Path, window: int) -> None:
        self.path = path
        self.window = window
        self.key = SecretStr(secrets.token_hex(16))
        self._starting = threading.Lock()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._running: Any = None

    @classmethod
    def of(cls, path: Path, window: int) -> "_Server":
        """The server that this process has, or will have, for a file."""
        with cls.guard:
            server = cls.shared.get((path, window))
            if server is None:
                server = cls.shared[path, window] = cls(path, window)
            return server

    def turn(self) -> asyncio.Semaphore:
        """Held during a call. On one thread two calls side by side take longer than one after the other."""
        loop = asyncio.get_running_loop()
        if loop not in self._turns:
            self._turns[loop] = asyncio.Semaphore(1 if _threads() == 1 else len(_SLOTS))
        return self._turns[loop]

    def address(self) -> str:
        """Where it listens; starts it if need be, which takes a second or more."""
        with self._starting:
            if self._running is None:
                self._running = self._start(_runtime())
            return str(self._running.listening_address)

    def _start(self, runtime: ModuleType) -> Any:
        params = runtime.CommonParams()
        params.model.path = str(self.path)
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.api_keys = [self.key.get_secret_value()]
        # A slot for each kind of prompt. A unified cache would lose a slot's prompt when another is used.
        slots = max(_SLOTS.values()) + 1
        params.n_parallel = slots
        params.n_ctx = self.window * slots
        params.kv_unified = False
        params.cache_ram_mib = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _threads()
        params.verbosity = -1
        try:
            return runtime.Server(params)
        except RuntimeError as error:
            raise ModelError(
                f"{self.path.name} cannot be loaded: {str(error).splitlines()[0]}",
                remedy="is it a GGUF file, and is there enough memory?",
            ) from error


class LocalModel(Answering):
    """A GGUF file, run in this process. Nothing is loaded before the first call."""

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        window: int = WINDOW,
        billions: float | None = None,
        timeout: float = 600.0,
        temperature: float | None = None,
        body: dict[str, object] | None = None,
    ) -> None:
        self.name = name
        self.window = window
        self.billions = billions
        self._server = _Server.of(path, window)
        self._timeout = timeout
        self._temperature = temperature
        self._body = dict(body or {})
        self._client: OpenAIModel | None = None
        self._counts: dict[str, int] = {}

    async def answer(
        self, messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings
    ) -> Completion[Any]:
        """The server's answer, one at a time on one thread.

        Raises:
            MissingExtraError: the runtime is not installed.
            ModelError: the file cannot be loaded.
        """
        client = await self._connect()
        async with self._server.turn():
            return await client.generate(messages, output, settings)

    async def count(self, text: str) -> int:
        """Tokens in ``text``, by the model's own tokenizer."""
        if (known := self._counts.get(text)) is not None:
            return known
        client = await self._connect()
        url = client.endpoint.removesuffix("/v1") + "/tokenize"
        try:
            async with client.session().post(url, json={"content": text}) as response:
                response.raise_for_status()
                tokens = len((await response.json())["tokens"])
        except aiohttp.ClientError as error:
            raise ModelUnavailableError(f"{self.name}: the tokenizer does not answer ({error})") from error
        if len(self._counts) >= _COUNT_CACHE:
            self._counts.clear()
        self._counts[text] = tokens
        return tokens

    async def aclose(self) -> None:
        """Close the connections; the server ends with the last model that shares it."""
        if self._client is not None:
            await self._client.aclose()

    async def _connect(self) -> OpenAIModel:
        check_allowed(self.name)
        if self._client is None:
            address = await asyncio.to_thread(self._server.address)
            # Of two first calls side by side, the second finds the first one's.
            self._client = self._client or OpenAIModel(
                self.name,
                model=self.name,
                base_url=f"{address}/v1",
                api_key=self._server.key,
                window=self.window,
                timeout=self._timeout,
                temperature=self._temperature,
                body=self._body,
                extend=_extend,
            )
        return self._client


def create(name: str, options: ModelOptions) -> LocalModel:
    """``local:NAME`` for a known model whose weights are in the cache folder, ``local:/path/to/any.gguf`` for a file.

    Raises:
        ModelNotFoundError: the weights are not there.
        UnknownNameError: no known model has that name.
    """
    model = name.partition(":")[2]
    window = options.window or WINDOW
    if model.endswith(".gguf"):
        path = _file(model)
        if path is None:
            raise ModelNotFoundError(f"{name}: there is no such file", remedy="give the path of a GGUF file")
        billions = options.billions or guess_billions(path.name)
    else:
        path = cached_path(model)
        if not path.is_file():
            raise ModelNotFoundError(
                f"{name}: its weights are not in the cache folder", remedy=f"memeplex models pull {model}"
            )
        billions = options.billions or known_models()[model].billions
    return LocalModel(
        name,
        path,
        window=window,
        billions=billions,
        timeout=max(options.timeout, 600.0),
        temperature=options.temperature,
        body=options.body,
    )


def _file(given: str) -> Path | None:
    try:
        path = Path(given).expanduser().resolve()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        # A name too long, with a NUL in it, or in the home folder of nobody.
        return None


def _extend(body: dict[str, object], settings: Settings) -> dict[str, object]:
    """Send the prompt to the slot that has seen its like, and a schema as a grammar without white space.

    The engine would otherwise print JSON with spaces and line breaks, and each is a token to wait for.
    """
    body["id_slot"] = _SLOTS.get(settings.purpose, 0)
    body["cache_prompt"] = True
    form: Any = body.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        del body["response_format"]
        compact = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        schema = {"x-guidance": compact, **_known(form["json_schema"]["schema"])}
        body["grammar"] = f"%llguidance {{}}\nstart: %json {json.dumps(schema, ensure_ascii=False)}"
    return body


_UNKNOWN = frozenset(
    "not if then else contains uniqueItems minProperties maxProperties propertyNames dependentRequired "
    "dependentSchemas unevaluatedItems unevaluatedProperties".split()
)


def _known(schema: Any) -> Any:
    """The schema without keywords that the engine does not know: for one of them it would give up the whole grammar,
    in silence. The reply is validated against the full schema all the same."""
    if isinstance(schema, list):
        return [_known(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _UNKNOWN}
    named = {key: {n: _known(s) for n, s in kept[key].items()} for key in ("properties", "$defs") if key in kept}
    return {key: named.get(key, _known(value)) for key, value in kept.items()}


def check_runtime() -> None:
    """Raise what the first call would raise if the runtime is not installed; cheap, and worth it before a download.

    Raises:
        MissingExtraError: the extra ``local`` is not installed.
        ModelError: a library of the system that it needs is missing.
    """
    _runtime()


def _runtime() -> ModuleType:
    # Spinning threads make a loaded machine a hundred times slower; the runtime reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import xllamacpp
    except ModuleNotFoundError as error:
        raise MissingExtraError("the embedded model", "local") from error
    except ImportError as error:
        # The wheel brings everything but the system's OpenMP library, which the smallest systems lack.
        raise ModelError(
            f"the embedded model's runtime cannot be loaded: {error}",
            remedy="install the library that it names; on Debian: apt-get install libgomp1",
        ) from error
    module: ModuleType = xllamacpp
    return module


def _threads() -> int:
    """One thread on two cores or fewer: the other core is ours, and two that wait for each other are slower."""
    cores = os.cpu_count() or 1
    return 1 if cores <= 2 else min(cores // 2, 8)
