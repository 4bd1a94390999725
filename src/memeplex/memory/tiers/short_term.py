"""Short-term memory: whole conversations, exactly as they were, in chunks that can be searched.

Source: Memetic Agents, "Types of Memory": stored as is with no loss of information; a conversation that goes on is
taken back into working memory, and its new messages become a further chunk of the same conversation id.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from memeplex.memory.archive import Archive, record_text
from memeplex.memory.tiers.working import Said
from memeplex.storage import Provenance, Record

__all__ = ["SHORT_TERM", "Chunk", "all_of", "as_chunk", "by_conversation", "records_of"]

SHORT_TERM = "short_term"
"""The kind of these records."""

_CHUNK = 2000
"""Characters of a chunk, about what an embedder reads; a longer message is a chunk of its own."""
_PAGE = 500


class Chunk(BaseModel):
    """What a record of short-term memory holds beside its text: messages, and where in the conversation they begin."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    conversation: str
    start: int
    social: bool = False
    messages: tuple[Said, ...]

    @property
    def end(self) -> int:
        """Where the next chunk begins."""
        return self.start + len(self.messages)


def as_chunk(record: Record) -> Chunk:
    """The chunk in a record."""
    return Chunk.model_validate(record.payload)


def records_of(
    conversation: str, messages: Sequence[Said], *, start: int, social: bool, owner: str, agent: str
) -> list[Record]:
    """The records of messages of which the first is number ``start`` of the conversation. Twice is once."""
    return [
        _record(Chunk(conversation=conversation, start=start + at, social=social, messages=part), owner, agent)
        for at, part in _cut(messages)
    ]


def _cut(messages: Sequence[Said]) -> Iterator[tuple[int, tuple[Said, ...]]]:
    at = size = 0
    for i, message in enumerate(messages):
        length = len(message.line)
        if i > at and size + length > _CHUNK:
            yield at, tuple(messages[at:i])
            at, size = i, 0
        size += length
    if messages:
        yield at, tuple(messages[at:])


def _record(chunk: Chunk, owner: str, agent: str) -> Record:
    payload = chunk.model_dump(mode="json")
    # Two processes that go on with one conversation write two chunks, not one over the other.
    key = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()
    return Record(
        owner=owner,
        kind=SHORT_TERM,
        text=record_text("\n".join(message.line for message in chunk.messages)),
        key=key,
        payload=payload,
        provenance=Provenance(run=chunk.conversation, turns=tuple(range(chunk.start, chunk.end)), author=agent),
    )


async def all_of(archive: Archive, owner: str, kinds: Sequence[str]) -> list[Record]:
    """All records of an owner and some kinds, oldest first."""
    found: list[Record] = []
    while page := await archive.records.page(owner, kinds, limit=_PAGE, after=found[-1].id if found else ""):
        found += page
    return found


async def by_conversation(archive: Archive, owner: str) -> dict[str, list[Record]]:
    """The chunks of each conversation in the order of time, whatever order they are kept in."""
    found: dict[str, list[Record]] = {}
    for record in await all_of(archive, owner, [SHORT_TERM]):
        found.setdefault(record.payload["conversation"], []).append(record)
    return {name: sorted(records, key=lambda one: (one.payload["start"], one.id)) for name, records in found.items()}
