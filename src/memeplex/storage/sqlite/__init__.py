"""The embedded store: one SQLite file."""

from memeplex.storage.sqlite.store import SQLiteStore, create

__all__ = ["SQLiteStore", "create"]
