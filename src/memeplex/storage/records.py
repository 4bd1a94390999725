"""What agents keep for a lifetime: records, how they are searched, and what is known of every change."""

import hashlib
import math
import secrets
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from memeplex.messages import Text, clean_text, utc_now

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Added",
    "Audit",
    "Change",
    "Found",
    "Hit",
    "Line",
    "Origin",
    "Provenance",
    "Query",
    "Record",
    "Records",
    "Vectors",
    "new_id",
    "text_key",
]

_ids = threading.Lock()
_last = 0

LONGEST = 2**21
"""Characters of a record's text at most."""


def new_id() -> str:
    """An id that sorts by time: nanoseconds and 44 random bits, in hexadecimal; in one process, by order too."""
    global _last
    with _ids:
        # Clocks are coarser than that here and there, and are set back.
        _last = max(time.time_ns(), _last + 1)
        return f"{_last:016x}{secrets.randbits(44):011x}"


def text_key(kind: str, text: str) -> str:
    """The key of a record that was given none."""
    return hashlib.sha256(f"{kind}\n{clean_text(text)}".encode()).hexdigest()


def _utc(moment: datetime) -> datetime:
    # A time without a zone is taken as UTC: so it is documented, and so every store orders it.
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is infinite or not a number, which JSON cannot hold")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _finite(item)
    return value


Time = Annotated[datetime, AfterValidator(_utc)]
Payload = Annotated[dict[str, Any], BeforeValidator(_finite)]
Name = Annotated[Text, Field(min_length=1, max_length=200)]


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Provenance(_Kept):
    """Where a record comes from: the run and its turns, who wrote it with which model and which prompt's version."""

    run: str = ""
    turns: tuple[int, ...] = ()
    author: str = ""
    model: str = ""
    prompt: str = ""


