"""Procedures: strategies that have worked more than once, and how they have fared since.

Source: Scaling Teams or Scaling Time?, section 3 and appendix A: successful and failed applications, times, source
episodes, guidance on tools, failure categories to pre-empt.
"""

import asyncio
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from memeplex.autonoms.write_procedure import Strategy
from memeplex.errors import ConflictError
from memeplex.memory.archive import Archive
from memeplex.memory.notes import words
from memeplex.storage import Provenance, Record

__all__ = ["PROCEDURE", "Procedure", "Trial", "adopt", "applied", "as_procedure", "known", "record_of", "tidy"]

PROCEDURE = "procedure"
"""The kind of these records."""

_REMEMBERED = 400
"""Trials that are kept one by one; older ones are counts."""

_ALIKE = 0.85
"""The share of words two strategies have in common when they say the same."""

_PAGE = 500


class Trial(BaseModel):
    """One task of one agent that speaks for or against a procedure. ``use`` names its run and the agent.

    ``episode`` is set where the procedure was made of it, ``applied`` where the agent had the procedure before it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    use: str
    success: bool
    episode: str = ""
    applied: bool = False


class Procedure(BaseModel):
    """What a procedure record holds beside its text.

    ``type`` is that of the tasks that it was made of, where they declare one and the same. A task counts once, whether
    the procedure was made of it, applied in it, or both. ``successes`` and ``failures`` are trials long past.
    ``merged`` are the ids of procedures that it has taken in. A ``retired`` one has kept failing: it is shown to
    nobody, and stays so that it is not made again.
    """

    model_config = ConfigDict(extra="ignore")

    title: str
    strategy: str
    type: str = ""
    tools: tuple[str, ...] = ()
    failures_to_prevent: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    successes: int = 0
    failures: int = 0
    merged: tuple[str, ...] = ()
    retired: bool = False

    @property
    def won(self) -> int:
        """Tasks that succeeded with it, its sources among them."""
        return self.successes + sum(trial.success for trial in self.trials)

    @property
    def lost(self) -> int:
        """Tasks that failed with it; not those of its sources that failed before any had shown how it is done."""
        return self.failures + _lost(self.trials, worked=self.successes > 0)

    @property
    def applications(self) -> list[Trial]:
        """The trials that it was applied in."""
        return [trial for trial in self.trials if trial.applied]

    def failing(self, count: int, least: float) -> bool:
        """Whether of the newest so many applications a smaller share than ``least`` succeeded.

        What it was made of does not count, nor how well it did long ago: what worked fifty times may be out of date.
        """
        newest = self.applications[-count:]
        return len(newest) == count and sum(trial.success for trial in newest) < least * count

    @property
    def sources(self) -> frozenset[str]:
        """The ids of the episodes that it was made of."""
        return frozenset(trial.episode for trial in self.trials if trial.episode)

    @property
    def success_rate(self) -> float:
        """Successes of all; an even chance when it was never tried, as one that came from elsewhere."""
        return self.won / (self.won + self.lost) if self.won + self.lost else 0.5


def as_procedure(record: Record) -> Procedure:
    """The procedure in a record."""
    return Procedure.model_validate(record.payload)


def record_of(
    strategy: Strategy,
    *,
    owner: str,
    sources: Sequence[Trial],
    author: str,
    model: str,
    prompt: str = "",
    task_type: str = "",
) -> Record:
    """A new procedure, from source episodes that succeeded or not, oldest first."""
    procedure = Procedure(
        title=strategy.title,
        strategy=strategy.strategy,
        type=task_type,
        tools=tuple(strategy.tools),
        failures_to_prevent=tuple(strategy.failures),
        trials=tuple(sources),
    )
    return Record(
        owner=owner,
        kind=PROCEDURE,
        text=f"{strategy.title}\n{strategy.strategy}",
        payload=procedure.model_dump(mode="json"),
        provenance=Provenance(author=author, model=model, prompt=prompt),
        # One set of episodes gives one procedure, however often it is looked at.
        key=hashlib.sha256("\n".join(sorted(procedure.sources)).encode()).hexdigest(),
    )


async def known(archive: Archive, owner: str) -> list[Record]:
    """All procedures of an owner, retired ones too, oldest first."""
    found: list[Record] = []
    while page := await archive.records.page(owner, [PROCEDURE], limit=_PAGE, after=found[-1].id if found else ""):
        found += page
    return found


async def adopt(archive: Archive, record: Record, *, seen: Collection[str], actor: str) -> Record:
    """Keep a new procedure, made from the episodes ``seen``. Where it says others anew, it takes their place.

    These are procedures whose source episodes, as far as they were seen, are among its own, and those with the same
    title and nearly the same words. All that is known of them is carried over, so nothing learnt is lost.
    """
    new = as_procedure(record)
    while True:
        held = await known(archive, record.owner)
        # Of a lifetime, they are many: the event loop goes on meanwhile.
        old = await asyncio.to_thread(lambda: [one for one in held if _says_anew(new, as_procedure(one), seen)])  # noqa: B023
        if not old:
            await archive.keep([record], actor=actor, cause="consolidation")
            return record
        first, *rest = old
        merged = _folded(new, as_procedure(first), first.id)
        changed = first.model_copy(update={"text": record.text, "payload": merged.model_dump(mode="json")})
        try:
            kept = await archive.change(changed, actor=actor, cause=f"consolidation: {len(new.sources)} episodes")
        except ConflictError:
            continue
        for one in rest:
            kept = await _take_in(archive, kept, one, actor=actor)
        return kept


async def tidy(archive: Archive, owner: str, *, actor: str) -> None:
    """Merge what is there twice: the same text, or made of episodes that another is made of as well.

    Also makes up for a merge that was broken off.
    """
    while (pair := await asyncio.to_thread(_doubled, await known(archive, owner))) is not None:
        await _take_in(archive, *pair, actor=actor)


def _doubled(records: Iterable[Record]) -> tuple[Record, Record] | None:
    """The first two that say the same: the one that takes in the other, and the other."""
    seen: list[tuple[Record, Procedure]] = []
    places: dict[str, set[int]] = {}
    for record in records:
        procedure = as_procedure(record)
        # Those alone can say the same that have one of these in common.
        marks = {f"title {_title(procedure)}", *procedure.sources, *procedure.merged, record.id}
        for place in sorted(set().union(*(places.get(mark, ()) for mark in marks))):
            one, other = seen[place]
            if record.id in other.merged or _says_anew(other, procedure, procedure.sources):
                return one, record
            if one.id in procedure.merged or _says_anew(procedure, other, other.sources):
                return record, one
        for mark in marks:
            places.setdefault(mark, set()).add(len(seen))
        seen.append((record, procedure))
    return None


async def _take_in(archive: Archive, kept: Record, gone: Record, *, actor: str) -> Record:
    cause = f"merged into {kept.id}"

    async def fold(last: Record) -> Record:
        def folded(record: Record) -> Record | None:
            before = as_procedure(record)
            after = _folded(before, as_procedure(last), last.id)
            after = after.model_copy(update={"merged": _union(after.merged, [last.id])})
            return None if after == before else record.model_copy(update={"payload": after.model_dump(mode="json")})

        return await archive.revise(kept.id, folded, actor=actor, cause=f"takes in {last.id}") or kept

    kept = await fold(gone)
    await archive.records.forget(gone.owner, [gone.id], actor=actor, cause=cause)
    # What was noted on it in between.
    past = [change.record for change in await archive.records.history(gone.id) if change.record is not None]
    return await fold(past[-1]) if past else kept


def _says_anew(new: Procedure, old: Procedure, seen: Collection[str]) -> bool:
    sources = old.sources.intersection(seen)
    return (bool(sources) and sources <= new.sources) or _same(old, new)


def _same(one: Procedure, other: Procedure) -> bool:
    if _title(one) != _title(other):
        return False
    a, b = words(one.strategy), words(other.strategy)
    return len(a & b) >= _ALIKE * len(a | b)


def _title(procedure: Procedure) -> str:
    return re.sub(r"\W+", " ", procedure.title).strip().casefold()


def _folded(new: Procedure, old: Procedure, old_id: str) -> Procedure:
    """What is known of both, in the words of the new one. Once more changes nothing."""
    past = Procedure(title="", strategy="") if old_id in new.merged else old
    return _bounded(
        new.model_copy(
            update={
                "trials": _trials([*old.trials, *new.trials]),
                "successes": new.successes + past.successes,
                "failures": new.failures + past.failures,
                "merged": _union(old.merged, new.merged),
                "retired": new.retired or old.retired,
                "type": new.type if new.type == old.type else "",
            }
        )
    )


def _union(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _trials(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Each use once, where it first stood, with all that is known of it."""
    found: dict[str, Trial] = {}
    for trial in trials:
        if (one := found.get(trial.use)) is not None:
            trial = trial.model_copy(
                update={"episode": trial.episode or one.episode, "applied": trial.applied or one.applied}
            )
        found[trial.use] = trial
    return tuple(found.values())


