"""``doctor --repair``: a damaged store's file put in order, and what was saved and lost."""

from typing import Any

from memeplex.cli.config import load_settings, store_option
from memeplex.cli.output import say, tell, tell_json
from memeplex.errors import UserError
from memeplex.storage import file_of, shown_url
from memeplex.storage.sqlite.repair import Repair, repair

__all__ = ["repair_store"]

_NAMES = {"memory_versions": "memories", "vectors": "vectors of records", "revisions": "revisions of records"}
_SHOWN = 10


def repair_store(store: str | None, *, as_json: bool) -> int:
    """Repair the store's file; gives the exit code."""
    url = load_settings().store(store)
    path = file_of(url)
    if path is None:
        raise UserError(f"store {shown_url(url)} is no file", remedy="repair it with what its server has for that")
    say(f"looking at {path}")
    done = repair(path)
    if as_json:
        tell_json({"store": str(path), **_json(done)})
        return 0
    if done.kept is None:
        tell(f"{path} is whole; nothing was changed")
        return 0
    _print(done, store_option(store))
    return 0


def _json(done: Repair) -> dict[str, Any]:
    return {
        "whole": done.kept is None,
        "faults": done.faults,
        "kept": str(done.kept) if done.kept else None,
        "saved": done.saved,
        "lost": done.lost,
        "lost_runs": done.runs,
        "cut_runs": done.cut,
        "unnamed_owners": done.owners,
    }


def _print(done: Repair, where: str) -> None:
    more = f", and {len(done.faults) - 1} more" if len(done.faults) > 1 else ""
    tell(f"damage    {done.faults[0]}{more}")
    tell(f"saved     {_counted(done.saved)}")
    tell(f"lost      {_counted(done.lost) or 'nothing that is known of'}")
    tell(f"kept      the damaged file, as {done.kept}")
    if done.runs:
        tell(f"gone      runs that are lost whole: {_listed(list(done.runs))}")
    if done.cut:
        cut = _listed([f"{run} ({turns} turns)" for run, turns in done.cut.items()])
        tell(f"cut back  runs that have lost turns or memories, or may have: {cut}")
        tell(f"go on     memeplex resume {next(iter(done.cut))}{where}")
    if done.owners:
        tell(f"unnamed   owners that are known by their records alone: {_listed(list(done.owners))}")
    if done.lost.get("vectors"):
        tell(f"embed     memeplex reindex{where}")


def _counted(rows: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {_NAMES.get(table, table)}" for table, count in rows.items())


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
