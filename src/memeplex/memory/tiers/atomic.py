"""Long-term memory: atomic memories, and which of two that contradict each other holds.

Source: Memetic Agents, "Types of Memory" and "Memory Consolidation": a subject, a predicate, an object and semantic
tags that are part of what is embedded; "Conflicting Memory Resolution" is among its future work.

Of two memories with one subject and one predicate, but different objects, the one that is trusted much more holds;
else the newer one, by when it was said. The other is kept beside it, and says from when until when it held.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ConfigDict

from memeplex.autonoms.extract_memories import AtomicMemory
from memeplex.memory.archive import Archive
from memeplex.memory.tiers.short_term import all_of
from memeplex.storage import Provenance, Record

__all__ = [
    "ATOMIC",
    "Conflict",
    "Held",
    "as_held",
    "close",
    "confirm",
    "conflicts",
    "known",
    "place",
    "plain",
    "record_of",
    "same_thing",
    "since",
]

ATOMIC = "atomic"
"""The kind of these records."""

_DOUBT = 0.25
"""How much more one of two memories must be trusted, so that it does not matter which is newer."""


class Held(AtomicMemory):
    """What a record of an atomic memory holds. ``conversations`` are all that said it.

    It held from ``valid_from`` on; ``valid_until`` is set where another memory has taken its place.
    """

    model_config = ConfigDict(extra="ignore")

    conversations: tuple[str, ...] = ()
    social: bool = False
    valid_from: datetime
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Memories with one subject and one predicate, but several objects. ``others`` do not hold, newest first."""

    subject: str
    predicate: str
    current: Record
    others: tuple[Record, ...]


def as_held(record: Record) -> Held:
    """The atomic memory in a record."""
    return Held.model_validate(record.payload)


def record_of(
    memory: AtomicMemory, *, owner: str, batch: str, provenance: Provenance, trust: float, social: bool, at: datetime
) -> Record:
    """The record of a memory that a conversation gave at a time. Twice from one ``batch`` of it is once."""
    tags = [tag for text in memory.tags if (tag := re.sub(r"[\s#]+", "-", text).strip("-"))]
    tags = list(dict.fromkeys([*tags, *(["social"] if social else [])]))
    held = Held(
        **memory.model_dump(exclude={"tags"}),
        tags=tags[-5:],
        conversations=(provenance.run,),
        social=social,
        valid_from=at,
    )
    return Record(
        owner=owner,
        kind=ATOMIC,
        text="\n".join([memory.statement, " ".join(f"#{tag}" for tag in held.tags)]).strip(),
        key=hashlib.sha256(f"{batch}\n{plain(memory.statement)}".encode()).hexdigest(),
        payload=held.model_dump(mode="json"),
        provenance=provenance,
        trust=trust,
    )


def plain(text: str) -> str:
    """A text by its words alone: case, signs and articles make no difference."""
    flat = re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return re.sub(r"^(?:the|an?) (?=.)", "", flat)


def _about(record: Record) -> tuple[str, str]:
    """Subject and predicate, by their words."""
    return plain(record.payload["subject"]), plain(record.payload["predicate"])


def same_thing(one: Record, other: Record) -> bool:
    """Whether two memories say the same of the same."""
    return _about(one) == _about(other) and plain(one.payload["object"]) == plain(other.payload["object"])


async def known(archive: Archive, owner: str) -> list[Record]:
    """All atomic memories of an owner, oldest first, those that do not hold any more too."""
    return await all_of(archive, owner, [ATOMIC])


def since(record: Record) -> datetime:
    """From when on a memory held."""
    return datetime.fromisoformat(record.payload["valid_from"])


def place(new: Iterable[Record], old: Sequence[Record]) -> tuple[list[Record], list[tuple[Record, Record]]]:
    """What of ``new`` is to be kept, with what it supersedes or is superseded by; and what only repeats what is known.

    Of the latter, each comes after the memory that says it already.
    """
    current = {_about(record): record for record in sorted(old, key=_age) if record.superseded_by is None}
    kept: dict[str, Record] = {}
    repeated: list[tuple[Record, Record]] = []
    for record in sorted(new, key=_age):
        present = current.get(_about(record))
        if present is None:
            current[_about(record)] = kept[record.id] = record
        elif same_thing(present, record):
            if present.id not in kept:
                repeated.append((present, record))
        elif _holds(record, present):
            current[_about(record)] = kept[record.id] = record.model_copy(update={"supersedes": present.id})
        else:
            kept[record.id] = _ended(record.model_copy(update={"superseded_by": present.id}), present)
    return list(kept.values()), repeated


def _holds(new: Record, present: Record) -> bool:
    if abs(new.trust - present.trust) > _DOUBT:
        return new.trust > present.trust
    return since(new) >= since(present)


def _ended(record: Record, heir: Record) -> Record:
    """A memory with the time until when it held; none at all, if its heir was there first."""
    held = as_held(record).model_copy(update={"valid_until": max(since(record), since(heir))})
    return record.model_copy(update={"payload": held.model_dump(mode="json")})


def _age(record: Record) -> tuple[datetime, str]:
    return since(record), record.id


async def close(archive: Archive, records: Iterable[Record], *, actor: str) -> None:
    """Write down until when those held whose place others have taken. Once more changes nothing."""
    for record in records:
        if record.supersedes is None:
            continue

        def ended(old: Record, heir: Record = record) -> Record | None:
            return None if old.payload.get("valid_until") else _ended(old, heir)

        await archive.revise(record.supersedes, ended, actor=actor, cause=f"superseded by {record.id}")


async def confirm(archive: Archive, present: Record, repeated: Record, *, actor: str) -> None:
    """Note on a memory that it was said once more: where, and by whom it is trusted more. Once more changes nothing."""

    def said_again(record: Record) -> Record | None:
        before, more = record.payload, repeated.payload
        conversations = list(dict.fromkeys([*before["conversations"], *more["conversations"]]))
        after = {
            **before,
            "conversations": conversations,
            "confidence": max(before["confidence"], more["confidence"]),
        }
        trust = max(record.trust, repeated.trust)
        if (after, trust) == (before, record.trust):
            return None
        return record.model_copy(update={"payload": after, "trust": trust})

    await archive.revise(present.id, said_again, actor=actor, cause=f"said again in {repeated.provenance.run}")


async def conflicts(archive: Archive, owner: str) -> list[Conflict]:
    """What an owner's memories contradict each other in, and which of them holds."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in await known(archive, owner):
        groups.setdefault(_about(record), []).append(record)
    found: list[Conflict] = []
    for records in groups.values():
        if len({plain(record.payload["object"]) for record in records}) < 2:
            continue
        ranked = sorted(records, key=lambda one: (one.superseded_by is None, *_age(one)))
        current, held = ranked[-1], as_held(ranked[-1])
        others = tuple(reversed(ranked[:-1]))
        found.append(Conflict(subject=held.subject, predicate=held.predicate, current=current, others=others))
    return found