def _bounded(procedure: Procedure) -> Procedure:
    past, kept = procedure.trials[:-_REMEMBERED], procedure.trials[-_REMEMBERED:]
    won = sum(trial.success for trial in past)
    lost = _lost(past, worked=procedure.successes > 0)
    update = {"trials": kept, "successes": procedure.successes + won, "failures": procedure.failures + lost}
    return procedure.model_copy(update=update)


def _lost(trials: Iterable[Trial], *, worked: bool) -> int:
    """The failures among trials that count: where the procedure was applied, or had been shown to work before."""
    count = 0
    for trial in trials:
        worked |= trial.success
        count += not trial.success and (worked or trial.applied)
    return count


async def applied(
    archive: Archive, owner: str, record_id: str, use: str, success: bool, *, actor: str
) -> Record | None:
    """Note that a procedure was used, and how it went; ``use`` names the run and the agent. Twice is once.

    Where it has been merged into another meanwhile, that one is noted.
    """
    trial = Trial(use=use, success=success, applied=True)

    def noted(record: Record) -> Record | None:
        procedure = as_procedure(record)
        after = _bounded(procedure.model_copy(update={"trials": _trials([*procedure.trials, trial])}))
        return None if after == procedure else record.model_copy(update={"payload": after.model_dump(mode="json")})

    cause = f"applied in {use}"
    if (found := await archive.revise(record_id, noted, actor=actor, cause=cause)) is not None:
        return found
    for heir in await known(archive, owner):
        if record_id in as_procedure(heir).merged:
            return await archive.revise(heir.id, noted, actor=actor, cause=cause)
    return None
