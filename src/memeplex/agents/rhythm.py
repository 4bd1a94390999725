"""When an agent sleeps, memorises, learns and socialises: small rules that compose with ``|``.

Source: Memetic Agents, "State Management", which leaves it to the future: "handled by an autonom or centralised
algorithm that will regulate these states". Each agent follows a rhythm of its own; the first rule that wants something
is followed.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from memeplex.agents.lifecycle import State
from memeplex.models import derive_seed

__all__ = ["After", "AtHour", "Behind", "Condition", "Load", "Rhythm", "SimulatedClock", "Whenever", "circadian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What has piled up: conversations since the last sleep or in short-term memory, feedback that nobody has reflected
    on, and the highest sum of importances that unused reflections on one prompt have."""

    conversations: int = 0
    feedback: int = 0
    reflections: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How an agent is, as far as a rhythm goes by it. ``began``: it lives since; ``entered``: last in each state."""

    agent: str
    now: datetime
    began: datetime
    entered: Mapping[State, datetime] = field(default_factory=dict)
    load: Load = Load()


class Rhythm(ABC):
    """A function of an agent's condition: the same life has the same nights. ``weighs``: it looks at the load."""

    weighs = False

    @abstractmethod
    def wants(self, condition: Condition) -> State | None:
        """The state to enter now; ``None`` to stay available."""

    def __or__(self, other: "Rhythm") -> "Rhythm":
        return _Either(self, other)


@dataclass(frozen=True)
class _Either(Rhythm):
    first: Rhythm
    second: Rhythm

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        return self.first.weighs or self.second.weighs

    def wants(self, condition: Condition) -> State | None:
        return self.first.wants(condition) or self.second.wants(condition)


@dataclass(frozen=True)
class AtHour(Rhythm):
    """Once a day (UTC), from ``hour`` on; ``spread`` hours later at most, by agent, day and ``seed``.

    A day begins at noon, so that a night belongs to one day.
    """

    state: State
    hour: float = 22.0
    spread: float = 0.0
    seed: int = 0

    def wants(self, condition: Condition) -> State | None:
        """The state, if its hour has come and it was not entered since."""
        noon = (condition.now - timedelta(hours=12)).replace(hour=12, minute=0, second=0, microsecond=0)
        drawn = random.Random(derive_seed(self.seed, condition.agent, self.state, noon.date().isoformat()))  # noqa: S311
        due = noon + timedelta(hours=(self.hour - 12) % 24 + self.spread * drawn.random())
        last = condition.entered.get(self.state)
        return self.state if condition.now >= due and (last is None or last < due) else None


@dataclass(frozen=True)
class After(Rhythm):
    """Whenever so many ``hours`` have gone by since it was last in the state, or since it began to live."""

    state: State
    hours: float

    def wants(self, condition: Condition) -> State | None:
        """The state, if the time is up."""
        last = condition.entered.get(self.state, condition.began)
        return self.state if condition.now - last >= timedelta(hours=self.hours) else None


@dataclass(frozen=True)
class Behind(Rhythm):
    """Once after each time that it was in the state ``before``."""

    state: State
    before: State

    def wants(self, condition: Condition) -> State | None:
        """The state, if its turn has come."""
        led, last = condition.entered.get(self.before), condition.entered.get(self.state)
        return self.state if led is not None and (last is None or last < led) else None


@dataclass(frozen=True)
class Whenever(Rhythm):
    """Whenever enough has piled up: any of the amounts that are above zero in ``load``."""

    state: State
    load: Load
    weighs = True

    def wants(self, condition: Condition) -> State | None:
        """The state, if the load is reached."""
        wanted, there = self.load, condition.load
        pairs = (
            (wanted.conversations, there.conversations),
            (wanted.feedback, there.feedback),
            (wanted.reflections, there.reflections),
        )
        return self.state if any(0 < most <= now for most, now in pairs) else None


def circadian(hour: float = 22.0, *, spread: float = 2.0, seed: int = 0) -> Rhythm:
    """A night's sleep, then learning, then memorising.

    In this order, what earlier days have taught is tried on the conversations of today, which are still whole and which
    no lesson is from yet.
    """
    return (
        AtHour(State.SLEEPING, hour, spread, seed)
        | Behind(State.LEARNING, State.SLEEPING)
        | Behind(State.MEMORISING, State.LEARNING)
    )


class SimulatedClock:
    """A clock that goes only when it is put forward."""

    def __init__(self, now: datetime) -> None:
        self.now = now.astimezone(UTC)

    def __call__(self) -> datetime:
        """The time."""
        return self.now

    def advance(self, hours: float) -> None:
        """Put it forward."""
        self.now += timedelta(hours=hours)
