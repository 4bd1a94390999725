"""What is claimed of agents and teams, with the counts that it rests on: plain values."""

from dataclasses import dataclass, field

__all__ = ["Expert", "Profile", "Suggestion", "Tally", "TeamPattern"]


@dataclass(slots=True)
class Tally:
    """Successes and failures: how many, and how much they weigh now."""

    successes: int = 0
    failures: int = 0
    weight: float = 0.0
    won: float = 0.0

    def add(self, success: bool, weight: float) -> None:
        """One more."""
        self.successes += success
        self.failures += not success
        self.weight += weight
        self.won += weight * success

    @property
    def count(self) -> int:
        """How many there are."""
        return self.successes + self.failures

    @property
    def reliability(self) -> float:
        """The chance of success, from 0 to 1; with no evidence it is even (Laplace's rule)."""
        return (self.won + 1) / (self.weight + 2)

    def __str__(self) -> str:
        return f"{self.successes} of {self.count}"


@dataclass(slots=True)
class Profile:
    """What an agent has shown: by type of task, and with whom."""

    agent: str
    types: dict[str, Tally] = field(default_factory=dict)
    partners: dict[str, Tally] = field(default_factory=dict)

    @property
    def specialisations(self) -> list[str]:
        """Types of task, the most reliable first."""
        return sorted(self.types, key=lambda kind: (-self.types[kind].reliability, kind))


@dataclass(slots=True)
class TeamPattern:
    """What a set of agents has come to, by type of task. ``performance`` and ``overhead`` are running means."""

    agents: tuple[str, ...]
    types: dict[str, Tally] = field(default_factory=dict)
    count: int = 0
    performance: float = 0.0
    overhead: float = 0.0

    def tally(self, kind: str = "") -> Tally:
        """Its tasks of a type; all of them where none is named."""
        whole = Tally()
        for name, one in self.types.items():
            if kind in ("", name):
                whole.successes, whole.failures = whole.successes + one.successes, whole.failures + one.failures
                whole.weight, whole.won = whole.weight + one.weight, whole.won + one.won
        return whole


@dataclass(frozen=True, slots=True)
class Expert:
    """Who is likely to manage a task: ``score`` from 0 to 1, with the experiences it rests on."""

    agent: str
    score: float
    successes: int
    failures: int
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A team for a task: ``score`` from 0 to 1, and ``reasons`` with the counts that it rests on.

    ``pattern`` is what this very team has come to before, if it has worked together.
    """

    agents: tuple[str, ...]
    score: float
    pattern: TeamPattern | None
    reasons: tuple[str, ...]
