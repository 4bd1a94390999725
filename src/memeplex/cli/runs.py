"""``runs``, ``show`` and ``teams``: what there is."""

import shlex
from collections.abc import Sequence
from typing import Any

from memeplex.cli.config import store_option
from memeplex.cli.memory import memory_json, print_memory, versions_of
from memeplex.cli.output import clean, cut, say, table, tell, tell_json
from memeplex.cli.reading import find_run, read_store
from memeplex.cli.report import Report, print_tokens, stored_result, usage_json
from memeplex.errors import StorageError
from memeplex.messages import Turn
from memeplex.storage import Run, Store
from memeplex.teams import library_teams, read_team

__all__ = ["list_runs", "list_teams", "show_run"]

_TASK = 60


def list_teams(*, as_json: bool) -> None:
    """The teams of the library."""
    specs = [read_team(name) for name in library_teams()]
    if as_json:
        entries = [{"name": s.name, "description": s.description, "agents": [a.name for a in s.agents]} for s in specs]
        tell_json({"teams": entries})
        return
    table(("team", "agents", ""), [(s.name, len(s.agents), s.description) for s in specs], numbers=("agents",))


def list_runs(limit: int, store: str | None, *, as_json: bool) -> None:
    """The newest runs; those that cannot be read are named beside the list."""

    async def listed(opened: Store) -> tuple[list[tuple[Run, str]], list[str]]:
        found = await opened.runs(limit=limit)
        return [(run, standing(opened, run)) for run in found], sorted(found.damaged)

    found, damaged = read_store(store, listed)
    for run_id in damaged:
        say(f"run {run_id} cannot be read; memeplex show {shlex.quote(run_id)} says why")
    if as_json:
        tell_json({"runs": [_run_json(run, status) for run, status in found], "damaged": damaged})
        return
    if not found:
        tell("no runs that can be read" if damaged else "no runs yet; start one: memeplex run data-pipeline")
        return
    rows = [
        (run.id, run.team, status, run.outcome.status if run.outcome else "", run.model, cut(run.task.text, _TASK))
        for run, status in found
    ]
    table(("run", "team", "status", "outcome", "model", "task"), rows)


def standing(store: Store, run: Run) -> str:
    """How a run stands. One whose process died says "running" for ever; that nobody holds it tells it apart."""
    if run.status != "running":
        return run.status
    try:
        return "running" if store.held(run.id) else "killed"
    except StorageError:
        return run.status


def _run_json(run: Run, status: str) -> dict[str, Any]:
    return {**run.model_dump(mode="json", exclude={"spec", "outcome"}), "status": status} | {
        "outcome": run.outcome.status if run.outcome else None
    }


def show_run(run_id: str, *, turns: bool, memory: str | None, tokens: bool, store: str | None, as_json: bool) -> None:
    """One run, or the parts of it that are asked for."""

    async def found(opened: Store) -> tuple[Report, str]:
        run = await find_run(opened, run_id)
        result = await stored_result(opened, run.id)
        spent = result.usage.total.seconds
        return Report(run=run, result=result, seconds=spent, store=opened.url), standing(opened, run)

    report, status = read_store(store, found)
    versions = versions_of(report, memory) if memory is not None else []
    said = report.result.conversation.turns
    if as_json:
        parts: dict[str, Any] = {**report.as_json(), "status": status, "task": report.run.task.text}
        if turns:
            parts["transcript"] = [turn.model_dump(mode="json") for turn in said]
        if memory is not None:
            parts["memory"] = memory_json(memory, report.run.id, versions)
        tell_json(parts)
        return
    if not (turns or tokens or memory is not None):
        _summary(report, status, store_option(store))
    if turns:
        _print_turns(said)
    if memory is not None:
        print_memory(memory, versions)
    if tokens:
        print_tokens(report.result.usage)


def _print_turns(turns: Sequence[Turn]) -> None:
    for turn in turns:
        about = ", ".join(word for word in (turn.stage, turn.kind.value, turn.flag) if word)
        tell(f"[{turn.index}] {turn.speaker} ({about})")
        tell(turn.content)
        tell()


def _summary(report: Report, status: str, where: str) -> None:
    run, usage = report.run, usage_json(report.result.usage)["total"]
    outcome = run.outcome.status if run.outcome else "none yet"
    rows = [
        ("run", run.id),
        ("team", run.team),
        ("task", clean(run.task.text, one_line=True)),
        ("status", status),
        ("outcome", outcome),
        ("turns", len(report.result.conversation.turns)),
        ("model", run.model),
        ("seed", run.seed),
        ("started", f"{run.created:%Y-%m-%d %H:%M:%S} UTC"),
        ("tokens", f"{usage['input']:,} in, {usage['output']:,} out, {usage['calls']:,} calls"),
        ("memories", ", ".join(f"{name} v{m['version']}" for name, m in report.memories.items()) or "none"),
    ]
    for name, value in rows:
        tell(f"{name:9} {value}")
    if status not in ("finished", "running"):
        # A team that was built in Python is known there alone.
        tell(f"go on     {f'memeplex resume {run.id}{where}' if run.spec else 'Team.resume(…), in Python'}")
    elif status == "finished":
        tell(f"result    memeplex resume {run.id}{where}")
