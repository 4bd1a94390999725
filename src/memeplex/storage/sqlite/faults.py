"""Errors of the database and of the disk in our words, each with its remedy."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import Timeout

from memeplex.errors import DamagedError, StorageError
from memeplex.storage.damage import damaged, repairing

__all__ = ["explained"]

_NO_STORE = "this is no memeplex store: choose another with --store; or it is damaged: {repair} recovers what is whole"
_DAMAGED = "the file is damaged: {repair} recovers what is whole"
_REMEDIES = (
    ("malformed", _DAMAGED),
    ("corrupt", _DAMAGED),
    ("disk is full", "free some space, or put the store elsewhere with --store; nothing committed is lost"),
    ("disk I/O error", "check the disk and its free space; nothing committed is lost"),
    ("locked", "another process holds the store for long; try again when it is done"),
    ("unable to open", "check that the folder exists and can be written, or choose another with --store"),
    ("readonly", "the file or its folder cannot be written; choose another with --store"),
    ("not a database", _NO_STORE),
    ("no such table", _NO_STORE),
    ("no such column", _NO_STORE),
    ("already exists", _DAMAGED),
    ("UNIQUE constraint", "another process has written this already; look at the run before going on"),
    ("unsupported file format", _DAMAGED),
    ("can't decode", _DAMAGED),
    ("surrogates not allowed", "write it in valid Unicode"),
)
_ELSE = (
    "check the disk, its space and permissions, or choose another with --store; should the file be damaged: {repair}"
)


@contextmanager
def explained(path: Path | None) -> Iterator[None]:
    """Turn the database's own errors into ours, each with its remedy."""
    try:
        yield
    except DamagedError as error:
        if path is None:
            raise
        raise damaged(path, error.what) from error
    except (sqlite3.Error, OSError, Timeout, UnicodeError) as error:
        text = str(error)
        remedy = next((remedy for sign, remedy in _REMEDIES if sign in text), _ELSE)
        remedy = remedy.replace("{repair}", repairing(path) if path else "memeplex doctor")
        raise StorageError(f"store {path or 'in memory'}: {text}", remedy=remedy) from error
