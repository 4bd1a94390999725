"""``run`` and ``resume``: one team at work, watched, interruptible and reported."""

import asyncio
import shlex
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from pydantic import ValidationError

from memeplex.cli.config import Embedders, Models, Settings, load_settings, store_option
from memeplex.cli.embedders import words_only_told
from memeplex.cli.export import prepare_folder, write_results
from memeplex.cli.interrupt import INTERRUPTED, Interrupt
from memeplex.cli.models import fetch_missing
from memeplex.cli.output import say
from memeplex.cli.overrides import Overrides
from memeplex.cli.report import Report, print_report, stored_result
from memeplex.cli.view import open_view
from memeplex.errors import MemeplexError, ModelError, RunLockedError, StorageError, UserError
from memeplex.messages import Task
from memeplex.models.testing import ScriptedModel
from memeplex.storage import Run, Store, opened_store
from memeplex.teams import RunResult, Team, TeamSpec, build_team, new_run_id, read_team
from memeplex.telemetry import Event, RunStarted, subscribe

__all__ = ["Shown", "resume_run", "run_team", "stored_spec"]

STALLED = 6
"""The exit code of a team that turned in circles."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What is printed and written."""

    json: bool = False
    quiet: bool = False
    out: str | None = None


@dataclass(kw_only=True)
class Job:
    """One run to start, or to go on with when ``task`` is ``None``."""

    settings: Settings
    spec: TeamSpec
    store: str
    run_id: str
    shown: Shown
    task: str | None = None
    seed: int = 0
    store_given: bool = False
    started: bool = False
    interrupt: Interrupt = field(init=False)

    def __post_init__(self) -> None:
        self.interrupt = Interrupt(self.how_to_resume)

    @property
    def how_to_resume(self) -> str:
        """The command that goes on with this run."""
        return _command(self.run_id, self.store if self.store_given else None)

    def watch(self, event: Event) -> None:
        """Notes that the run exists, so that there is something to resume."""
        self.started = self.started or isinstance(event, RunStarted)


def run_team(team: str, task: str | None, overrides: Overrides, *, seed: int, store: str | None, shown: Shown) -> int:
    """Start a run and see it to its end; gives the exit code."""
    settings = load_settings()
    spec = overrides.applied(read_team(team), settings)
    text = _input() if task == "-" else task if task is not None else spec.task
    text = Task(text=text).text
    if not text.strip():
        raise UserError(f"team {spec.name} was given no task", remedy=f"memeplex run {shlex.quote(team)} 'WHAT TO DO'")
    job = Job(
        settings=settings,
        spec=spec.model_copy(update={"task": text}),
        store=settings.store(store),
        store_given=store is not None,
        run_id=new_run_id(),
        shown=shown,
        task=text,
        seed=seed,
    )
    # Everything but the models is tried before anything is fetched.
    build_team(job.spec, lambda name: ScriptedModel((), name=name, window=2**40), Embedders(settings).get)
    asyncio.run(_usable(job.store))
    return _perform(job)


def _input() -> str:
    # Python has no standard input where whoever started it has closed that.
    if not sys.stdin:
        return ""
    raw = getattr(sys.stdin, "buffer", None)
    try:
        return raw.read().decode("utf-8") if raw else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UserError("the task on standard input is not UTF-8 text", remedy="convert it, with iconv") from error


def resume_run(run_id: str, *, store: str | None, shown: Shown) -> int:
    """Go on with a run, or show a finished one again; gives the exit code."""
    settings = load_settings()
    url = settings.store(store)
    kept = asyncio.run(_kept(url, run_id))
    run = kept.run
    if run.status == "finished":
        # Nothing is left to be done, so it need not be known how the team is built.
        prepare_folder(shown.out)
        return _deliver(kept, shown, _command(run.id, store))
    job = Job(
        settings=settings,
        spec=stored_spec(run),
        store=url,
        store_given=store is not None,
        run_id=run.id,
        shown=shown,
        seed=run.seed,
    )
    return _perform(job)