class Record(_Kept):
    """One thing that an owner remembers.

    ``owner`` is whose it is, and no query crosses it; ``kind`` is what it is (episode, procedure …). ``text`` is what
    is searched, ``payload`` whatever else belongs to it, as plain JSON. ``trust`` is from 0 (a stranger's word) to 1
    (the owner's own observation). ``key`` makes a second writing of the same thing the same record; without one, the
    kind and the text are the key. ``revision`` counts from 1. Times without a zone are taken as UTC.
    """

    id: str = Field(default_factory=new_id, min_length=1, max_length=64)
    owner: Name
    kind: Name
    text: Annotated[Text, Field(max_length=LONGEST)]
    payload: Payload = Field(default_factory=dict)
    provenance: Provenance = Provenance()
    trust: float = Field(default=1.0, ge=0, le=1)
    key: Annotated[Text, Field(max_length=200)] = ""
    supersedes: str | None = None
    superseded_by: str | None = None
    revision: int = Field(default=1, ge=1)
    created: Time = Field(default_factory=utc_now)
    updated: Time = Field(default_factory=utc_now)

    @model_validator(mode="before")
    @classmethod
    def _keyed(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and not data.get("key") and isinstance(data.get("text"), str):
            return {**data, "key": text_key(str(data.get("kind")), data["text"])}
        return data

    @model_validator(mode="after")
    def _says_something(self) -> "Record":
        if not self.text.strip():
            raise ValueError("the text is empty")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """The vectors of as many texts, one a row, each of length 1; ``embedder`` is whose they are."""

    embedder: str
    values: "np.ndarray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to look for, among the records of ``owners`` only.

    ``text`` is looked for by its words, ``vector`` (with the ``embedder`` that made it) by meaning; with both, the two
    rankings are fused. ``kinds`` narrows it. ``exclude`` are ids that are not wanted.
    """

    owners: tuple[str, ...]
    text: str = ""
    vector: "np.ndarray | None" = None
    embedder: str = ""
    kinds: tuple[str, ...] = ()
    limit: int = 10
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A record that was found. ``score`` orders the hits of one search and means nothing beyond it.

    ``similarity`` is the cosine to the query's vector, ``keyword`` the BM25 score, each where it was looked at.
    """

    record: Record
    score: float
    similarity: float | None = None
    keyword: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The hits, best first. ``note`` says what could not be searched, and what to do about it."""

    hits: tuple[Hit, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """The ids of what was to be added, in that order, and which of them are new."""

    ids: tuple[str, ...]
    new: frozenset[str]


class Origin(_Kept):
    """A changing call: who did what, when and why."""

    at: Time = Field(default_factory=utc_now)
    actor: Name
    action: Name
    cause: Text = ""


class Audit(Origin):
    """A changing call as the store keeps it, with whose records it changed, and how many."""

    id: int
    owner: str
    records: int


class Change(_Kept):
    """One revision of a record, and the call that it came by; ``record`` is ``None`` where it was forgotten."""

    origin: Origin
    record: Record | None


class Line(_Kept):
    """One line of an export: all that a record has been, oldest first; the last change is what it is now."""

    format: int = 1
    history: Annotated[tuple[Change, ...], Field(min_length=1)]


class Records(Protocol):
    """The records of all owners. When an awaited write returns, it is durable, and it is one audit row.

    ``actor`` is who asks for a change, ``cause`` why. Every method raises ``StorageError`` when the store cannot be
    read or written.
    """

    async def add(
        self, records: Sequence[Record], vectors: Vectors | None = None, *, actor: str, cause: str = ""
    ) -> Added:
        """Keep records, all or none. One whose owner and key are there already is left as it is.

        A record that ``supersedes`` another marks that one as superseded.

        Raises:
            UserError: a vector has the wrong length, or there are not as many as records.
            EmbedderMismatchError: the store's vectors are of another embedder.
        """
        ...

    async def edit(self, record: Record, vectors: Vectors | None = None, *, actor: str, cause: str = "") -> Record:
        """Keep a changed record in place of the revision it was made from; gives it with its new revision.

        Raises:
            ConflictError: somebody else has changed or forgotten it since; holds both versions.
        """
        ...

    async def forget(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Take records out of the memory, or all of an owner's; their history stays. Gives how many."""
        ...

    async def purge(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Delete records with their history, or an owner whole, so that no trace of the text is left in the store."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in that order; those that are not there are left out."""
        ...

    async def page(self, owner: str, kinds: Sequence[str] = (), *, limit: int = 100, after: str = "") -> list[Record]:
        """An owner's records, oldest first, from the one after the id ``after``."""
        ...

    async def newest(self, owner: str, kind: str, *, limit: int = 100) -> list[Record]:
        """An owner's newest records of a kind, oldest first."""
        ...

    async def by_key(self, owner: str, kind: str, key: str) -> Record | None:
        """The record of an owner, kind and key, if it is there."""
        ...

    async def search(self, query: Query) -> Found:
        """The best hits for a query."""
        ...

    async def history(self, record_id: str) -> list[Change]:
        """Every revision of a record, the first one first."""
        ...

    async def audit(self, owner: str | None = None, *, limit: int = 100) -> list[Audit]:
        """The newest changes, newest first."""
        ...

    async def owners(self) -> dict[str, dict[str, int]]:
        """All owners, with the number of their records by kind."""
        ...

    def export(self, owner: str | None = None) -> AsyncIterator[str]:
        """Lines of canonical JSON: every record with its history, of one owner or of all."""
        ...

    async def load(self, lines: Sequence[str], *, actor: str, cause: str = "") -> int:
        """Take in what ``export`` wrote, all or nothing; gives the number of records that are new.

        Raises:
            ImportLineError: a line is truncated, no record, or one of a newer version; it is named.
        """
        ...

    async def without_vectors(self, embedder: str, *, limit: int = 256) -> list[Record]:
        """Records that the embedder has not embedded yet."""
        ...

    async def set_vectors(self, ids: Sequence[str], vectors: Vectors, *, actor: str) -> None:
        """Put vectors in place of those that the records have."""
        ...
