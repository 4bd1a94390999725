"""Runs the case study in a process that kills itself: ``resumable.py STORE start|resume KIND AT``.

``KIND`` is ``event`` (SIGKILL at the AT-th telemetry event), ``before`` or ``after`` (at the AT-th write to the store,
before or after it is committed), or ``never``. Every event is a line on the standard output; the last line of a run
that ends is the numbers of its events and writes.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from support import act

from memeplex import subscribe
from memeplex.models.testing import FunctionModel
from memeplex.storage.sqlite import SQLiteStore
from memeplex.teams import build_team, read_team
from memeplex.telemetry import Event

RUN = "the-run"
STORE, ACTION, KIND, AT = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
counted = {"event": 0, "write": 0}


def die_at(kind: str, count: int) -> None:
    if kind == KIND and count == AT:
        os.kill(os.getpid(), signal.SIGKILL)


def sink(event: Event) -> None:
    counted["event"] += 1
    print(type(event).__name__, flush=True)
    die_at("event", counted["event"])


class MortalStore(SQLiteStore):
    async def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        counted["write"] += 1
        at = counted["write"]
        die_at("before", at)
        await super()._write(sql, values)
        die_at("after", at)


async def main() -> None:
    spec = read_team("data-pipeline").model_copy(update={"template": "generated"})
    team = build_team(spec, lambda name: FunctionModel(act))
    store = MortalStore(Path(STORE))
    with subscribe(sink):
        if ACTION == "start":
            await team.run(spec.task, store=store, run_id=RUN, seed=11)
        else:
            await team.resume(RUN, store=store)
    await store.aclose()
    print(counted["event"], counted["write"])


asyncio.run(main())
