"""Opening a store to read from it: no file is made where there was none."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memeplex.cli.config import load_settings
from memeplex.cli.output import say
from memeplex.errors import StorageError, UserError
from memeplex.storage import Run, Store, file_of, opened_store

__all__ = ["find_run", "read_store"]

T = TypeVar("T")


def read_store(given: str | None, work: Callable[[Store], Awaitable[T]], *, make: bool = False) -> T:
    """What ``work`` finds in the store; with ``make``, in a new one if there is none.

    Raises:
        StorageError: it cannot be read, or the one asked for is not there.
    """
    return asyncio.run(_read(given, work, make))


async def _read(given: str | None, work: Callable[[Store], Awaitable[T]], make: bool) -> T:
    url = load_settings().store(given)
    if not make and _missing(url):
        if given is not None:
            raise StorageError(f"there is no store at {given}", remedy="check --store")
        say(f"there is no store yet; the first run makes one at {url}")
        url = "sqlite://"
    async with opened_store(url) as store:
        return await work(store)


def _missing(url: str) -> bool:
    """Whether the store would be a file, and is not there."""
    file = file_of(url)
    try:
        return file is not None and not file.exists()
    except OSError:
        # A name too long, a folder that is closed to us: opening says what is wrong, and makes nothing.
        return False


async def find_run(store: Store, run_id: str | None) -> Run:
    """A run by its id, or the newest.

    Raises:
        UnknownNameError: there is no such run.
        UserError: there is none at all.
        StorageError: it cannot be read. The one before it is not taken in its stead.
    """
    if run_id is not None:
        return await store.run(run_id)
    newest = await store.runs(limit=1)
    for error in newest.damaged.values():
        raise error
    if not newest:
        raise UserError("there are no runs yet", remedy="start one: memeplex run data-pipeline")
    return newest[0]
