"""Whether the database in a store's file is whole, as far as SQLite can tell."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from memeplex.storage.sqlite.opening import connect

__all__ = ["faults_of"]

_MOST = 20
_WORDS = "select (select count(*) from words_docsize), (select count(*) from records)"


def faults_of(path: Path) -> list[str]:
    """What is wrong with a store's file, a few lines at most; nothing when it is whole.

    Raises:
        StorageError: it is no store, or of a newer version.
        sqlite3.Error: it cannot be opened.
    """
    with closing(connect(path)) as db:
        return _faults(db)


def _faults(db: sqlite3.Connection) -> list[str]:
    try:
        rows = db.execute(f"pragma integrity_check({_MOST})").fetchall()
        found = [line for row in rows for line in str(row[0]).splitlines() if not line.startswith("***")]
        if found != ["ok"]:
            return found[:_MOST]
        if orphans := db.execute("pragma foreign_key_check").fetchall():
            return [f"{row[0]}: a row belongs to none of {row[2]}" for row in orphans[:_MOST]]
        words, records = db.execute(_WORDS).fetchone()
        if words != records:
            return [f"the index of words has {words} records, not {records}"]
        # A store that cannot be written refuses this; one that is not whole fails otherwise.
        with suppress(sqlite3.OperationalError):
            db.execute("insert into words (words) values ('integrity-check')")
        db.rollback()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return [str(error)]
    return []
