"""Kills itself in the middle of a consolidation: ``broken_off.py STORE lessons|consolidation|adopted``.

The process lives through two tasks of one run after the other. In the second it dies by SIGKILL when the model is asked
for lessons, when it is asked for a procedure, or when the procedure is kept and the job is not yet finished.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lives import invoices, lifelong, live, team, work
from pydantic import BaseModel

from memeplex.models import ChatMessage, Settings
from memeplex.models.testing import FunctionModel
from memeplex.storage import Job
from memeplex.storage.sqlite import SQLiteStore
from memeplex.storage.sqlite.jobs import SQLiteJobs
from memeplex.usage import Purpose

STORE, AT = sys.argv[1], sys.argv[2]
tasks = {"done": 0}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
    if settings.purpose.value.removesuffix("s") + "s" * (settings.purpose is Purpose.LESSON) == AT and tasks["done"]:
        die()
    return work(messages, output, settings)


class MortalJobs(SQLiteJobs):
    async def finish(self, job: Job) -> bool:
        if AT == "adopted" and job.kind == "consolidation":
            die()
        return await super().finish(job)


async def main() -> None:
    store = SQLiteStore(Path(STORE))
    store.jobs.__class__ = MortalJobs
    made = team(FunctionModel(mortal), lifelong(every=2), agents="A", turns=1)
    first, second = invoices(2)
    await live(made, store, first)
    tasks["done"] = 1
    await made.run(second, store=store, run_id="the-run")


asyncio.run(main())
