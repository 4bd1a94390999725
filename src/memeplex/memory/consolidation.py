"""From episodes to lessons and procedures: jobs that survive a failing model and a dying process.

Source: Scaling Teams or Scaling Time?, section 3 and appendices A and D: lessons after each task; every N tasks similar
episodes are grouped, and groups that hold a success become procedures.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memeplex.autonoms.draw_lessons import draw_lessons
from memeplex.autonoms.write_procedure import Example, write_procedure
from memeplex.errors import ConflictError, ModelError
from memeplex.memory import episodes, procedures
from memeplex.memory.archive import Archive
from memeplex.memory.base import MemoryScope
from memeplex.memory.grouping import group
from memeplex.memory.notes import supported
from memeplex.messages import one_line
from memeplex.models import Settings
from memeplex.storage import Job, Jobs, Record
from memeplex.telemetry import MemoryConsolidated, emit
from memeplex.usage import Ledger, Purpose, Usage

if TYPE_CHECKING:
    from memeplex.memory.lifelong import LifelongSettings

__all__ = ["CONSOLIDATION", "LESSONS", "Consolidation"]

LESSONS = "lessons"
CONSOLIDATION = "consolidation"

_LEASE = 900.0
"""Seconds for the calls of one job; then another worker takes it for lost."""
_NEWEST = 200
"""Episodes that one consolidation looks at."""
_EXAMPLES = 5
"""Episodes that one procedure is written from at most."""


class Consolidation:
    """The work after a task, for one agent's owners."""

    def __init__(
        self,
        archive: Archive,
        jobs: Jobs,
        scope: MemoryScope,
        settings: "LifelongSettings",
        owner: Callable[[str], str],
    ) -> None:
        self._archive = archive
        self._jobs = jobs
        self._scope = scope
        self._settings = settings
        self._owner = owner
        self._worker = f"{scope.run}/{scope.agent}/{secrets.token_hex(4)}"
        self._ledger = Ledger()

    async def enqueue(self, episode_id: str) -> None:
        """Ask for the lessons of an episode and, when N tasks are full, for a consolidation."""
        owner = self._owner(episodes.EPISODE)
        await self._jobs.enqueue(Job(kind=LESSONS, owner=owner, key=episode_id, payload={"episode": episode_id}))
        tasks = len({record.provenance.run for record in await self._episodes(owner)})
        if self._settings.procedures and tasks and tasks % self._settings.every == 0:
            await self._jobs.enqueue(Job(kind=CONSOLIDATION, owner=owner, key=str(tasks)))

    async def drain(self) -> Ledger:
        """Do what is due, and what failed before; gives what it cost. A failing model leaves its job behind."""
        owner = self._owner(episodes.EPISODE)
        await self._jobs.retry([LESSONS, CONSOLIDATION], owner)
        while True:
            # All lessons first: procedures are written from them.
            job = await self._claim(LESSONS, owner) or await self._claim(CONSOLIDATION, owner)
            if job is None:
                return self._ledger
            await self._do(job, owner)

    async def _claim(self, kind: str, owner: str) -> Job | None:
        return await self._jobs.claim([kind], self._worker, seconds=_LEASE, owner=owner)

    async def _do(self, job: Job, owner: str) -> None:
        before, status, cause = self._ledger, "done", ""
        try:
            if job.kind == LESSONS:
                cause = await self._lessons(str(job.payload["episode"]))
            else:
                cause = await self._procedures(owner)
        except ModelError as error:
            self._spent(Purpose.LESSON if job.kind == LESSONS else Purpose.CONSOLIDATION, error.usage)
            status, cause = "failed", one_line(str(error))
            await self._jobs.fail(job, cause)
        else:
            await self._jobs.finish(job)
        usage = Ledger({p: u for p, u in self._ledger.items() if u != before.get(p)})
        emit(MemoryConsolidated(agent=self._scope.agent, job=job.kind, status=status, cause=cause, usage=usage))

    async def _lessons(self, episode_id: str) -> str:
        found = await self._archive.records.get([episode_id])
        if not found or (episode := episodes.as_episode(found[0])).lessons:
            return "nothing left to do"
        settings = Settings(purpose=Purpose.LESSON, max_tokens=300, temperature=0.0, seed=self._scope.seed)
        completion = await draw_lessons(
            self._scope.model,
            settings,
            task=found[0].text[:2000],
            actions=[action[:500] for action in episode.actions[-5:]],
            outcome=episode.told,
            success=episode.success,
        )
        self._spent(Purpose.LESSON, completion.usage)
        # Small models give their instructions back as lessons.
        source = "\n".join([found[0].text, *episode.actions, episode.told])
        lessons = [one for one in dict.fromkeys(completion.output.lessons) if supported(one, source)]
        while True:
            record = found[0]
            payload = {**record.payload, "lessons": lessons}
            try:
                await self._archive.records.edit(
                    record.model_copy(update={"payload": payload}), actor=self._scope.agent, cause="lessons"
                )
            except ConflictError:
                if not (found := await self._archive.records.get([episode_id])):
                    return "the episode was forgotten"
                continue
            return f"{len(lessons)} lessons"

    async def _procedures(self, owner: str) -> str:
        records = await self._episodes(owner)
        known = await self._known()
        adopted = 0
        for members in await self._groups(records):
            chosen = [records[i] for i in members]
            outcomes = {record.id: episodes.as_episode(record).success for record in chosen}
            if len(chosen) < 2 or not any(outcomes.values()) or _covered(outcomes, known):
                continue
            best = [record for record in chosen if outcomes[record.id]][:_EXAMPLES]
            settings = Settings(purpose=Purpose.CONSOLIDATION, max_tokens=500, temperature=0.0, seed=self._scope.seed)
            completion = await write_procedure(self._scope.model, settings, episodes=[_example(r) for r in best])
            self._spent(Purpose.CONSOLIDATION, completion.usage)
            record = procedures.record_of(
                completion.output,
                owner=self._owner(procedures.PROCEDURE),
                sources=outcomes,
                author=self._scope.agent,
                model=completion.model,
            )
            await procedures.adopt(self._archive, record, known, actor=self._scope.agent)
            known = await self._known()
            adopted += 1
        return f"{adopted} procedures from {len(records)} episodes{await self._retire(known)}"

    async def _retire(self, known: Sequence[Record]) -> str:
        """What keeps failing is retired; its history says why."""
        retired = 0
        for record in known:
            procedure = procedures.as_procedure(record)
            tried = len(procedure.applications) >= self._settings.prune_after
            if tried and procedure.success_rate < self._settings.prune_below and not procedure.retired:
                changed = record.model_copy(update={"payload": {**record.payload, "retired": True}})
                await self._archive.records.edit(changed, actor=self._scope.agent, cause="it keeps failing")
                retired += 1
        return f", {retired} retired" if retired else ""

    async def _groups(self, records: Sequence[Record]) -> list[list[int]]:
        embedder = self._archive.embedder
        if embedder is None or len(records) < 2:
            # Without vectors, only the same type of task is alike.
            types: dict[str, list[int]] = {}
            for i, record in enumerate(records):
                types.setdefault(episodes.as_episode(record).type or record.text, []).append(i)
            return list(types.values())
        vectors = await embedder.embed([_gist(record) for record in records], kind="passage")
        floor = embedder.unrelated
        likeness = np.clip((vectors @ vectors.T - floor) / (1 - floor), 0, 1).astype(np.float32)
        return group(likeness, self._settings.grouped_from)

    async def _episodes(self, owner: str) -> list[Record]:
        return await self._archive.records.newest(owner, episodes.EPISODE, limit=_NEWEST)

    async def _known(self) -> list[Record]:
        return await self._archive.records.newest(self._owner(procedures.PROCEDURE), procedures.PROCEDURE, limit=1000)

    def _spent(self, purpose: Purpose, usage: Usage) -> None:
        self._ledger += Ledger({purpose: usage})


def _gist(record: Record) -> str:
    lessons = " ".join(episodes.as_episode(record).lessons)
    return f"{record.text[:1000]}\n{lessons}"


def _example(record: Record) -> Example:
    episode = episodes.as_episode(record)
    return Example(task=record.text[:500], success=episode.success, lessons=episode.lessons, outcome=episode.told)


def _covered(outcomes: dict[str, bool], known: Sequence[Record]) -> bool:
    """Whether a procedure has been made of these episodes already."""
    return any(outcomes.keys() <= procedures.as_procedure(record).sources.keys() for record in known)
