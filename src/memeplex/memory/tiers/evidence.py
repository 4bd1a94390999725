"""What a memory may be made of: what was said, by whom and when, and not what had been put into the conversation.

Source: Memetic Agents, "Memory Consolidation": chunks reassembled in chronological order, with the feedback added.
That nothing put in comes back as news is ours: nearly all memories of systems without it are prompts and recalled
memories.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memeplex.memory.notes import supported, words
from memeplex.memory.tiers.feedback import as_feedback
from memeplex.memory.tiers.short_term import as_chunk
from memeplex.memory.tiers.working import Said
from memeplex.models.tokens import estimate
from memeplex.storage import Record

__all__ = ["SOCIAL_TRUST", "TRUST", "Evidence", "Witness", "newest", "parts", "repeats"]

TRUST = 0.8
"""How far what was said in a conversation is trusted; what a tool gave is an observation of the agent's own."""
SOCIAL_TRUST = 0.5
"""The same in a social exchange, where others want to be believed."""

_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n")


@dataclass(frozen=True, slots=True)
class Witness:
    """One message, or one comment, that memories can come from. ``turn`` is its number in the conversation, if any."""

    speaker: str
    text: str
    at: datetime
    trust: float
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one conversation: its records, what was said, what was put in, and the feedback."""

    conversation: str
    social: bool
    end: int
    sources: tuple[str, ...]
    said: tuple[tuple[int, Said], ...]
    put_in: tuple[Said, ...]
    feedback: tuple[Record, ...]

    @classmethod
    def of(cls, conversation: str, chunks: Sequence[Record], feedback: Sequence[Record]) -> "Evidence":
        """From chunks in the order of time, and feedback."""
        held = [as_chunk(record) for record in chunks]
        messages = [(chunk.start + i, said) for chunk in held for i, said in enumerate(chunk.messages)]
        return cls(
            conversation=conversation,
            social=any(chunk.social for chunk in held),
            end=max([0, *(chunk.end for chunk in held)]),
            sources=tuple(record.id for record in (*chunks, *feedback)),
            said=tuple((turn, said) for turn, said in messages if said.new),
            put_in=tuple(said for _, said in messages if not said.new),
            feedback=tuple(feedback),
        )

    @property
    def lines(self) -> list[str]:
        """The conversation as it is shown to a model."""
        return [said.line for _, said in self.said]

    @property
    def compared(self) -> list[str]:
        """The same, with the prompts that were exchanged: there is something to learn from them, nothing to know."""
        return [*(said.line for said in self.put_in if said.source == "prompt"), *self.lines]

    @property
    def comments(self) -> list[str]:
        """The feedback as it is shown to a model."""
        return [as_feedback(record).line for record in self.feedback]

    @property
    def witnesses(self) -> list[Witness]:
        """Everything that a memory can come from, in the order of time."""
        trust = SOCIAL_TRUST if self.social else TRUST
        found = [
            Witness(said.name or said.role, said.line, said.created, 1.0 if said.role == "tool" else trust, turn)
            for turn, said in self.said
        ]
        for record in self.feedback:
            given = as_feedback(record)
            found.append(Witness(given.sender, given.line, record.created, trust))
        return found

    def witness(self, statement: str) -> Witness | None:
        """Who said it: of those whose words it is made of, the one with most of them, and of equals the last.

        ``None`` where it is not made of what all of them said: then it was made up.
        """
        witnesses = self.witnesses
        if not supported(statement, "\n".join(one.text for one in witnesses)):
            return None
        own = words(statement)
        return max(enumerate(witnesses), key=lambda pair: (len(own & words(pair[1].text)), pair[0]))[1]


def repeats(text: str, told: Iterable[str]) -> bool:
    """Whether a text says no more than a line or a sentence that an agent was told."""
    own = words(text)
    return any(own <= words(sentence) for one in told for sentence in _SENTENCE.split(one))


def parts(lines: Sequence[str], room: int) -> list[list[str]]:
    """The lines in parts of at most ``room`` estimated tokens, nothing left out; a longer line is cut into several."""
    found: list[list[str]] = [[]]
    size = 0
    for piece in (piece for line in lines for piece in _pieces(line, room)):
        length = estimate(piece) + 1
        if found[-1] and size + length > room:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += length
    return found


def newest(lines: Sequence[str], room: int) -> list[str]:
    """The newest lines that fit into ``room`` estimated tokens, the last one in any case, if need be cut."""
    kept: list[str] = []
    for line in reversed(lines):
        size = estimate(line) + 1
        if size > room:
            return kept[::-1] or [_pieces(line, room)[0]]
        kept.append(line)
        room -= size
    return kept[::-1]


def _pieces(line: str, room: int) -> list[str]:
    if estimate(line) < room or len(line) < 2:
        return [line]
    middle = len(line) // 2
    return [*_pieces(line[:middle], room), *_pieces(line[middle:], room)]
