"""``memory``: what an agent's memory holds, how it came to that, and what changed."""

from collections.abc import Sequence
from difflib import unified_diff
from typing import Any

from memeplex.cli.output import cut, table, tell, tell_json
from memeplex.cli.reading import find_run, read_store
from memeplex.cli.report import Report, stored_result
from memeplex.errors import UnknownNameError, UserError
from memeplex.storage import MemoryVersion, Store

__all__ = ["memory_json", "print_memory", "show_diff", "show_history", "show_memory", "versions_of"]

_CAUSE = 100


def show_memory(agent: str, run_id: str | None, store: str | None, *, as_json: bool) -> None:
    """What it holds now."""
    report = _report(run_id, store)
    versions = versions_of(report, agent)
    if as_json:
        tell_json(memory_json(agent, report.run.id, versions))
    else:
        print_memory(agent, versions)


def show_history(agent: str, run_id: str | None, store: str | None, *, as_json: bool) -> None:
    """Every attempt to update it."""
    report = _report(run_id, store)
    versions = versions_of(report, agent)
    if as_json:
        entries = [version.model_dump(mode="json") for version in versions]
        tell_json({"run": report.run.id, "agent": agent, "versions": entries})
        return
    rows = [
        (
            "template" if version.turn < 0 else version.turn,
            version.version,
            version.status,
            f"{version.usage.total.tokens:,}",
            cut(version.cause, _CAUSE),
        )
        for version in versions
    ]
    table(("turn", "version", "status", "tokens", "cause"), rows, numbers=("turn", "version", "tokens"))


def show_diff(
    agent: str, run_id: str | None, store: str | None, *, older: int | None, newer: int | None, as_json: bool
) -> None:
    """What changed between two of its versions; version 0 is the empty memory."""
    report = _report(run_id, store)
    held = [version for version in versions_of(report, agent) if version.turn >= 0]
    if not held and not as_json:
        tell(f"{agent} has no memory in this run: it has not spoken yet, or keeps none")
        return
    contents: dict[int, dict[str, list[str]]] = {0: {}} | {version.version: version.content for version in held}
    first, last = _ends(agent, sorted(contents), older, newer)
    lines = list(
        unified_diff(
            _lines(contents[first]), _lines(contents[last]), f"version {first}", f"version {last}", n=99, lineterm=""
        )
    )
    if as_json:
        tell_json({"run": report.run.id, "agent": agent, "from": first, "to": last, "diff": lines})
    else:
        tell("\n".join(lines) or f"versions {first} and {last} are the same")


def _ends(agent: str, known: Sequence[int], older: int | None, newer: int | None) -> tuple[int, int]:
    """The two versions to compare; where one is not given, the newest and the one before the other."""
    for number in (older, newer):
        if number is not None and number not in known:
            raise UnknownNameError(f"version of {agent}'s memory", str(number), [str(number) for number in known])
    last = known[-1] if newer is None else newer
    if older is not None and newer is None and older == last:
        remedy = f"memeplex memory diff {agent} shows what it changed" if last else ""
        raise UserError(f"version {last} is the newest of {agent}'s memory; nothing came after it", remedy=remedy)
    first = max((number for number in known if number < last), default=None) if older is None else older
    if first is None and newer is not None:
        raise UserError(f"version {last} of {agent}'s memory is the empty one; nothing came before it")
    return first or 0, last


def versions_of(report: Report, agent: str) -> list[MemoryVersion]:
    """All versions of one agent's memory, oldest first; none when it has not kept one.

    Raises:
        UnknownNameError: the run has no such agent.
    """
    found = [version for version in report.result.versions if version.agent == agent]
    spoke = {turn.speaker for turn in report.result.conversation.turns}
    known = [entry["name"] for entry in report.run.spec.get("agents", [])] or sorted(spoke)
    if not found and agent not in known:
        raise UnknownNameError(f"agent in run {report.run.id}", agent, known)
    return found


def memory_json(agent: str, run: str, versions: Sequence[MemoryVersion]) -> dict[str, Any]:
    """What a memory holds now, as plain data."""
    held = [version for version in versions if version.turn >= 0]
    newest = held[-1].model_dump(mode="json") if held else {"version": 0, "status": "empty", "content": {}}
    return {"run": run, **newest, "agent": agent}


def print_memory(agent: str, versions: Sequence[MemoryVersion]) -> None:
    """What a memory holds now, slot by slot."""
    held = [version for version in versions if version.turn >= 0]
    if not held:
        tell(f"{agent} has no memory in this run: it has not spoken yet, or keeps none")
        return
    tell(f"{agent}, version {held[-1].version}, {held[-1].status} after turn {held[-1].turn}")
    tell("\n".join(_lines(held[-1].content)) or "(empty)")


def _report(run_id: str | None, store: str | None) -> Report:
    async def found(opened: Store) -> Report:
        run = await find_run(opened, run_id)
        return Report(run=run, result=await stored_result(opened, run.id), seconds=0.0, store=opened.url)

    return read_store(store, found)


def _lines(content: dict[str, list[str]]) -> list[str]:
    return [line for slot, notes in content.items() for line in (f"{slot}:", *_notes(notes))]


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"  {line}" for note in notes for line in f"- {note}".splitlines()]
