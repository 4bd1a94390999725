"""From episodes to lessons and procedures: jobs that survive a failing model and a dying process.

Source: Scaling Teams or Scaling Time?, section 3 and appendices A and D: lessons after each task; every N tasks similar
episodes are grouped, and groups that hold a success become procedures.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from memeplex.autonoms import draw_lessons as lessons
from memeplex.autonoms.draw_lessons import draw_lessons
from memeplex.autonoms.write_procedure import PROMPT as WRITE_PROCEDURE
from memeplex.autonoms.write_procedure import Example, write_procedure
from memeplex.memory import episodes, procedures
from memeplex.memory.archive import Archive
from memeplex.memory.base import MemoryScope
from memeplex.memory.grouping import group, likeness_of
from memeplex.memory.notes import words
from memeplex.memory.retrieval import RETRIEVAL
from memeplex.memory.topology import joined
from memeplex.memory.work import JOBS, Costs, Work
from memeplex.models import Settings
from memeplex.storage import Job, Jobs, Record, new_id
from memeplex.usage import Ledger, Purpose

if TYPE_CHECKING:
    from memeplex.memory.lifelong import LifelongSettings

__all__ = ["CONSOLIDATION", "LESSONS", "Consolidation"]

LESSONS = "lessons"
CONSOLIDATION = "consolidation"

_NEWEST = 200
"""Episodes that one consolidation looks at; more where N tasks of the whole team are more."""
_EXAMPLES = 5
"""Episodes that one procedure is written from at most, the newest that succeeded."""
_WARNINGS = 2
"""Failed ones beside these, for what has to be prevented."""


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
        self._window = max(_NEWEST, settings.every * max(1, len(scope.members)))
        self._work = Work(
            jobs,
            (LESSONS, CONSOLIDATION),
            owner=owner(episodes.EPISODE),
            name=joined(scope.run, scope.agent),
            agent=scope.agent,
            spent=scope.spent,
        )

    async def enqueue(self, *episode_ids: str) -> None:
        """Ask for the lessons of episodes and, when N tasks are full, for a consolidation.

        So that nothing is left out that an earlier process did not live to ask for, it is the episodes that are
        counted, and all that have no lessons are asked for; what is done already is not done again.
        """
        owner = self._owner(episodes.EPISODE)
        records = await self._episodes(owner)
        bare = [record.id for record in records if not episodes.as_episode(record).lessons]
        for name in dict.fromkeys([*bare, *episode_ids]):
            await self._jobs.enqueue(Job(kind=LESSONS, owner=owner, key=name, payload={"episode": name}))
        if not self._settings.procedures:
            return
        past = await self._jobs.jobs(kinds=[CONSOLIDATION], owner=owner, limit=JOBS)
        until, last = (past[-1].payload.get("until", ""), past[-1].payload.get("run")) if past else ("", None)
        fresh = {record.provenance.run for record in records if record.id > until} - {last}
        if len(fresh) >= self._settings.every:
            await self._ask(owner, self._scope.run, records)

    async def enqueue_everything(self) -> None:
        """Ask for a consolidation, whatever is new."""
        owner = self._owner(episodes.EPISODE)
        await self._ask(owner, new_id(), await self._episodes(owner))

    async def _ask(self, owner: str, key: str, records: Sequence[Record]) -> None:
        last = records[-1] if records else None
        payload = {"until": last.id, "run": last.provenance.run} if last else {}
        await self._jobs.enqueue(Job(kind=CONSOLIDATION, owner=owner, key=joined(key), payload=payload))

    async def left(self) -> list[Job]:
        """What is not done, the oldest first."""
        return await self._work.left()

    async def drain(self, *, again: bool, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """As ``Work.drain``. All lessons come first: procedures are written from them."""
        return await self._work.drain(self._do, again=again, stop=stop)

    async def _do(self, job: Job, costs: Costs) -> str:
        return await (self._lessons(job, costs) if job.kind == LESSONS else self._procedures(job, costs))

    async def _lessons(self, job: Job, costs: Costs) -> str:
        episode_id = str(job.payload["episode"])
        found = await self._archive.records.get([episode_id])
        if not found or (episode := episodes.as_episode(found[0])).lessons:
            return "nothing left to do"
        prompt = await self._scope.prompts(lessons.PROMPT)
        settings = Settings(purpose=Purpose.LESSON, max_tokens=300, temperature=0.0, seed=self._scope.seed)
        call = draw_lessons(
            self._scope.model,
            settings,
            task=found[0].text[:2000],
            actions=[action[:500] for action in episode.actions[-5:]],
            outcome=episode.told,
            success=episode.success,
            prompt=prompt,
        )
        completion = await costs.of(Purpose.LESSON, call)
        told = [prompt.text, *await self._told(found[0])]
        # Small models give their instructions back as lessons.
        drawn = [lesson for lesson in dict.fromkeys(completion.output.lessons) if not _repeats(lesson, told)]

        def taught(record: Record) -> Record:
            provenance = record.provenance.model_copy(update={"prompt": prompt.label})
            return record.model_copy(update={"payload": {**record.payload, "lessons": drawn}, "provenance": provenance})

        if await self._archive.revise(episode_id, taught, actor=self._scope.agent, cause="lessons") is None:
            return "the episode was forgotten"
        return f"{len(drawn)} lessons"

    async def _told(self, episode: Record) -> list[str]:
        """What the agent was told itself: none of it is a lesson of this task."""
        given = await self._archive.records.by_key(self._owner(RETRIEVAL), RETRIEVAL, episode.key)
        # Of a shared memory, another agent may have lived through it.
        role = self._scope.members.get(episode.provenance.author, self._scope.role)
        return [role, *(given.payload["text"].splitlines() if given else ())]

    async def _procedures(self, job: Job, costs: Costs) -> str:
        place, actor = self._owner(procedures.PROCEDURE), self._scope.agent
        await procedures.tidy(self._archive, place, actor=actor)
        seen = await self._episodes(job.owner)
        known = await self._known(place)
        spoilt = {name for one in known if one.retired for name in one.sources}
        records = [record for record in seen if record.id not in spoilt and record.superseded_by is None]
        adopted = 0
        for members in await self._groups(records):
            chosen = [records[i] for i in members]
            if not _recurring(chosen) or _covered(chosen, known):
                continue
            # Many groups may take longer than the lease of one call.
            if not await self._work.hold(job):
                break
            settings = Settings(purpose=Purpose.CONSOLIDATION, max_tokens=500, temperature=0.0, seed=self._scope.seed)
            prompt = await self._scope.prompts(WRITE_PROCEDURE)
            call = write_procedure(self._scope.model, settings, episodes=_examples(chosen), prompt=prompt)
            completion = await costs.of(Purpose.CONSOLIDATION, call)
            record = procedures.record_of(
                completion.output,
                owner=place,
                sources=[_trial(record) for record in chosen],
                author=actor,
                model=completion.model,
                task_type=_type(chosen),
                prompt=prompt.label,
            )
            await procedures.adopt(self._archive, record, seen={one.id for one in seen}, actor=actor)
            adopted += 1
        return f"{adopted} procedures from {len(seen)} episodes{await self._retire(place)}"

    async def _retire(self, place: str) -> str:
        """What keeps failing is retired; its history says why."""
        settings, retired = self._settings, 0

        def judged(record: Record) -> Record | None:
            procedure = procedures.as_procedure(record)
            if procedure.retired or not procedure.failing(settings.prune_after, settings.prune_below):
                return None
            return record.model_copy(update={"payload": {**record.payload, "retired": True}})

        held = await procedures.known(self._archive, place)
        for record in await asyncio.to_thread(lambda: [one for one in held if judged(one) is not None]):
            now = await self._archive.revise(record.id, judged, actor=self._scope.agent, cause="it keeps failing")
            retired += now is not None and now.revision > record.revision
        return f", {retired} retired" if retired else ""

    async def _known(self, place: str) -> list[procedures.Procedure]:
        held = await procedures.known(self._archive, place)
        return await asyncio.to_thread(lambda: [procedures.as_procedure(record) for record in held])

    async def _groups(self, records: Sequence[Record]) -> list[list[int]]:
        embedder = self._archive.embedder
        types = [episodes.as_episode(record).type for record in records]
        if embedder is None or len(records) < 2:
            # Without vectors, only the same type of task is alike.
            alike: dict[str, list[int]] = {}
            for i, record in enumerate(records):
                alike.setdefault(types[i] or record.text, []).append(i)
            return list(alike.values())
        vectors = await embedder.embed([_gist(record) for record in records], kind="passage")
        return await asyncio.to_thread(
            lambda: group(likeness_of(vectors, embedder.unrelated, types), self._settings.grouped_from)
        )

    async def _episodes(self, owner: str) -> list[Record]:
        return await self._archive.records.newest(owner, episodes.EPISODE, limit=self._window)


def _repeats(lesson: str, told: Iterable[str]) -> bool:
    """Whether a lesson says no more than something that was told."""
    own = words(lesson)
    return any(own <= words(text) for text in told)


def _gist(record: Record) -> str:
    drawn = " ".join(episodes.as_episode(record).lessons)
    return f"{record.text[:1000]}\n{drawn}"


def _recurring(records: Sequence[Record]) -> bool:
    """Whether there is a pattern: more than one task, and a success. Several agents in one task are one task."""
    runs = {record.provenance.run for record in records}
    return len(runs) > 1 and any(episodes.as_episode(record).success for record in records)


def _covered(records: Sequence[Record], known: Iterable[procedures.Procedure]) -> bool:
    """Whether a procedure has been made of these episodes already."""
    ids = {record.id for record in records}
    return any(ids <= one.sources for one in known)


def _trial(record: Record) -> procedures.Trial:
    return procedures.Trial(use=record.key, success=episodes.as_episode(record).success, episode=record.id)


def _type(records: Sequence[Record]) -> str:
    """The type of task that all of them are of, if there is one."""
    types = {episodes.as_episode(record).type for record in records}
    return types.pop() if len(types) == 1 else ""


def _examples(records: Sequence[Record]) -> list[Example]:
    """The newest that succeeded, then some that failed: what works, and what to prevent."""
    won = [record for record in records if episodes.as_episode(record).success][-_EXAMPLES:]
    lost = [record for record in records if not episodes.as_episode(record).success][-_WARNINGS:]
    return [_example(record) for record in (*won, *lost)]


def _example(record: Record) -> Example:
    episode = episodes.as_episode(record)
    return Example(task=record.text[:500], success=episode.success, lessons=episode.lessons, outcome=episode.told)
