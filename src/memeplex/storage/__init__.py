"""Where runs, turns and memories are kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memeplex.registry import Registry
from memeplex.storage.address import file_of
from memeplex.storage.base import MemoryVersion, Run, Runs, Store
from memeplex.storage.jobs import Job, Jobs, JobState
from memeplex.storage.records import (
    Added,
    Audit,
    Change,
    Found,
    Hit,
    Origin,
    Provenance,
    Query,
    Record,
    Records,
    Vectors,
    new_id,
)

__all__ = [
    "Added",
    "Audit",
    "Change",
    "Found",
    "Hit",
    "Job",
    "JobState",
    "Jobs",
    "MemoryVersion",
    "Origin",
    "Provenance",
    "Query",
    "Record",
    "Records",
    "Run",
    "Runs",
    "Store",
    "Vectors",
    "file_of",
    "new_id",
    "open_store",
    "opened_store",
    "shown_url",
    "stores",
]

stores = Registry(
    "store",
    "memeplex.storage",
    {"postgresql": "memeplex.storage.postgres:create", "sqlite": "memeplex.storage.sqlite:create"},
)
"""Factories by the scheme of a store's URL: ``(url) -> Store``."""


def open_store(url: str) -> Store:
    """The store at a URL such as ``sqlite:///runs.db``, or at a plain path. Opened at the first call.

    Raises:
        UnknownNameError: no store knows the URL's scheme.
        UserError: the URL has no path.
    """
    scheme, colon, _ = url.partition("://")
    store: Store = stores.load(scheme if colon else "sqlite")(url if colon else f"sqlite:///{url}")
    return store


def shown_url(url: str) -> str:
    """A store's URL as it may be shown: without a password. A path is shown as it was given."""
    return url if file_of(url) is not None else open_store(url).url


@asynccontextmanager
async def opened_store(url: str) -> AsyncIterator[Store]:
    """``open_store`` for a block of code: closed whatever way it ends."""
    store = open_store(url)
    try:
        yield store
    finally:
        await store.aclose()