def _command(run_id: str, store: str | None) -> str:
    return f"memeplex resume {run_id}{store_option(store)}"


def stored_spec(run: Run) -> TeamSpec:
    """The team that is kept with a run.

    Raises:
        UserError: none is, or not one that this version can read.
    """
    if not run.spec:
        raise UserError(
            f"run {run.id} was started from Python, and its team was not kept", remedy="go on with Team.resume()"
        )
    try:
        return TeamSpec.model_validate(run.spec)
    except ValidationError as error:
        raise UserError(
            f"run {run.id} was made by memeplex {run.software}, whose team this version cannot read",
            remedy=f"go on with memeplex {run.software}",
        ) from error


async def _usable(url: str) -> None:
    """Whether the store can be written, before anything is fetched."""
    async with opened_store(url) as store:
        # Takes the write lock, and changes nothing.
        await store.end_run("", "finished")


async def _kept(url: str, run_id: str) -> Report:
    """What the store holds of a run."""
    began = time.monotonic()
    async with opened_store(url) as store:
        run = await store.run(run_id)
        result = await stored_result(store, run.id)
        return Report(run=run, result=result, seconds=time.monotonic() - began, store=store.url)


def _perform(job: Job) -> int:
    prepare_folder(job.shown.out)
    try:
        names = {agent.model or job.spec.model for agent in job.spec.agents}
        fetch_missing(sorted(names), quiet=job.shown.quiet)
        report = asyncio.run(_work(job))
    except MemeplexError as error:
        error.remedy, error.run = _remedy(error, job), job.run_id if job.started else ""
        raise
    return _deliver(report, job.shown, job.how_to_resume)


def _deliver(report: Report, shown: Shown, resume: str) -> int:
    """Write and print what a run came to; gives the exit code."""
    write_results(shown.out, report, resume)
    print_report(report, as_json=shown.json, quiet=shown.quiet, resume=resume)
    if shown.out and not (shown.json or shown.quiet):
        say(f"files: {shown.out}")
    if report.result.outcome is None:
        return INTERRUPTED
    return STALLED if report.result.outcome.status == "stalled" else 0


def _remedy(error: MemeplexError, job: Job) -> str:
    """What to do about an error in a run: mend its cause, then go on."""
    remedy = error.remedy
    if job.started and isinstance(error, ModelError | StorageError) and not isinstance(error, RunLockedError):
        go_on = f"go on with: {job.how_to_resume}"
        remedy = f"{remedy}{' Then' if remedy.endswith('?') else '; then'} {go_on}" if remedy else go_on
    return remedy


async def _work(job: Job) -> Report:
    """The run itself, with everything closed whatever way it ends."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(job.store))
        models, embedders = Models(job.settings), Embedders(job.settings)
        stack.push_async_callback(models.aclose)
        stack.push_async_callback(embedders.aclose)
        stack.enter_context(words_only_told(quiet=job.shown.quiet))
        result = await _play(job, build_team(job.spec, models.get, embedders.get), store)
        run = await store.run(job.run_id)
        return Report(run=run, result=result, seconds=time.monotonic() - began, store=store.url)


async def _play(job: Job, team: Team, store: Store) -> RunResult:
    stop = job.interrupt.stop
    view = open_view(job.spec, job.run_id, quiet=job.shown.quiet)
    try:
        with job.interrupt.installed(), subscribe(job.watch), view, subscribe(view.show):
            if job.task is not None:
                task = Task(text=job.task)
                return await team.run(task, store=store, seed=job.seed, run_id=job.run_id, stop=stop)
            view.preload(await store.turns(job.run_id), await store.versions(job.run_id))
            return await team.resume(job.run_id, store=store, stop=stop)
    except asyncio.CancelledError:
        if not job.interrupt.aborted:
            raise
        if not job.started:
            raise KeyboardInterrupt from None
        return await stored_result(store, job.run_id)
