"""What an agent had before it in a conversation, and did not hear in it: it is nothing new when it says it.

In a team's run, every memory of the agent puts something before the task; what that was is kept with the run.
"""

from memeplex.memory import episodes
from memeplex.memory.archive import Archive
from memeplex.memory.base import MemoryScope
from memeplex.memory.retrieval import RETRIEVAL
from memeplex.memory.tiers.recall import Recalled
from memeplex.memory.topology import joined
from memeplex.storage import Provenance, Record

__all__ = ["RECALLED", "keep_recalled", "kept_elsewhere", "recalled"]

RECALLED = "recalled"
"""The kind of the record that says what the tiers have put before an agent in a conversation."""


async def recalled(archive: Archive, owner: str, conversation: str) -> Recalled | None:
    """What the tiers have put before the agent in a conversation, if they were asked."""
    record = await archive.records.by_key(owner, RECALLED, joined(conversation))
    return None if record is None else Recalled(record.payload["text"], tuple(record.payload["records"]))


async def keep_recalled(archive: Archive, owner: str, conversation: str, given: Recalled, *, agent: str) -> None:
    """Keep what is put before the agent, so that a resumed run reads the same, and nothing of it is taken for news."""
    record = Record(
        owner=owner,
        kind=RECALLED,
        text=f"what was recalled in {conversation}",
        key=joined(conversation),
        payload={"text": given.text, "records": list(given.records)},
        provenance=Provenance(run=conversation, author=agent),
    )
    await archive.records.add([record], actor=agent, cause="recalled for a conversation")


async def kept_elsewhere(archive: Archive, scope: MemoryScope, owner: str, conversation: str) -> list[str]:
    """What the agent's lifelong memory, if it has one, told it in a conversation, and the lessons drawn from it."""
    found: list[str] = []
    key = joined(conversation, scope.agent)
    for place in dict.fromkeys([owner, joined(scope.team)]):
        if (record := await archive.records.by_key(place, RETRIEVAL, key)) is not None:
            found.append(record.payload["text"])
        if (record := await archive.records.by_key(place, episodes.EPISODE, key)) is not None:
            found += episodes.as_episode(record).lessons
    return found
