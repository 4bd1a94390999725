"""What all our embedders have in common: a text is computed once, and what is handed out has been checked."""

import asyncio
import hashlib
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from memeplex.embeddings.base import Kind, Vectors
from memeplex.errors import EmbeddingError, UnknownNameError, UserError
from memeplex.messages import clean_text
from memeplex.telemetry import ModelCalled, TextCut, emit
from memeplex.usage import Purpose, Usage

__all__ = ["CachingEmbedder", "Computed", "VectorCache", "normalised"]

CACHE_BYTES = 32 * 1024 * 1024
"""Some 20,000 vectors of 384 numbers."""

Key: TypeAlias = tuple[str, Kind, bytes]
Row: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Computed:
    """One batch as it came: anything that may be vectors, and what it cost."""

    vectors: Any
    usage: Usage


class VectorCache:
    """The vectors used last, by embedder, kind and the SHA-256 of the text; at most ``limit`` bytes of numbers.

    Embedders may share one, also between threads.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._rows: OrderedDict[Key, Row] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Key) -> Row | None:
        """The vector, or ``None`` if it is not here any more."""
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
            return self._rows.get(key)

    def put(self, key: Key, row: Row) -> None:
        """Keep a vector, in place of those that have not been used for longest."""
        # A copy: a row of a batch would keep the whole batch alive.
        row = row.copy()
        with self._lock:
            old = self._rows.pop(key, None)
            self._size -= 0 if old is None else old.nbytes
            self._rows[key] = row
            self._size += row.nbytes
            while self._size > self._limit:
                self._size -= self._rows.popitem(last=False)[1].nbytes


def normalised(values: Any, *, count: int, dimension: int, who: str) -> Vectors:
    """``values`` as ``count`` rows of length 1. ``dimension`` 0 takes any.

    Raises:
        EmbeddingError: that is not what they are.
    """
    try:
        rows = np.asarray(values)
    except ValueError as error:
        raise EmbeddingError(f"{who} sent vectors of unlike dimensions") from error
    if rows.dtype.kind not in "fiu" or rows.ndim != 2 or rows.shape[1] == 0:
        raise EmbeddingError(f"{who} sent something that is no list of vectors", remedy="is it an embedding model?")
    if rows.shape[0] != count:
        raise EmbeddingError(f"{who} sent {rows.shape[0]} vectors for {count} texts")
    if dimension and rows.shape[1] != dimension:
        raise EmbeddingError(
            f"{who} sent vectors of dimension {rows.shape[1]}, not {dimension}",
            remedy="has the model behind that name changed? Vectors of both cannot be compared",
        )
    rows = rows.astype(np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not (np.isfinite(largest).all() and largest.all()):
        raise EmbeddingError(f"{who} sent a vector that is zero or not finite")
    # By the largest number first, whose square may be more than a number can hold.
    rows /= largest
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


class CachingEmbedder(ABC):
    """``Embedder.embed`` for classes that supply ``compute``.

    Args:
        id: as in ``Embedder``, and so are ``longest`` and ``unrelated``.
        dimension: what vectors have to have; 0 learns it from the first.
        texts: in one batch, at most.
        characters: in one batch, about; a longer text is a batch by itself.
        cache: by default one of its own.
    """

    def __init__(
        self,
        id: str,  # noqa: A002  (the protocol's name for it)
        *,
        dimension: int = 0,
        longest: int | None = None,
        unrelated: float = 0.0,
        texts: int = 64,
        characters: int = 100_000,
        cache: VectorCache | None = None,
    ) -> None:
        self.id = id
        self.dimension = dimension
        self.longest = longest
        self.unrelated = unrelated
        self._texts = texts
        self._characters = characters
        self._cache = VectorCache() if cache is None else cache
        self._under_way: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, asyncio.Future[None]]]
        self._under_way = WeakKeyDictionary()

    @abstractmethod
    async def compute(self, texts: Sequence[str], kind: Kind) -> Computed:
        """The vectors of one batch of clean, unlike texts, in their order; they are checked and scaled afterwards."""

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """As ``Embedder.embed``.

        Raises:
            UserError: ``texts`` is not a list of texts, or there is no such kind.
            EmbeddingError: what came back is not one vector for each text.
            ModelError: another subclass that says what happened.
        """
        _check(texts, kind)
        read = {text: self._read(text) for text in texts}
        keys: dict[str, Key] = {text: (self.id, kind, hashlib.sha256(read[text].encode()).digest()) for text in read}
        wanted = {keys[text]: read[text] for text in read}
        rows: dict[Key, Row] = {}
        self._look_up(wanted, rows)
        # What others are computing is waited for, once; if it came to nothing for them, this call tries for itself.
        under_way = self._under_way.setdefault(asyncio.get_running_loop(), {})
        missing = wanted.keys() - rows.keys()
        theirs = {under_way[key] for key in missing if key in under_way}
        await self._compute({k: t for k, t in wanted.items() if k in missing and k not in under_way}, kind, rows)
        if theirs:
            await asyncio.wait(theirs)
            self._look_up(wanted, rows)
            await self._compute({k: t for k, t in wanted.items() if k not in rows}, kind, rows)
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        return np.stack([rows[keys[text]] for text in texts])

    async def aclose(self) -> None:  # noqa: B027  (not each has something to give back)
        """Give back connections and threads; the cache stays, which other embedders may share."""

    def _read(self, text: str) -> str:
        clean = clean_text(text)
        read = clean[: self.longest]
        if len(read) < len(clean):
            emit(TextCut(embedder=self.id, before=len(clean), after=len(read)))
        return read

    def _look_up(self, wanted: Mapping[Key, str], rows: dict[Key, Row]) -> None:
        for key in wanted.keys() - rows.keys():
            if (row := self._cache.get(key)) is not None:
                rows[key] = row

    async def _compute(self, wanted: Mapping[Key, str], kind: Kind, rows: dict[Key, Row]) -> None:
        """Fill ``rows`` batch by batch, so that calls side by side take turns; what a cancelled one has is kept."""
        loop = asyncio.get_running_loop()
        under_way = self._under_way.setdefault(loop, {})
        batches = [(batch, loop.create_future()) for batch in self._batches(wanted)]
        under_way.update((key, done) for batch, done in batches for key in batch)
        try:
            for batch, done in batches:
                for key, row in zip(batch, await self._one(list(batch.values()), kind), strict=True):
                    rows[key] = row
                    self._cache.put(key, row)
                done.set_result(None)
        finally:
            for batch, done in batches:
                if not done.done():
                    done.set_result(None)
                for key in batch:
                    if under_way.get(key) is done:
                        del under_way[key]

    def _batches(self, wanted: Mapping[Key, str]) -> Iterator[dict[Key, str]]:
        batch: dict[Key, str] = {}
        characters = 0
        for key, text in wanted.items():
            if batch and (len(batch) >= self._texts or characters + len(text) > self._characters):
                yield batch
                batch, characters = {}, 0
            batch[key] = text
            characters += len(text)
        if batch:
            yield batch

    async def _one(self, texts: Sequence[str], kind: Kind) -> Vectors:
        done = await self.compute(texts, kind)
        emit(ModelCalled(model=self.id, purpose=Purpose.EMBEDDING, usage=done.usage))
        vectors = normalised(done.vectors, count=len(texts), dimension=self.dimension, who=self.id)
        self.dimension = int(vectors.shape[1])
        return vectors


def _check(texts: Sequence[str], kind: str) -> None:
    if kind not in get_args(Kind):
        raise UnknownNameError("kind of text", kind, get_args(Kind))
    # A text is itself a sequence of texts, of one character each.
    listed = isinstance(texts, Sequence) and not isinstance(texts, str)
    if not (listed and all(isinstance(text, str) for text in texts)):
        raise UserError("texts to be embedded come as a list of texts", remedy='write embed(["a text"], kind="query")')
