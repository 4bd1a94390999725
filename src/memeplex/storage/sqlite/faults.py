"""Errors of the database and of the disk in our words, each with its remedy."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import Timeout

from memeplex.errors import StorageError

__all__ = ["explained"]

_REMEDIES = (
    ("disk is full", "free some space, or put the store elsewhere with --store; nothing committed is lost"),
    ("disk I/O error", "check the disk and its free space; nothing committed is lost"),
    ("locked", "another process holds the store for long; try again when it is done"),
    ("unable to open", "check that the folder exists and can be written, or choose another with --store"),
    ("readonly", "the file or its folder cannot be written; choose another with --store"),
    ("not a database", "this file is not a memeplex store; choose another with --store"),
    ("no such table", "this file is not a memeplex store; choose another with --store"),
    ("no such column", "this file is not a memeplex store; choose another with --store"),
    ("UNIQUE constraint", "another process has written this already; look at the run before going on"),
    ("malformed", "the file is damaged; restore a copy, or choose another with --store"),
    ("surrogates not allowed", "write it in valid Unicode"),
)


@contextmanager
def explained(path: Path | None) -> Iterator[None]:
    """Turn the database's own errors into ours, each with its remedy."""
    try:
        yield
    except (sqlite3.Error, OSError, Timeout, UnicodeEncodeError) as error:
        text = str(error)
        remedy = next((remedy for sign, remedy in _REMEDIES if sign in text), "")
        remedy = remedy or "check the disk, its space and permissions, or choose another with --store"
        raise StorageError(f"store {path or 'in memory'}: {text}", remedy=remedy) from error
