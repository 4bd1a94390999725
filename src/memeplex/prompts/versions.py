"""Versions of a prompt as records: each is written once, and one small record of its own says which is in use.

That one record, the head, is where all decisions meet: two that contradict each other cannot both be kept.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memeplex.errors import PromptError, StorageError
from memeplex.messages import utc_now
from memeplex.prompts.prompt import Prompt
from memeplex.storage import Provenance, Record

__all__ = ["HEAD", "HIGHEST", "PROMPT", "Cause", "Head", "Ref", "Status", "Version"]

PROMPT = "prompt"
"""The kind of records that hold a version."""
HEAD = "prompt head"
"""The kind of records that say which version is in use."""
HIGHEST = 10.0
"""Confidence and scores are from 0 to this."""


class Cause(StrEnum):
    """How a version came about: ``file`` is version 1, as it was when another was made from it."""

    FILE = "file"
    REFLECTION = "reflection"
    SOCIAL = "social"
    HUMAN = "human"


class Status(StrEnum):
    """What became of a version. ``proposed``: nobody has decided yet. ``superseded``: it was in use before."""

    ADOPTED = "adopted"
    PROPOSED = "proposed"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ref(_Kept):
    """A version, whoever's it is."""

    owner: str
    name: str
    number: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.owner} {self.name}@{self.number}"


class Head(_Kept):
    """How a prompt stands with its owner: the number of the version in use, and those that were or never will be.

    A ``pinned`` prompt stays at its version.
    """

    name: str
    adopted: int = 1
    pinned: bool = False
    superseded: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The highest number that was decided on."""
        return max(self.adopted, *self.superseded, *self.rejected, 1)

    def status(self, number: int) -> Status:
        """What became of a version."""
        if number == self.adopted:
            return Status.ADOPTED
        if number in self.rejected:
            return Status.REJECTED
        # Version 1 was in use before there was another.
        return Status.SUPERSEDED if number in self.superseded or number == 1 else Status.PROPOSED

    def record(self, owner: str) -> Record:
        """The record of a new head."""
        return Record(owner=owner, kind=HEAD, key=self.name, text=self.line, payload=self.model_dump(mode="json"))

    @property
    def line(self) -> str:
        """How it stands, in a line."""
        return f"{self.name} is at version {self.adopted}{', pinned' if self.pinned else ''}"


class Version(_Kept):
    """One version of one owner's prompt.

    ``texts`` are those of its editable sections, by title. ``evidence`` are ids of what it was made from, ``scores``
    are from 0 to 10, and so is ``confidence``. ``frame`` is the hash of what may not change, ``source`` the job that
    made it.
    """

    owner: str
    name: str
    number: int = Field(ge=1)
    texts: dict[str, str]
    parents: tuple[Ref, ...] = ()
    author: str = ""
    cause: Cause = Cause.FILE
    evidence: tuple[str, ...] = ()
    scores: dict[str, float] = Field(default_factory=dict)
    confidence: float = Field(default=0.0, ge=0, le=HIGHEST)
    frame: str = ""
    source: str = ""
    status: Status = Status.PROPOSED
    created: datetime = Field(default_factory=utc_now)

    @property
    def ref(self) -> Ref:
        """Its name, for others to point to."""
        return Ref(owner=self.owner, name=self.name, number=self.number)

    @property
    def text(self) -> str:
        """Its texts, one below the other."""
        return "\n\n".join(text for text in self.texts.values() if text)

    def prompt(self, first: Prompt) -> Prompt:
        """The prompt of this version: its texts in the frame of ``first``, which alone says what may not change.

        Raises:
            StorageError: the file has lost a section, or got a placeholder, since this version was made.
        """
        try:
            return first.revised(self.texts, number=self.number)
        except PromptError as error:
            remedy = f"memeplex prompts rollback {self.owner} {self.name} --to 1 goes back to the file"
            raise StorageError(f"version {self.number} of {self.owner} does not fit: {error}", remedy=remedy) from error

    def record(self, *, model: str = "", prompt: str = "") -> Record:
        """The record of a new version; ``model`` and ``prompt`` are what it was written with."""
        own = {"owner", "status", "created"}
        payload = {**self.model_dump(mode="json", exclude=own), "digest": _digest(self.texts)}
        return Record(
            owner=self.owner,
            kind=PROMPT,
            key=key_of(self.name, self.number),
            text=self.text or "(empty)",
            payload=payload,
            provenance=Provenance(author=self.author, model=model, prompt=prompt),
            created=self.created,
        )


def key_of(name: str, number: int) -> str:
    """The key of a version's record."""
    return f"{name}@{number}"


def as_version(record: Record, head: Head) -> Version:
    """The version in a record.

    Raises:
        StorageError: it is not what was written.
    """
    payload: dict[str, Any] = dict(record.payload)
    digest = payload.pop("digest", None)
    try:
        version = Version.model_validate(
            {**payload, "owner": record.owner, "created": record.created, "status": head.status(payload["number"])}
        )
    except (ValidationError, KeyError) as error:
        raise _tampered(record) from error
    if digest != _digest(version.texts) or record.text != (version.text or "(empty)"):
        raise _tampered(record)
    return version


def _digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def _tampered(record: Record) -> StorageError:
    return StorageError(
        f"{record.key} of {record.owner} is not what was written: a version of a prompt is never edited",
        remedy=f"memeplex prompts rollback {record.owner} {record.key.rpartition('@')[0]} --to 1; who did it is told by"
        f" memeplex memory record {record.id} --history",
    )
