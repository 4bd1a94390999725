"""Embedders behind an OpenAI-compatible endpoint: OpenAI, Ollama, vLLM, llama.cpp and others."""

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from memeplex.embeddings.base import EmbedderOptions, Kind
from memeplex.embeddings.cached import CachingEmbedder, Computed, VectorCache
from memeplex.endpoint.address import Place, at_address, at_ollama, at_openai
from memeplex.endpoint.answer import Answer, amount, load, mapping
from memeplex.endpoint.backoff import Backoff
from memeplex.endpoint.client import Endpoint
from memeplex.errors import ContextWindowError, EmbeddingError, ModelError
from memeplex.telemetry import ReplyRetried, emit
from memeplex.usage import Purpose, Usage

__all__ = ["OpenAIEmbedder", "create_endpoint", "create_ollama", "create_openai"]

_TEXTS = 64
_CHARACTERS = 100_000
"""Of one request: OpenAI takes 300,000 tokens at most."""


class OpenAIEmbedder(CachingEmbedder):
    """An embedding model behind an endpoint. Connects at the first text, once per event loop.

    Args:
        name: what ``create_embedder`` was given. It is the ``id`` too, with a hash of prefixes and body, if there are
            any, since they change the vectors.
        model: the name sent on the wire.
        base_url: up to and with ``/v1``.
        api_key: sent as a bearer token; ``None`` sends none.
        key_name: the environment variable to name when a key is refused.
        timeout: seconds for a whole request.
        dimension: what the vectors have to have; 0 learns it from the first answer.
        query_prefix: goes before each query, where the model was trained so.
        passage_prefix: goes before each passage.
        longest: characters of a text that are sent; ``None`` sends all, and a text too long for the model is an error.
        unrelated: as in ``Embedder``.
        body: fields sent along with every request, such as ``{"dimensions": 256}``.
        backoff: how an endpoint that is overloaded or out of reach is tried again.
        cache: by default one of its own.

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
        timeout: float = 120.0,
        dimension: int = 0,
        query_prefix: str = "",
        passage_prefix: str = "",
        longest: int | None = None,
        unrelated: float = 0.0,
        body: Mapping[str, object] | None = None,
        backoff: Backoff | None = None,
        cache: VectorCache | None = None,
    ) -> None:
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "passage": passage_prefix}
        self._extra = dict(body or {})
        super().__init__(
            _public(name) + self._variant(),
            dimension=dimension,
            longest=longest,
            unrelated=unrelated,
            texts=_TEXTS,
            characters=_CHARACTERS,
            cache=cache,
        )
        self.model = model
        self.connection = Endpoint(name, base_url, api_key=api_key, key_name=key_name, timeout=timeout)
        self._backoff = backoff or Backoff()

    def _variant(self) -> str:
        """A hash, since a body may hold what should not be stored."""
        if not (self._extra or any(self._prefixes.values())):
            return ""
        told = json.dumps([self._prefixes, self._extra], sort_keys=True)
        return f"+{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    async def compute(self, texts: Sequence[str], kind: Kind) -> Computed:
        """One request, made again while the endpoint is overloaded or out of reach.

        Raises:
            RequestForbiddenError: requests are turned off.
            ContextWindowError: a text is too long for the model.
            EmbeddingError: the answer holds other than one vector for each text.
            ModelError: another subclass that says what happened; never holds the key.
        """
        # Endpoints refuse a text of no characters.
        sent = [self._prefixes[kind] + text or " " for text in texts]

        def retried(reason: str) -> None:
            emit(ReplyRetried(model=self.id, purpose=Purpose.EMBEDDING, reason=reason))

        return await self._backoff.run(lambda: self._request(sent), retried)

    async def _request(self, sent: list[str]) -> Computed:
        started = time.perf_counter()
        answer = await self.connection.post("/embeddings", {**self._extra, "model": self.model, "input": sent})
        seconds = time.perf_counter() - started
        data = load(answer.text)
        entries = data.get("data")
        if answer.status != 200 or not isinstance(entries, list):
            raise self._failure(answer)
        tokens = amount(mapping(data.get("usage")).get("prompt_tokens"))
        if tokens is None:
            tokens = sum(map(len, sent)) // 4 + len(sent)
        return Computed(self._ordered(entries), Usage(input=tokens, calls=1, seconds=seconds))

    def _ordered(self, entries: list[object]) -> list[object]:
        """The vectors in the order of the texts, which the entries of an answer need not have."""
        rows = [mapping(entry) for entry in entries]
        if not any("index" in row for row in rows):
            return [row.get("embedding") for row in rows]
        placed = {place: row.get("embedding") for row in rows if isinstance(place := row.get("index"), int)}
        if placed.keys() != set(range(len(rows))):
            raise EmbeddingError(f"{self.connection.where} numbered its vectors wrongly")
        return [placed[place] for place in range(len(rows))]

    def _failure(self, answer: Answer) -> ModelError:
        error = self.connection.failure(answer)
        if isinstance(error, ContextWindowError):
            error.remedy = "shorten the text, or set longest"
        return error

    async def aclose(self) -> None:
        """Close the running loop's connections. A later call opens new ones."""
        await self.connection.aclose()


def _public(name: str) -> str:
    """Without the query of an address: that may hold a key, and an ``id`` is stored."""
    return re.sub(r"\?[^#]*", "", name)


def _create(name: str, place: Place, options: EmbedderOptions) -> OpenAIEmbedder:
    told = {field: value for field, value in options if field not in ("base_url", "dimension")}
    return OpenAIEmbedder(name, model=place.model, base_url=place.address, dimension=options.dimension or 0, **told)


def create_openai(name: str, options: EmbedderOptions) -> OpenAIEmbedder:
    """``openai:NAME`` at OpenAI, or at ``base_url``, where no key is demanded.

    Raises:
        AuthenticationError: OpenAI itself is meant, and there is no key.
    """
    return _create(name, at_openai(name, options), options)


def create_ollama(name: str, options: EmbedderOptions) -> OpenAIEmbedder:
    """``ollama:NAME`` at the Ollama of this machine, or at ``base_url``. No key is needed."""
    return _create(name, at_ollama(name, options), options)


def create_endpoint(name: str, options: EmbedderOptions) -> OpenAIEmbedder:
    """``http(s)://host/v1#NAME``: any OpenAI-compatible endpoint.

    Raises:
        UserError: the name is not of that form.
    """
    return _create(name, at_address(name, options), options)
