"""What an agent does with its messages: keep them, answer them in their order, and say what it thinks of answers.

Source: Memetic Agents, "Message Types" and "Communication Flow". A message is in the queue of whom it is for before
anything is made of it, and each step can be done again after a sudden end.
"""

from collections.abc import Callable, Collection
from uuid import uuid4

from memeplex.agents.conversing import Conversing
from memeplex.agents.feedback import GivingFeedback
from memeplex.agents.queue import Letter, Queue
from memeplex.errors import ModelError, UnknownNameError, UserError
from memeplex.memory.tiers import Said, TiersMemory
from memeplex.memory.topology import joined
from memeplex.messages import FeedbackMessage, Message, MessageKind, SocialMessage, StandardMessage, one_line
from memeplex.storage import Records
from memeplex.telemetry import MessageAnswered, emit
from memeplex.usage import Ledger

__all__ = ["Correspondence", "Post"]


class Post:
    """How the agents of a team reach each other: a message goes into the queue of whom it is for, in the same store."""

    def __init__(self, records: Records, team: str, members: Collection[str]) -> None:
        self._records = records
        self._team = team
        self.members = frozenset(members)

    async def __call__(self, message: Message) -> None:
        """Hand a message over; once more changes nothing.

        Raises:
            UnknownNameError: there is no such agent.
            FeedbackScoreError: it is feedback with a score that is none.
        """
        if message.recipient not in self.members:
            raise UnknownNameError("agent", message.recipient, sorted(self.members))
        await Queue(self._records, joined(self._team, message.recipient)).put(message)


class Correspondence:
    """The messages of one agent. ``give`` is its feedback, if it gives any; ``spend`` is told what answers cost."""

    def __init__(
        self,
        name: str,
        queue: Queue,
        tiers: TiersMemory,
        *,
        conversing: Conversing,
        give: GivingFeedback | None,
        post: Post,
        spend: Callable[[Ledger], None],
    ) -> None:
        self._name = name
        self._queue = queue
        self._tiers = tiers
        self._conversing = conversing
        self._give = give
        self._post = post
        self._spend = spend

    async def restore(self) -> None:
        """Working memory as it was when an earlier process ended: what had not been slept over."""
        for letter in await self._queue.taken():
            talk = await self._tiers.open(letter.message.conversation)
            talk.social = talk.social or letter.message.kind is MessageKind.SOCIAL
            if letter.at is not None and letter.at >= talk.end:
                talk.messages += letter.said
            if letter.reply is not None:
                await self._send(letter.reply)

    async def receive(self, message: Message) -> None:
        """Keep a message; when this returns, it is durable.

        Raises:
            UserError: it is for somebody else.
            FeedbackScoreError: it is feedback with a score that is none.
        """
        if message.recipient != self._name:
            raise UserError(f"{self._name} got a message for {message.recipient!r}", remedy="send it there")
        await self._queue.put(message)

    async def tell(self, recipient: str, content: str, *, conversation: str = "") -> StandardMessage:
        """Say something to another agent, in a conversation or a new one. Its answer will come as a message.

        Raises:
            UnknownNameError: there is no such agent.
        """
        message = StandardMessage(
            sender=self._name, recipient=recipient, conversation=conversation or uuid4().hex, content=content
        )
        if recipient not in self._post.members:
            raise UnknownNameError("agent", recipient, sorted(self._post.members))
        talk = await self._tiers.open(message.conversation)
        own = Said(role="assistant", name=self._name, content=message.content, created=message.created)
        letter = await self._queue.sent(message, own, at=talk.end)
        talk.messages += letter.said
        await self._post(message)
        return message

    async def attend(self, kinds: Collection[MessageKind], *, stop: Callable[[], bool]) -> list[StandardMessage]:
        """Deal with what waits and is of these kinds, in the order in which it came; gives the answers.

        Raises:
            ModelError: the model gave no answer; its message, and those behind it, go on waiting.
        """
        given: list[StandardMessage] = []
        for letter in await self._queue.waiting():
            if stop():
                break
            if letter.message.kind in kinds:
                given += await self._deal(letter)
        if self._give is not None and MessageKind.STANDARD in kinds:
            self._spend(await self._give.drain(stop=stop))
        return given

    async def _deal(self, letter: Letter) -> list[StandardMessage]:
        message = letter.message
        if isinstance(message, FeedbackMessage):
            await self._tiers.receive_feedback(
                message.conversation,
                message.score,
                message.comment,
                sender=message.sender,
                about=message.about,
                source=message.id,
            )
            await self._queue.drop([letter], cause="kept as feedback")
            return []
        if isinstance(message, SocialMessage):
            await self._take(letter, _shown(message), social=True)
            return []
        if message.reply_to:
            await self._hear(letter, message)
            return []
        return [await self._answer(letter, message)]

    async def _answer(self, letter: Letter, message: StandardMessage) -> StandardMessage:
        talk = await self._tiers.open(message.conversation)
        try:
            answer = await self._conversing.answer(talk, message)
        except ModelError as error:
            self._told(message, "waiting", one_line(str(error)))
            raise
        reply = StandardMessage(
            id=f"{message.id[:140]}.answer",
            sender=self._name,
            recipient=message.sender,
            conversation=message.conversation,
            content=answer.text,
            reply_to=message.id,
            created=answer.said[-1].created,
        )
        await self._take(letter, answer.said, reply=reply)
        await self._send(reply)
        self._spend(answer.usage)
        self._told(message, "answered", answer.text, answer.usage)
        return reply

    async def _hear(self, letter: Letter, message: StandardMessage) -> None:
        """An answer to what it has said itself: it is scored, once it is a part of the conversation."""
        asked = await self._queue.find(message.reply_to)
        talk = await self._tiers.open(message.conversation)
        if self._give is not None and asked is not None and isinstance(asked.message, StandardMessage):
            await self._give.enqueue(
                conversation=message.conversation,
                about=talk.end,
                source=message.id,
                by=message.sender,
                asked=asked.message.content,
                answer=message.content,
            )
        heard = Said(role="user", name=message.sender, content=message.content, created=message.created)
        await self._take(letter, (heard,))

    async def _take(
        self, letter: Letter, said: tuple[Said, ...], *, reply: StandardMessage | None = None, social: bool = False
    ) -> None:
        """Make something a part of its conversation: on the disk first, then in working memory."""
        talk = await self._tiers.open(letter.message.conversation, social=social)
        await self._queue.take(letter, at=talk.end, said=said, reply=reply)
        talk.messages += said

    async def _send(self, reply: StandardMessage) -> None:
        # Who is no agent has the answer from whoever asked on its behalf.
        if reply.recipient in self._post.members:
            await self._post(reply)

    def _told(self, message: StandardMessage, status: str, text: str, usage: Ledger | None = None) -> None:
        told = MessageAnswered(
            agent=self._name,
            sender=message.sender,
            conversation=message.conversation,
            status=status,
            text=text,
            usage=usage or Ledger(),
        )
        emit(told)


def _shown(message: SocialMessage) -> tuple[Said, ...]:
    """What a social message adds to its conversation; the prompt is put in, so that it is never taken for news."""
    texts = "\n".join(message.prompt.texts.values()) if message.prompt else ""
    score = f"score {message.score:g} of 10" if message.score is not None else ""
    said = [
        Said(role="user", name=message.sender, content=text, source=source, created=message.created)
        for text, source in ((texts, "prompt"), (": ".join(filter(None, (score, message.content))), "said"))
        if text
    ]
    return tuple(said)
