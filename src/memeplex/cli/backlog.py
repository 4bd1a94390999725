"""``memory stats``: how much is kept, and what work is left to do, for people and machines."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from memeplex.cli.output import cut, say, table, tell, tell_json
from memeplex.cli.reading import read_store
from memeplex.cli.records import counted
from memeplex.memory.work import UNDONE
from memeplex.storage import Job, JobState, Store

__all__ = ["job_json", "print_jobs", "show_stats"]

_SHOWN = 20
_ERROR = 200


def job_json(job: Job) -> dict[str, Any]:
    """What there is to say of a job that is not done. One that is held is due when its lease is over."""
    due = job.lease if job.state is JobState.RUNNING and job.lease else job.due
    told = {"id": job.id, "kind": job.kind, "owner": job.owner, "state": job.state.value, "tries": job.attempts}
    return {**told, "due": due.isoformat(timespec="seconds"), "error": job.error}


def print_jobs(jobs: Sequence[dict[str, Any]]) -> None:
    """The oldest of them, and what the last error of each was."""
    rows = [
        (job["owner"], job["kind"], job["state"], job["tries"], job["due"][:16], cut(job["error"], _ERROR))
        for job in jobs[:_SHOWN]
    ]
    table(("owner", "job", "state", "tries", "due (UTC)", "last error"), rows, numbers=("tries",))
    if len(jobs) > _SHOWN:
        say(f"and {len(jobs) - _SHOWN} more; --json lists all")


def show_stats(store: str | None, *, as_json: bool) -> None:
    """How much is kept, what was done to it last, and what is waiting."""

    async def gathered(opened: Store) -> dict[str, Any]:
        owners = await opened.records.owners()
        kinds: Counter[str] = Counter()
        for by_kind in owners.values():
            kinds.update(by_kind)
        jobs = Counter(job.state.value for job in await opened.jobs.jobs(limit=10**6))
        undone = await opened.jobs.jobs(states=UNDONE, limit=10**6)
        audit = await opened.records.audit(limit=5)
        return {
            "owners": len(owners),
            "records": dict(sorted(kinds.items())),
            "jobs": dict(sorted(jobs.items())),
            "backlog": [job_json(job) for job in undone],
            "last": [row.model_dump(mode="json") for row in audit],
        }

    stats = read_store(store, gathered)
    if as_json:
        tell_json(stats)
        return
    tell(f"{stats['owners']} owners; {counted(stats['records']) or 'no records'}")
    tell(f"jobs: {counted(stats['jobs']) or 'none'}")
    if stats["backlog"]:
        print_jobs(stats["backlog"])
        tell("make them up with: memeplex memory catch-up")
    rows = [(row["at"][:16], row["action"], row["actor"], row["owner"], row["records"]) for row in stats["last"]]
    if rows:
        table(("at", "action", "by", "owner", "records"), rows, numbers=("records",))
