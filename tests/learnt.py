"""Learns in a process that kills itself: ``learnt.py STORE KIND AT``.

``KIND`` is ``before`` or ``after``: SIGKILL before or after the AT-th step, which is a write to the store or a call of
the model; or ``never``. The last line of a run that ends is the number of its steps.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learners import SITUATIONS, learning, thinking

from memeplex.storage.sqlite import SQLiteStore

_READS = {"get", "page", "newest", "by_key", "search", "history", "audit", "owners", "jobs"}


class Steps:
    """Counts the steps of a life, and ends it at one of them."""

    def __init__(self, kind: str, at: int, die: Callable[[], None]) -> None:
        self.kind, self.at, self.die, self.count = kind, at, die, 0

    def over(self, inner: Any) -> Any:
        """The same object; its writes and calls are steps."""
        steps = self

        class Mortal:
            def __getattr__(self, name: str) -> Any:
                value = getattr(inner, name)
                if name.startswith("_") or name in _READS or not asyncio.iscoroutinefunction(value):
                    return value

                async def step(*args: Any, **kwargs: Any) -> Any:
                    steps.count += 1
                    at = steps.count
                    if (steps.kind, steps.at) == ("before", at):
                        steps.die()
                    result = await value(*args, **kwargs)
                    if (steps.kind, steps.at) == ("after", at):
                        steps.die()
                    return result

                return step

        return Mortal()


class MortalStore:
    """A store whose records and jobs are counted."""

    def __init__(self, store: SQLiteStore, steps: Steps) -> None:
        self.records, self.jobs = steps.over(store.records), steps.over(store.jobs)


async def learn(store: SQLiteStore, steps: Steps) -> None:
    """One night of learning."""
    model = steps.over(thinking())
    await learning(MortalStore(store, steps), model).learn(SITUATIONS)  # type: ignore[arg-type]


async def main() -> None:
    store = SQLiteStore(Path(sys.argv[1]))
    steps = Steps(sys.argv[2], int(sys.argv[3]), lambda: os.kill(os.getpid(), signal.SIGKILL))
    await learn(store, steps)
    await store.aclose()
    print(steps.count)


if __name__ == "__main__":
    asyncio.run(main())
