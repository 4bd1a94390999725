"""What a call cost, and what for: amounts that add."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self

__all__ = ["Ledger", "Purpose", "Usage"]


class Purpose(StrEnum):
    """What a model call is for. Token tables are split by it."""

    ANSWER = "answer"
    THOUGHT = "thought"
    SELECTION = "selection"
    VOTE = "vote"
    TEMPLATE = "template"
    MEMORY_UPDATE = "memory update"
    PROBE = "probe"
    EMBEDDING = "embedding"
    LESSON = "lesson"
    CONSOLIDATION = "consolidation"
    EXTRACTION = "extraction"
    REFLECTION = "reflection"
    FEEDBACK = "feedback"
    LEARNING = "learning"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Amounts of one or many calls: tokens in, of them cached, tokens out, calls, seconds."""

    input: int = 0
    cached: int = 0
    output: int = 0
    calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: Self) -> Self:
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input + self.output


class Ledger(Mapping[Purpose, Usage]):
    """Usage by purpose. Immutable; ledgers add, and a ledger and a ledger of one entry are the same type."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[Purpose, Usage] | None = None) -> None:
        self._entries = dict(entries or {})

    def __getitem__(self, purpose: Purpose) -> Usage:
        return self._entries[purpose]

    def __iter__(self) -> Iterator[Purpose]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __add__(self, other: "Ledger") -> "Ledger":
        merged = dict(self._entries)
        for purpose, usage in other.items():
            merged[purpose] = merged.get(purpose, Usage()) + usage
        return Ledger(merged)

    def __repr__(self) -> str:
        return f"Ledger({self._entries!r})"

    @property
    def total(self) -> Usage:
        """All purposes together."""
        return sum(self._entries.values(), Usage())
