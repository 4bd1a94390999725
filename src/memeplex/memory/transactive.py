"""Who knows what, and which teams suit which tasks: reckoned from experience, with the counts behind every claim.

Source: Scaling Teams or Scaling Time?, section 3: agent profiles and team patterns from accumulated competence and
collaboration. Nothing is counted up: each finished task leaves one record per agent, and every claim is worked out from
these, so that a task taken in twice counts once and a forgotten one no longer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memeplex.memory.archive import Archive
from memeplex.storage import Provenance, Record

__all__ = ["EXPERIENCE", "Expert", "Profile", "Tally", "TeamPattern", "experience", "experts", "patterns", "profiles"]

EXPERIENCE = "experience"
"""The kind of these records."""

HALF_LIFE = 50.0
"""Tasks after which an experience counts half."""

_PAGE = 500
_LOOKED_AT = 60
"""Experiences with tasks most like the one in question."""


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


@dataclass(frozen=True, slots=True)
class Expert:
    """Who is likely to manage a task: ``score`` from 0 to 1, with the experiences it rests on."""

    agent: str
    score: float
    successes: int
    failures: int
    evidence: tuple[str, ...]


def experience(
    *,
    owner: str,
    run: str,
    agent: str,
    team: Sequence[str],
    task: str,
    kind: str,
    success: bool,
    performance: float,
    overhead: float,
) -> Record:
    """What one agent has been through in one task. ``overhead`` is communication, in turns."""
    payload: dict[str, Any] = {
        "agent": agent,
        "team": sorted(team),
        "type": kind,
        "success": success,
        "performance": performance,
        "overhead": overhead,
    }
    return Record(
        owner=owner,
        kind=EXPERIENCE,
        text=task,
        key=f"{run}/{agent}",
        payload=payload,
        provenance=Provenance(run=run, author=agent),
    )


async def _all(archive: Archive, owners: Sequence[str]) -> list[Record]:
    found: list[Record] = []
    for owner in owners:
        after = ""
        while page := await archive.records.page(owner, [EXPERIENCE], limit=_PAGE, after=after):
            found += page
            after = page[-1].id
    return sorted(found, key=lambda record: (record.created, record.id))


def _weights(records: Sequence[Record], half_life: float) -> Iterable[tuple[Record, float]]:
    # Aged by tasks, not by days: a team that rests forgets nothing.
    runs = {run: age for age, run in enumerate(dict.fromkeys(r.provenance.run for r in reversed(records)))}
    return ((record, 0.5 ** (runs[record.provenance.run] / half_life)) for record in records)


async def profiles(archive: Archive, owners: Sequence[str], *, half_life: float = HALF_LIFE) -> dict[str, Profile]:
    """What each agent has shown, by name."""
    found: dict[str, Profile] = {}
    for record, weight in _weights(await _all(archive, owners), half_life):
        data = record.payload
        profile = found.setdefault(data["agent"], Profile(data["agent"]))
        profile.types.setdefault(data["type"], Tally()).add(data["success"], weight)
        for partner in data["team"]:
            if partner != profile.agent:
                profile.partners.setdefault(partner, Tally()).add(data["success"], weight)
    return dict(sorted(found.items()))


async def patterns(
    archive: Archive, owners: Sequence[str], *, half_life: float = HALF_LIFE
) -> dict[tuple[str, ...], TeamPattern]:
    """What each set of agents has come to."""
    found: dict[tuple[str, ...], TeamPattern] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for record, weight in _weights(await _all(archive, owners), half_life):
        data, agents = record.payload, tuple(record.payload["team"])
        if (record.provenance.run, agents) in seen:
            continue
        seen.add((record.provenance.run, agents))
        pattern = found.setdefault(agents, TeamPattern(agents))
        pattern.types.setdefault(data["type"], Tally()).add(data["success"], weight)
        pattern.count += 1
        pattern.performance += (data["performance"] - pattern.performance) / pattern.count
        pattern.overhead += (data["overhead"] - pattern.overhead) / pattern.count
    return found


async def experts(
    archive: Archive, owners: Sequence[str], task: str, *, kind: str = "", half_life: float = HALF_LIFE
) -> list[Expert]:
    """Who is likely to manage a task, the likeliest first, by what they did in tasks like it.

    ``kind`` is the task's type, where it has one: then experiences of that type alone count.
    """
    known = {record.id: weight for record, weight in _weights(await _all(archive, owners), half_life)}
    found = await archive.find(task, owners, kinds=[EXPERIENCE], limit=_LOOKED_AT)
    tallies: dict[str, Tally] = {}
    evidence: dict[str, list[str]] = {}
    for hit in found.hits:
        data = hit.record.payload
        if kind and data["type"] != kind:
            continue
        weight = known.get(hit.record.id, 0.0) * archive.relevance(hit)
        tallies.setdefault(data["agent"], Tally()).add(data["success"], weight)
        evidence.setdefault(data["agent"], []).append(hit.record.id)
    ranked = [
        Expert(agent, tally.reliability, tally.successes, tally.failures, tuple(evidence[agent]))
        for agent, tally in tallies.items()
    ]
    return sorted(ranked, key=lambda expert: (-expert.score, expert.agent))
