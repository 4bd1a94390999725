"""``memory catch-up``: the lessons and procedures that killed runs and failing models have left over."""

import asyncio
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from memeplex.cli.backlog import job_json, print_jobs
from memeplex.cli.config import Embedders, Models, Settings, load_settings, store_option
from memeplex.cli.embedders import words_only_told
from memeplex.cli.interrupt import INTERRUPTED, Interrupt
from memeplex.cli.models import fetch_missing
from memeplex.cli.output import console, say, tell, tell_json
from memeplex.cli.overrides import Overrides
from memeplex.cli.reading import read_store
from memeplex.cli.report import usage_json
from memeplex.cli.run import stored_spec
from memeplex.errors import UnknownNameError, UserError
from memeplex.memory.episodes import EPISODE
from memeplex.memory.topology import joined
from memeplex.memory.work import UNDONE
from memeplex.models.testing import ScriptedModel
from memeplex.storage import Job, JobState, Run, Store, opened_store
from memeplex.teams import TeamSpec, build_team
from memeplex.telemetry import Event, MemoryConsolidated, subscribe
from memeplex.usage import Ledger

__all__ = ["catch_up"]

_FAILED = 3
_EPISODES = 200
"""The newest episodes of an owner that a run is looked for in, whose team does its work."""


@dataclass(kw_only=True)
class Work:
    """What is to be made up: for each run, the team as it was in it. ``left`` are the jobs before the work begins."""

    settings: Settings
    model: str | None
    runs: list[Run]
    left: list[Job]
    again: bool
    how_to_resume: str

    def spec(self, run: Run) -> TeamSpec:
        """The team of a run, with the model that was asked for."""
        return Overrides(model=self.model).applied(stored_spec(run), self.settings)


@dataclass
class Tally:
    """How far it has come, as the events tell."""

    progress: Progress
    total: int
    done: int = 0
    failed: int = 0
    usage: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._row = self.progress.add_task("jobs", total=self.total)

    def take(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, MemoryConsolidated):
            self.done += event.status == "done"
            self.failed += event.status == "failed"
            self.usage += event.usage
            told = f"jobs, {self.failed} failed: {event.cause}" if event.status == "failed" else "jobs"
            self.progress.update(self._row, completed=self.done, description=told[:60])


def catch_up(team: str | None, model: str | None, *, again: bool, store: str | None, as_json: bool, quiet: bool) -> int:
    """Do what is left to do for a team, or for all; gives the exit code."""
    settings = load_settings()
    resume = " ".join(["memeplex memory catch-up", *([shlex.quote(team)] if team else [])])
    resume += f"{f' --model {shlex.quote(model)}' if model else ''}{store_option(store)}"

    async def planned(opened: Store) -> Work:
        runs = await _runs(opened, team)
        work = Work(settings=settings, model=model, runs=runs, left=[], again=again, how_to_resume=resume)
        work.left = await _left(work, opened)
        return work

    work = read_store(store, planned)
    if not work.left:
        _report(work, Tally(Progress(disable=True), 0), [], 0.0, as_json=as_json)
        return 0
    specs = [work.spec(run) for run in work.runs]
    fetch_missing(sorted({agent.model or spec.model for spec in specs for agent in spec.agents}), quiet=quiet)
    began, interrupt = time.monotonic(), Interrupt(resume, step="job")
    with _progress(shown=not (quiet or as_json)) as progress:
        tally = Tally(progress, len(work.left))
        left = asyncio.run(_worked(work, settings.store(store), tally, interrupt, quiet=quiet))
    _report(work, tally, left, time.monotonic() - began, as_json=as_json)
    if left and interrupt.stop():
        return INTERRUPTED
    return _FAILED if any(job.error for job in left) else 0


async def _runs(store: Store, team: str | None) -> list[Run]:
    """For each owner with episodes, the newest run of theirs that nobody works on and whose team is known."""
    kept = await store.records.owners()
    waiting = {job.owner for job in await store.jobs.jobs(states=UNDONE, limit=10**6)}
    owners = sorted(waiting | {owner for owner, kinds in kept.items() if EPISODE in kinds})
    wanted = [owner for owner in owners if team is None or owner.partition("/")[0] == joined(team)]
    if team is not None and not wanted:
        known = sorted({owner.partition("/")[0] for owner in owners})
        raise UnknownNameError("team with a lifelong memory", team, known, remedy="" if known else "none has one yet")
    found: dict[str, Run] = {}
    for owner in wanted:
        run, why = await _run_of(store, owner)
        if run is not None:
            found[run.id] = run
        elif owner in waiting:
            say(f"{owner}: {why}")
    return list(found.values())


async def _run_of(store: Store, owner: str) -> tuple[Run | None, str]:
    """The newest run that an owner's episodes are from, or why there is none to go by."""
    why = "no run of its episodes is in this store"
    newest = await store.records.newest(owner, EPISODE, limit=_EPISODES)
    for name in dict.fromkeys(record.provenance.run for record in reversed(newest)):
        try:
            run = await store.run(name) if name else None
        except (UnknownNameError, UserError):
            continue
        if run is None or run.id != name:
            continue
        if store.held(run.id):
            return None, f"run {run.id} is being worked on, and does what is left when it ends"
        if run.spec:
            return run, ""
        why = f"its runs were started from Python, and their team was not kept; Team.catch_up({run.id!r}, …) there"
    return None, why


async def _left(work: Work, store: Store) -> list[Job]:
    """The jobs that the runs' teams have left; no model is needed to tell."""
    jobs: dict[str, Job] = {}
    for run in work.runs:
        embedders = Embedders(work.settings)
        team = build_team(work.spec(run), lambda name: ScriptedModel((), name=name, window=2**40), embedders.get)
        jobs |= {job.id: job for job in await team.backlog(run.id, store=store)}
    return list(jobs.values())


async def _worked(work: Work, url: str, tally: Tally, interrupt: Interrupt, *, quiet: bool) -> list[Job]:
    """Do it; gives what is left then."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(url))
        models, embedders = Models(work.settings), Embedders(work.settings)
        stack.push_async_callback(models.aclose)
        stack.push_async_callback(embedders.aclose)
        for context in (words_only_told(quiet=quiet), subscribe(tally.take), interrupt.installed()):
            stack.enter_context(context)
        try:
            for run in work.runs:
                team = build_team(work.spec(run), models.get, embedders.get)
                await team.catch_up(run.id, store=store, again=work.again, stop=interrupt.stop)
        except asyncio.CancelledError:
            if not interrupt.aborted:
                raise
        return await _left(work, store)


def _progress(*, shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console(sys.stderr), transient=True, disable=not shown)


def _report(work: Work, tally: Tally, left: Sequence[Job], seconds: float, *, as_json: bool) -> None:
    entries: list[dict[str, Any]] = [job_json(job) for job in left]
    if as_json:
        told = {"done": tally.done, "left": entries, "finished": not left, "usage": usage_json(tally.usage)}
        tell_json({**told, "seconds": round(seconds, 3)})
        return
    if not work.left:
        tell("nothing is left to do")
        return
    tell(f"{tally.done} jobs done, {len(left)} left; {tally.usage.total.tokens:,} tokens, {seconds:.0f} s")
    if left:
        print_jobs(entries)
        failed = any(job.state is JobState.FAILED for job in left)
        say(f"go on with: {work.how_to_resume}{' --again' if failed else ''}")
