"""Learning by reflection: from evidence to a new version of a prompt, which has to prove itself.

Source: Memetic Agents, "Self-Reflection". A revision is a job in the store: whatever dies on the way, a version is
there whole or not at all, and is decided on once. Reflections are used up by the version that they have led to.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from memeplex.autonoms.revise_prompt import PROMPT as REVISE_PROMPT
from memeplex.autonoms.revise_prompt import Lesson, revise_prompt
from memeplex.errors import ConflictError, PromptError
from memeplex.learning.confidence import confidence
from memeplex.learning.evidence import choose
from memeplex.learning.trial import Judge, Scorer, Situation, tried
from memeplex.memory.archive import Archive
from memeplex.memory.tiers.reflections import Reflection, as_reflection, mark_used, unused
from memeplex.memory.work import JOBS, Costs, Work
from memeplex.models import Model, Settings, derive_seed
from memeplex.models.tokens import estimate
from memeplex.prompts import PROMPT, Cause, Library, Prompt, Ref, Status, Version, faults
from memeplex.prompts.checks import room
from memeplex.storage import Job, Jobs, JobState
from memeplex.telemetry import PromptRevised, ReplyRetried, emit
from memeplex.usage import Ledger, Purpose

__all__ = ["LEARNING", "Learning", "LearningSettings"]

LEARNING = "learning"
"""The kind of these jobs."""

_BEFORE, _AFTER = "before", "after"
"""The scores of a version: of the one that it was made from, and its own, in the same situations."""
_NEWEST = 200
_SITUATION = 2000
"""Characters of a situation that are kept with the job."""


class LearningSettings(BaseModel):
    """When and how an agent learns.

    A category passes from ``least`` reflections with ``least_importance`` on average; with a probability of
    ``randomness`` it is not the best one that is chosen. A text may become ``longest`` times as long (600 characters in
    any case), is asked for ``tries`` times, and is tried in ``situations`` at most. It is adopted if its mean score is
    higher by more than ``margin``; with ``approve`` it then waits for a human.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    least: int = Field(default=3, ge=1)
    least_importance: float = Field(default=0.5, ge=0, le=1)
    randomness: float = Field(default=0.1, ge=0, le=1)
    longest: float = Field(default=2.0, ge=1)
    tries: int = Field(default=3, ge=1)
    situations: int = Field(default=8, ge=1)
    margin: float = Field(default=0.0, ge=0, le=10)
    approve: bool = False


