"""An agent's messages on disk: those that wait, in their order, and those of conversations not yet slept over.

Source: Memetic Agents, "Sleeping": there the queue is reset; here nothing is lost. What an agent has said and heard
stays in its queue, beside its working memory, until that has become short-term memory: a process that dies takes no
conversation with it.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from memeplex.errors import UserError
from memeplex.memory.archive import record_text
from memeplex.memory.tiers import Said
from memeplex.memory.tiers.feedback import score_of
from memeplex.messages import FeedbackMessage, Message, StandardMessage
from memeplex.storage import Provenance, Record, Records

__all__ = ["MESSAGE", "Letter", "Queue"]

MESSAGE = "message"
"""The kind of these records."""
_PAGE = 500


class Letter(BaseModel):
    """A message, and what became of it: ``said`` is what it added to its conversation, from number ``at`` on.

    Nothing has become of one that waits. ``reply`` is the answer that was given.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = ""
    message: Message
    at: int | None = None
    said: tuple[Said, ...] = ()
    reply: StandardMessage | None = None

    @property
    def waiting(self) -> bool:
        """Whether it is still to be dealt with."""
        return self.at is None


class Queue:
    """The messages of one owner. Whoever writes to an agent puts the message here, whether it lives or not."""

    def __init__(self, records: Records, owner: str) -> None:
        self._records = records
        self._owner = owner

    async def put(self, message: Message) -> Letter:
        """Keep a message, to be dealt with later; gives the letter that is there already if it is sent twice.

        Raises:
            FeedbackScoreError: it is feedback with a score that is none.
        """
        if isinstance(message, FeedbackMessage):
            score_of(message.score)
        return await self._keep(Letter(message=message))

    async def sent(self, message: StandardMessage, said: Said, *, at: int) -> Letter:
        """Keep a message of the owner's own, as a part of its conversation."""
        return await self._keep(Letter(message=message, at=at, said=(said,)))

    async def _keep(self, letter: Letter) -> Letter:
        message = letter.message
        record = Record(
            owner=self._owner,
            kind=MESSAGE,
            text=record_text(message.comment if isinstance(message, FeedbackMessage) else message.content),
            key=message.id,
            payload=letter.model_dump(mode="json", exclude={"id"}),
            provenance=Provenance(run=message.conversation, author=message.sender),
        )
        added = await self._records.add([record], actor=message.sender or self._owner, cause=f"{message.kind} message")
        if added.new:
            return letter.model_copy(update={"id": record.id})
        there = _letter((await self._records.get(added.ids))[0])
        if there.message.sender != message.sender:
            raise UserError(
                f"a message {message.id} of {there.message.sender} is here already", remedy="give another id"
            )
        return there

    async def find(self, message_id: str) -> Letter | None:
        """A message by its id, as long as it is here."""
        record = await self._records.by_key(self._owner, MESSAGE, message_id)
        return None if record is None else _letter(record)

    async def all(self) -> list[Letter]:
        """Everything that is here, in the order in which it came."""
        found: list[Letter] = []
        while page := await self._records.page(
            self._owner, [MESSAGE], limit=_PAGE, after=found[-1].id if found else ""
        ):
            found += map(_letter, page)
        return found

    async def waiting(self) -> list[Letter]:
        """What is to be dealt with, in the order in which it came."""
        return [letter for letter in await self.all() if letter.waiting]

    async def taken(self) -> list[Letter]:
        """What is a part of a conversation, in the order of each conversation."""
        return sorted((one for one in await self.all() if one.at is not None), key=lambda one: one.at or 0)

    async def take(
        self, letter: Letter, *, at: int, said: Sequence[Said], reply: StandardMessage | None = None
    ) -> Letter:
        """Keep what became of a message; from now on it waits no more."""
        done = letter.model_copy(update={"at": at, "said": tuple(said), "reply": reply})
        (record,) = await self._records.get([letter.id])
        payload = done.model_dump(mode="json", exclude={"id"})
        await self._records.edit(record.model_copy(update={"payload": payload}), actor=self._owner, cause="dealt with")
        return done

    async def drop(self, letters: Sequence[Letter], *, cause: str) -> None:
        """Let go of messages that are kept elsewhere by now."""
        if letters:
            await self._records.forget(self._owner, [one.id for one in letters], actor=self._owner, cause=cause)


def _letter(record: Record) -> Letter:
    return Letter.model_validate({**record.payload, "id": record.id})
