"""``run --tasks``: one team, a stream of tasks, and what it learns on the way."""

import asyncio
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from memeplex.cli.config import Embedders, Models, Settings, load_settings, store_option
from memeplex.cli.embedders import words_only_told
from memeplex.cli.interrupt import INTERRUPTED, Interrupt
from memeplex.cli.models import fetch_missing
from memeplex.cli.output import console, cut, say, table, tell, tell_json
from memeplex.cli.overrides import Overrides
from memeplex.cli.report import stored_result, usage_json
from memeplex.errors import MemeplexError, UnknownNameError, UserError
from memeplex.messages import Task
from memeplex.models.testing import ScriptedModel
from memeplex.storage import Run, Store, opened_store
from memeplex.teams import RunResult, Team, TeamSpec, build_team, new_run_id, read_team
from memeplex.usage import Ledger

__all__ = ["read_tasks", "run_stream"]


@dataclass(frozen=True, slots=True)
class Done:
    """One task that is over."""

    run: str
    task: Task
    result: RunResult

    @property
    def success(self) -> bool | None:
        """Whether it was done, if anybody knows."""
        return self.result.outcome.success if self.result.outcome else None


def read_tasks(path: str) -> list[Task]:
    """The tasks of a file: a JSON object a line, with ``text`` and whatever else belongs to the task.

    Raises:
        UserError: the file cannot be read, or a line is no task; it is named.
    """
    try:
        lines = Path(path).read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"cannot read {path}: {reason}", remedy="give a file with a JSON object a line") from error
    tasks = [_task(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not tasks:
        raise UserError(f"{path} holds no task", remedy='write one a line, such as {"text": "Plan a bridge."}')
    return tasks


def _task(where: str, line: str) -> Task:
    remedy = 'write an object such as {"text": "Plan a bridge.", "type": "plan", "expect": "steel"}'
    try:
        data: Any = json.loads(line)
        if not isinstance(data, dict) or not str(data.get("text") or "").strip():
            raise UserError(f"{where}: there is no text of a task", remedy=remedy)
        return Task(text=data.pop("text"), data=data)
    except (ValueError, ValidationError) as error:
        raise UserError(f"{where}: this is no task", remedy=remedy) from error


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What is to be worked through. ``id`` is that of the stream; its runs are numbered."""

    id: str
    team: str
    path: str
    tasks: Sequence[Task]
    spec: TeamSpec
    settings: Settings
    store: str
    store_given: bool
    seed: int

    @property
    def how_to_resume(self) -> str:
        """The command that goes on with it."""
        where = store_option(self.store if self.store_given else None)
        return f"memeplex run {shlex.quote(self.team)} --tasks {shlex.quote(self.path)} --stream {self.id}{where}"

    def run_of(self, number: int) -> str:
        """The id of a task's run."""
        return f"{self.id}-{number:04d}"


def run_stream(
    team: str,
    path: str,
    overrides: Overrides,
    *,
    stream: str | None,
    seed: int,
    store: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Work through the tasks of a file; gives the exit code. With ``stream``, go on where it stopped."""
    settings = load_settings()
    job = Stream(
        id=stream or new_run_id(),
        team=team,
        path=path,
        tasks=read_tasks(path),
        spec=overrides.applied(read_team(team), settings),
        settings=settings,
        store=settings.store(store),
        store_given=store is not None,
        seed=seed,
    )
    build_team(job.spec, lambda name: ScriptedModel((), name=name, window=2**40), Embedders(settings).get)
    fetch_missing(sorted({agent.model or job.spec.model for agent in job.spec.agents}), quiet=quiet)
    interrupt = Interrupt(job.how_to_resume)
    began = time.monotonic()
    try:
        done = asyncio.run(_work(job, interrupt, quiet=quiet, bar=not (quiet or as_json)))
    except MemeplexError as error:
        error.remedy = f"{error.remedy}; then go on with: {job.how_to_resume}".removeprefix("; then ")
        raise
    _report(job, done, time.monotonic() - began, as_json=as_json)
    return 0 if len(done) == len(job.tasks) else INTERRUPTED


async def _work(job: Stream, interrupt: Interrupt, *, quiet: bool, bar: bool) -> list[Done]:
    done: list[Done] = []
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(job.store))
        models, embedders = Models(job.settings), Embedders(job.settings)
        stack.push_async_callback(models.aclose)
        stack.push_async_callback(embedders.aclose)
        stack.enter_context(words_only_told(quiet=quiet))
        team = build_team(job.spec, models.get, embedders.get)
        progress = stack.enter_context(_progress(shown=bar))
        row = progress.add_task("tasks", total=len(job.tasks))
        stack.enter_context(interrupt.installed())
        for number, task in enumerate(job.tasks):
            try:
                result = await _one(job, team, store, number, task, interrupt)
            except asyncio.CancelledError:
                if not interrupt.aborted:
                    raise
                break
            if result.outcome is None:
                break
            done.append(Done(job.run_of(number), task, result))
            progress.update(row, advance=1, description=_told(done))
    return done


async def _one(job: Stream, team: Team, store: Store, number: int, task: Task, interrupt: Interrupt) -> RunResult:
    run_id = job.run_of(number)
    known = await _known(store, run_id)
    if known is None:
        return await team.run(task, store=store, seed=job.seed + number, run_id=run_id, stop=interrupt.stop)
    if known.task != task:
        raise UserError(
            f"task {number + 1} of {job.path} is not the one that {run_id} was given", remedy="start another stream"
        )
    if known.status == "finished":
        return await stored_result(store, run_id)
    return await team.resume(run_id, store=store, stop=interrupt.stop)


async def _known(store: Store, run_id: str) -> Run | None:
    try:
        found = await store.run(run_id)
    except UnknownNameError:
        return None
    return found if found.id == run_id else None


def _progress(*, shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console(sys.stderr), transient=True, disable=not shown)


def _told(done: Sequence[Done]) -> str:
    known = [one.success for one in done if one.success is not None]
    return f"{sum(known)} of {len(known)} succeeded" if known else "tasks"


def _report(job: Stream, done: Sequence[Done], seconds: float, *, as_json: bool) -> None:
    usage = sum((one.result.usage for one in done), Ledger())
    if as_json:
        entries = [_entry(one) for one in done]
        tell_json(
            {
                "stream": job.id,
                "team": job.spec.name,
                "finished": len(done) == len(job.tasks),
                "tasks": entries,
                "usage": usage_json(usage),
                "seconds": round(seconds, 3),
            }
        )
        return
    rows = [
        (number, _mark(one.success), f"{one.result.usage.total.tokens:,}", one.run, cut(one.task.text, 50))
        for number, one in enumerate(done, 1)
    ]
    table(("task", "success", "tokens", "run", "text"), rows, numbers=("task", "tokens"))
    tell(f"{_told(done)}; {usage.total.tokens:,} tokens, {seconds:.0f} s.")
    if len(done) < len(job.tasks):
        say(f"stopped after {len(done)} of {len(job.tasks)} tasks; go on with: {job.how_to_resume}")


def _mark(success: bool | None) -> str:
    return "" if success is None else "yes" if success else "no"


def _entry(one: Done) -> dict[str, Any]:
    outcome = one.result.outcome
    return {
        "run": one.run,
        "task": one.task.text,
        "type": one.task.data.get("type", ""),
        "status": outcome.status if outcome else "interrupted",
        "success": one.success,
        "reward": outcome.reward if outcome else None,
        "tokens": one.result.usage.total.tokens,
        "usage": usage_json(one.result.usage)["by_purpose"],
    }