class Learning:
    """One agent's learning. ``prompts`` are version 1 of what it may improve, by category; ``library`` holds the rest.

    ``score`` tries a prompt out; by default the agent's model only judges it. ``worker`` is a name of the caller's,
    which nobody else works under.
    """

    def __init__(
        self,
        library: Library,
        jobs: Jobs,
        *,
        agent: str,
        model: Model,
        prompts: Mapping[str, Prompt],
        score: Scorer | None = None,
        settings: LearningSettings | None = None,
        seed: int = 0,
        worker: str = "",
    ) -> None:
        self.settings = settings or LearningSettings()
        self._library = library
        self._archive = Archive(library.records)
        self._jobs = jobs
        self._agent = agent
        self._model = model
        self._prompts = prompts
        self._score = score or Judge(model, prompts=library.current, seed=seed)
        self._seed = seed
        name = worker or f"{library.owner} {LEARNING}"
        self._work = Work(jobs, (LEARNING,), owner=library.owner, name=name, agent=agent)

    async def learn(self, situations: Sequence[Situation]) -> Ledger:
        """Choose what to improve, if there is evidence enough, and do it; gives what it cost.

        ``situations`` are episodes of this agent. Those that the evidence is from are left out: nothing is tried on
        what it was learnt from.
        """
        # What was begun comes first: its evidence may be used up already.
        spent = await self.drain()
        if await self.enqueue(situations) is not None:
            spent += await self.drain()
        return spent

    async def enqueue(self, situations: Sequence[Situation]) -> Job | None:
        """Ask for a revision, with all that it takes; ``None`` when there is nothing to learn, or to try it in.

        There is one at a time.
        """
        if await self._past(JobState.QUEUED, JobState.RUNNING):
            return None
        reflections = await unused(self._archive, self._library.owner)
        jobs: dict[str, Job] = {}
        for category, first in self._prompts.items():
            evidence = self._fitting([one for one in reflections if one.category == category])
            if (job := await self._job(category, first, evidence, situations)) is not None:
                jobs[category] = job
        settings = self.settings
        chosen = choose(
            reflections,
            among=jobs,
            least=settings.least,
            least_importance=settings.least_importance,
            randomness=settings.randomness,
            seed=derive_seed(self._seed, self._agent, LEARNING, len(reflections)),
        )
        return None if chosen is None else await self._jobs.enqueue(jobs[chosen])

    async def drain(self) -> Ledger:
        """Do what was asked for and not done; gives what it cost."""
        return await self._work.drain(self._do, again=True)

    async def _job(
        self, category: str, first: Prompt, evidence: Sequence[Reflection], situations: Sequence[Situation]
    ) -> Job | None:
        """The job that would improve a prompt now; ``None`` where it may not, or has been tried with this evidence."""
        sources = {one.conversation for one in evidence}
        held_out = [one for one in situations if one.id not in sources][: self.settings.situations]
        head = await self._library.head(first.name)
        if not evidence or not held_out or head.pinned or await self._waiting(first):
            return None
        ids = [one.id for one in evidence]
        key = hashlib.sha256(json.dumps([first.name, head.adopted, sorted(ids)]).encode()).hexdigest()
        if any(job.key == key for job in await self._past(JobState.DONE, JobState.FAILED, JobState.CANCELLED)):
            return None
        payload = {
            "category": category,
            "reflections": ids,
            "situations": [{"id": one.id, "text": one.text[:_SITUATION]} for one in held_out],
        }
        return Job(kind=LEARNING, owner=self._library.owner, key=key, payload=payload)

    async def _past(self, *states: JobState) -> list[Job]:
        return await self._jobs.jobs(states=states, kinds=[LEARNING], owner=self._library.owner, limit=JOBS)

    async def _waiting(self, first: Prompt) -> bool:
        """Whether a proposal is waiting for a human."""
        return any(one.status is Status.PROPOSED for one in await self._library.versions(first.name))

    def _fitting(self, reflections: Sequence[Reflection]) -> list[Reflection]:
        """The most important ones that a quarter of the model's window takes; the others wait for the next time."""
        room, found = self._model.window // 4, list[Reflection]()
        for one in sorted(reflections, key=lambda one: (-one.importance, one.id)):
            room -= estimate(one.lesson) + 10
            if found and room < 0:
                break
            found.append(one)
        return sorted(found, key=lambda one: one.id)

    async def _do(self, job: Job, costs: Costs) -> str:
        first = self._prompts.get(str(job.payload["category"]))
        if first is None:
            return f"nothing is known of the category {job.payload['category']}"
        version = await self._made(job) or await self._make(job, first, costs)
        if isinstance(version, str):
            emit(PromptRevised(agent=self._agent, prompt=first.name, version=0, status="unusable", cause=version))
            return version
        version, cause = await self._decide(version)
        if version.status is not Status.REJECTED:
            await mark_used(self._archive, version.evidence, actor=self._agent, cause=f"used for {version.ref}")
        status = version.status.value
        emit(PromptRevised(agent=self._agent, prompt=first.name, version=version.number, status=status, cause=cause))
        return f"{first.name}, version {version.number} is {status}: {cause}"

    async def _made(self, job: Job) -> Version | None:
        """The version that an earlier process has made for this job, and perhaps not lived to decide on."""
        records = await self._library.records.newest(self._library.owner, PROMPT, limit=_NEWEST)
        for record in reversed(records):
            if record.payload.get("source") == job.id:
                return await self._library.version(record.payload["name"], record.payload["number"])
        return None

    async def _make(self, job: Job, first: Prompt, costs: Costs) -> Version | str:
        """A version that has passed the checks and been tried, kept; or why there is none."""
        present = await self._library.current(first)
        found = await self._library.records.get(job.payload["reflections"])
        reflections = [as_reflection(record) for record in found]
        if not reflections:
            return "the reflections were forgotten"
        stub = await self._library.current(REVISE_PROMPT)
        written = await self._revised(job, present, stub, reflections, costs)
        if isinstance(written, str):
            return written
        candidate, model = written
        situations = [Situation.model_validate(one) for one in job.payload["situations"]]
        scores: dict[str, float] = {}
        for name, prompt in ((_BEFORE, present), (_AFTER, candidate)):
            if not await self._work.hold(job):
                return "another worker has taken it"
            score = await tried(self._score, prompt, situations)
            await costs.add(score.usage)
            scores[name] = round(score.value, 4)
        known = 0.0 if present.number == 1 else (await self._library.version(first.name, present.number)).confidence
        try:
            return await self._library.propose(
                first,
                candidate,
                actor=self._agent,
                cause=Cause.REFLECTION,
                why=f"{len(reflections)} reflections",
                # What it was compared with, whatever has come into use since.
                parents=[Ref(owner=self._library.owner, name=first.name, number=present.number)],
                evidence=[one.id for one in reflections],
                scores=scores,
                confidence=round(confidence(known, scores[_AFTER]), 4),
                source=job.id,
                model=model,
                prompt=stub.label,
            )
        except PromptError as error:
            return str(error)

    async def _revised(
        self, job: Job, present: Prompt, stub: Prompt, reflections: Sequence[Reflection], costs: Costs
    ) -> tuple[Prompt, str] | str:
        """A candidate and the model that wrote it; or what was wrong with the last one."""
        lessons = [Lesson(lesson=one.lesson, importance=round(one.importance, 2)) for one in reflections]
        evidence = [text for one in reflections for text in (one.lesson, one.thoughts)]
        # As many as the longest text takes, and some thoughts.
        tokens = 250 + sum(room(text, self.settings.longest) for text in present.editable.values()) // 3
        reason = ""
        for attempt in range(self.settings.tries):
            settings = Settings(
                purpose=Purpose.LEARNING,
                max_tokens=min(tokens, self._model.window // 4),
                temperature=0.7,
                seed=derive_seed(self._seed, self._agent, job.key, attempt),
            )
            call = revise_prompt(self._model, settings, of=present, lessons=lessons, wrong=reason, prompt=stub)
            completion = await costs.of(Purpose.LEARNING, call)
            try:
                candidate = present.revised(completion.output.texts(list(present.editable)))
            except PromptError as error:
                reason = str(error)
            else:
                wrong = faults(present, candidate, evidence=evidence, longest=self.settings.longest)
                if not wrong and candidate.editable != present.editable:
                    return candidate, completion.model
                reason = "; ".join(wrong) or "nothing is changed"
            emit(ReplyRetried(model=self._model.name, purpose=Purpose.LEARNING, reason=reason))
        return f"no text could be used: {reason}"

    async def _decide(self, version: Version) -> tuple[Version, str]:
        """Adopt a version that is better, turn down one that is not; what was decided before stays decided."""
        before, after = version.scores[_BEFORE], version.scores[_AFTER]
        told = f"{after:g} against {before:g}"
        if version.status is not Status.PROPOSED:
            return version, told
        name, number = version.name, version.number
        if after <= before + self.settings.margin:
            return await self._library.reject(name, number, actor=self._agent, cause=f"not better: {told}"), told
        if self.settings.approve:
            return version, f"{told}; a human decides"
        try:
            return await self._library.adopt(name, number, actor=self._agent, cause=f"better: {told}"), told
        except ConflictError as error:
            # It was compared with a version that is in use no more.
            return await self._library.reject(name, number, actor=self._agent, cause=str(error)), str(error)
        except PromptError as error:
            return await self._library.version(name, number), str(error)
