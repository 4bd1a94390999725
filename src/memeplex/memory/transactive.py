"""Who knows what, and which teams suit which tasks: reckoned from experience, with the counts behind every claim.

Source: Scaling Teams or Scaling Time?, section 3: agent profiles and team patterns from accumulated competence and
collaboration. Nothing is counted up: each finished task leaves one record per agent, and every claim is worked out from
these, so that a task taken in twice counts once and a forgotten one no longer.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from memeplex.errors import UserError
from memeplex.memory.archive import Archive, record_text
from memeplex.memory.tallies import Expert, Profile, Suggestion, Tally, TeamPattern
from memeplex.memory.topology import joined
from memeplex.messages import one_line
from memeplex.storage import Provenance, Record

__all__ = [
    "EXPERIENCE",
    "Expert",
    "Profile",
    "Suggestion",
    "Tally",
    "TeamPattern",
    "assign_roles",
    "experience",
    "experts",
    "patterns",
    "planner_text",
    "profiles",
    "suggest_team",
]

EXPERIENCE = "experience"
"""The kind of these records."""

HALF_LIFE = 50.0
"""Tasks after which an experience counts half."""

_PAGE = 500
_LOOKED_AT = 200
"""Experiences with tasks most like the one in question."""
_POOL = 12
"""Agents that a team is put together of at most, the likeliest ones."""


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
    """What one agent has been through in one task. ``overhead`` is communication, in turns of the whole team."""
    payload: dict[str, Any] = {
        "agent": agent,
        "team": sorted(set(team)),
        "type": kind,
        "success": success,
        "performance": performance,
        "overhead": overhead,
    }
    return Record(
        owner=owner,
        kind=EXPERIENCE,
        text=record_text(task),
        key=joined(run, agent),
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
    return await asyncio.to_thread(_profiles, await _all(archive, owners), half_life)


def _profiles(records: Sequence[Record], half_life: float) -> dict[str, Profile]:
    found: dict[str, Profile] = {}
    for record, weight in _weights(records, half_life):
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
    return await asyncio.to_thread(_patterns, await _all(archive, owners), half_life)


def _patterns(records: Sequence[Record], half_life: float) -> dict[tuple[str, ...], TeamPattern]:
    found: dict[tuple[str, ...], TeamPattern] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for record, weight in _weights(records, half_life):
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
    found = await archive.find(record_text(task), owners, kinds=[EXPERIENCE], limit=_LOOKED_AT)
    tallies: dict[str, Tally] = {}
    evidence: dict[str, list[str]] = {}
    for hit in found.hits:
        data = hit.record.payload
        weight = known.get(hit.record.id, 0.0) * archive.relevance(hit, task)
        # What has nothing to do with the task is no evidence, and not to be counted as such.
        if weight > 0 and kind in ("", data["type"]):
            tallies.setdefault(data["agent"], Tally()).add(data["success"], weight)
            evidence.setdefault(data["agent"], []).append(hit.record.id)
    ranked = [
        Expert(agent, tally.reliability, tally.successes, tally.failures, tuple(evidence[agent]))
        for agent, tally in tallies.items()
    ]
    return sorted(ranked, key=lambda expert: (-expert.score, expert.agent))


async def suggest_team(
    archive: Archive,
    owners: Sequence[str],
    task: str,
    *,
    size: int,
    kind: str = "",
    agents: Collection[str] = (),
    half_life: float = HALF_LIFE,
) -> list[Suggestion]:
    """Teams of ``size`` for a task, the best first: of ``agents``, or of all that anything is known of.

    A team's score is the mean of its members', drawn towards what this very team has shown by as much as there is of
    that. Of equals, the one that needs fewer turns comes first.

    Raises:
        UserError: there are not as many agents.
    """
    known = {expert.agent: expert for expert in await experts(archive, owners, task, kind=kind, half_life=half_life)}
    shown = await profiles(archive, owners, half_life=half_life)
    names = sorted(set(agents) or shown)
    if not 1 <= size <= len(names):
        raise UserError(
            f"no team of {size} can be made of {len(names)} agents", remedy="name agents, or choose another size"
        )
    seen = await patterns(archive, owners, half_life=half_life)
    ranked = sorted((known.get(name, Expert(name, 0.5, 0, 0, ())) for name in names), key=lambda one: -one.score)
    pool = ranked[: max(_POOL, size)]
    found = [_suggestion(members, seen, kind) for members in combinations(pool, size)]
    return sorted(found, key=lambda one: (-one.score, one.pattern.overhead if one.pattern else 0.0, one.agents))


def _suggestion(members: Sequence[Expert], seen: Mapping[tuple[str, ...], TeamPattern], kind: str) -> Suggestion:
    names = tuple(sorted(expert.agent for expert in members))
    score = sum(expert.score for expert in members) / len(members)
    pattern = seen.get(names)
    tally = pattern.tally(kind) if pattern else Tally()
    share = tally.weight / (tally.weight + 2)
    score = (1 - share) * score + share * tally.reliability
    reasons = [f"{one.agent}: {_counts(one)} tasks like this one" for one in sorted(members, key=lambda m: m.agent)]
    if pattern and tally.count:
        reasons.append(f"together: {tally} {kind or 'tasks'}, {_habits(pattern)}")
    return Suggestion(names, score, pattern if tally.count else None, tuple(reasons))


async def assign_roles(
    archive: Archive, owners: Sequence[str], parts: Mapping[str, str], *, agents: Collection[str] = ()
) -> dict[str, Expert]:
    """Who should take which part of a task, by the parts' descriptions, so that the scores are best in all.

    Nobody gets a second part before everybody has one. An agent of whom nothing is known has an even chance.
    """
    names = sorted(set(agents) or await profiles(archive, owners))
    scored: dict[str, dict[str, Expert]] = {}
    for part, description in parts.items():
        known = {expert.agent: expert for expert in await experts(archive, owners, description)}
        scored[part] = {name: known.get(name, Expert(name, 0.5, 0, 0, ())) for name in names}
    surest = sorted(names, key=lambda name: -max(one[name].score for one in scored.values()))
    return {part: scored[part][name] for part, name in _best_match(scored, sorted(surest[:_POOL])).items()}


def _best_match(scored: Mapping[str, Mapping[str, Expert]], names: Sequence[str]) -> dict[str, str]:
    parts = list(scored)

    @cache
    def best(place: int, busy: frozenset[str]) -> tuple[float, tuple[str, ...]]:
        if place == len(parts) or not names:
            return 0.0, ()
        busy = busy if len(busy) < len(names) else frozenset()
        found: list[tuple[float, tuple[str, ...]]] = []
        for name in names:
            if name not in busy:
                total, rest = best(place + 1, busy | {name})
                found.append((scored[parts[place]][name].score + total, (name, *rest)))
        return max(found, key=lambda choice: choice[0])

    return dict(zip(parts, best(0, frozenset())[1], strict=False))


async def planner_text(
    archive: Archive, owners: Sequence[str], task: str, *, kind: str = "", roles: Mapping[str, str] | None = None
) -> str:
    """Who knows what and which teams suit, for the prompt of whoever plans or moderates, with the counts behind it.

    ``roles`` are the agents to speak of, with what each is; by default all that anything is known of. Empty when there
    is nothing to say.
    """
    shown = await profiles(archive, owners)
    known = {expert.agent: expert for expert in await experts(archive, owners, task, kind=kind)}
    names = list(roles) if roles is not None else list(shown)
    lines = [_line(name, (roles or {}).get(name, ""), known.get(name), shown.get(name)) for name in names]
    for agents, pattern in (await patterns(archive, owners)).items():
        if len(agents) > 1 and set(agents) <= set(names) and (tally := pattern.tally(kind)).count:
            lines.append(f"- {', '.join(agents)} together: {tally} {kind or 'tasks'}, {_habits(pattern)}")
    return "\n".join(["The team, and what its members have done (successes of tasks):", *lines]) if lines else ""


def _line(name: str, role: str, expert: Expert | None, profile: Profile | None) -> str:
    told = [one_line(role, 120)] if role else []
    if expert is not None:
        told.append(f"{_counts(expert)} tasks like this one.")
    types = [f"{kind} {profile.types[kind]}" for kind in profile.specialisations if kind] if profile else []
    if types:
        told.append(f"By type: {', '.join(types)}.")
    return f"- {name}: {' '.join(told) or 'nothing known yet'}"


def _counts(expert: Expert) -> str:
    return f"{expert.successes} of {expert.successes + expert.failures}"


def _habits(pattern: TeamPattern) -> str:
    return f"performance {pattern.performance:.2f}, {pattern.overhead:.0f} turns a task"
