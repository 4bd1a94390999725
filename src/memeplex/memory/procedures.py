"""Procedures: strategies that have worked more than once, and how they have fared since.

Source: Scaling Teams or Scaling Time?, section 3 and appendix A: successful and failed applications, times, source
episodes, guidance on tools, failure categories to pre-empt.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memeplex.autonoms.write_procedure import Strategy
from memeplex.errors import ConflictError
from memeplex.memory.archive import Archive
from memeplex.memory.notes import words
from memeplex.storage import Provenance, Record

__all__ = ["PROCEDURE", "Procedure", "adopt", "applied", "as_procedure", "record_of"]

PROCEDURE = "procedure"
"""The kind of these records."""

_REMEMBERED = 200
"""Applications that are kept one by one; older ones are counts."""

_ALIKE = 0.85
"""The share of words two strategies have in common when they say the same."""


class Procedure(BaseModel):
    """What a procedure record holds beside its text.

    ``sources`` are the episodes that it was made of, and ``applications`` the runs and agents that used it, each with
    whether it succeeded, so that none counts twice; ``successes`` and ``failures`` are applications long past. A
    ``retired`` one has kept failing: it is shown to nobody, and stays so that it is not made again.
    """

    model_config = ConfigDict(extra="ignore")

    title: str
    strategy: str
    tools: tuple[str, ...] = ()
    failures_to_prevent: tuple[str, ...] = ()
    sources: dict[str, bool] = Field(default_factory=dict)
    successes: int = 0
    failures: int = 0
    applications: dict[str, bool] = Field(default_factory=dict)
    retired: bool = False

    @property
    def won(self) -> int:
        """Tasks that succeeded with it, its sources among them."""
        return self.successes + sum(self._tried)

    @property
    def lost(self) -> int:
        """Tasks that failed with it."""
        return self.failures + len(self._tried) - sum(self._tried)

    @property
    def _tried(self) -> list[bool]:
        return [*self.sources.values(), *self.applications.values()]

    @property
    def success_rate(self) -> float:
        """Successes of all; 0 when it was never tried."""
        return self.won / (self.won + self.lost) if self.won + self.lost else 0.0


def as_procedure(record: Record) -> Procedure:
    """The procedure in a record."""
    return Procedure.model_validate(record.payload)


def record_of(strategy: Strategy, *, owner: str, sources: Mapping[str, bool], author: str, model: str) -> Record:
    """A new procedure, from source episodes that succeeded or not."""
    procedure = Procedure(
        title=strategy.title,
        strategy=strategy.strategy,
        tools=tuple(strategy.tools),
        failures_to_prevent=tuple(strategy.failures),
        sources=dict(sorted(sources.items())),
    )
    return Record(
        owner=owner,
        kind=PROCEDURE,
        text=f"{strategy.title}\n{strategy.strategy}",
        payload=procedure.model_dump(mode="json"),
        provenance=Provenance(author=author, model=model),
        # One set of episodes gives one procedure, however often it is looked at.
        key=source_key(sources),
    )


def source_key(sources: Sequence[str] | Mapping[str, bool]) -> str:
    """The key of the procedure that a set of episodes gives."""
    return hashlib.sha256("\n".join(sorted(sources)).encode()).hexdigest()


async def adopt(archive: Archive, record: Record, known: Sequence[Record], *, actor: str) -> Record:
    """Keep a new procedure. It takes the place of those that it says anew, with all that is known of them.

    These are procedures whose source episodes are among its own, and those with the same title and nearly the same
    words. Their applications are carried over, so nothing that was learnt about them is lost.
    """
    new = as_procedure(record)
    old = [one for one in known if _contained(one, new) or _same(as_procedure(one), new)]
    if not old:
        await archive.keep([record], actor=actor, cause="consolidation")
        return record
    merged = _merged([as_procedure(one) for one in old], new)
    first, *rest = sorted(old, key=lambda one: (one.created, one.id))
    changed = first.model_copy(update={"text": record.text, "payload": merged.model_dump(mode="json")})
    kept = await archive.change(changed, actor=actor, cause=f"consolidation: {len(new.sources)} episodes")
    for one in rest:
        await archive.records.forget(one.owner, [one.id], actor=actor, cause=f"merged into {kept.id}")
    return kept


def _contained(record: Record, new: Procedure) -> bool:
    sources = as_procedure(record).sources.keys()
    return bool(sources) and sources <= new.sources.keys()


def _same(one: Procedure, other: Procedure) -> bool:
    if _title(one) != _title(other):
        return False
    a, b = words(one.strategy), words(other.strategy)
    return len(a & b) >= _ALIKE * len(a | b)


def _title(procedure: Procedure) -> str:
    return re.sub(r"\W+", " ", procedure.title).strip().casefold()


def _merged(old: Sequence[Procedure], new: Procedure) -> Procedure:
    sources = {source: won for procedure in (*old, new) for source, won in procedure.sources.items()}
    applications = {use: won for procedure in old for use, won in procedure.applications.items()}
    past = {"successes": sum(p.successes for p in old), "failures": sum(p.failures for p in old)}
    return new.model_copy(update={"sources": dict(sorted(sources.items())), "applications": applications, **past})


async def applied(archive: Archive, record_id: str, use: str, success: bool, *, actor: str) -> Record | None:
    """Note that a procedure was used, and how it went; ``use`` names the run and the agent. Twice is once."""
    while True:
        found = await archive.records.get([record_id])
        if not found:
            return None
        record = found[0]
        procedure = as_procedure(record)
        if procedure.applications.get(use) == success:
            return record
        payload = _noted(procedure, use, success)
        changed = record.model_copy(update={"payload": payload})
        try:
            return await archive.records.edit(changed, actor=actor, cause=f"applied in {use}")
        except ConflictError:
            # Somebody else has noted an application meanwhile: look again.
            continue


def _noted(procedure: Procedure, use: str, success: bool) -> dict[str, Any]:
    applications = {**procedure.applications, use: success}
    successes, failures = procedure.successes, procedure.failures
    while len(applications) > _REMEMBERED:
        won = applications.pop(next(iter(applications)))
        successes, failures = successes + won, failures + (not won)
    update = {"applications": applications, "successes": successes, "failures": failures}
    return procedure.model_copy(update=update).model_dump(mode="json")
