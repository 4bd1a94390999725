"""One changing call on SQLite's records."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from memeplex.storage.records import Origin, Record
from memeplex.storage.sqlite.rows import FIELDS, record_row
from memeplex.storage.sqlite.search import remove_words, write_words

__all__ = ["EVERYBODY", "Write"]

_BODY = """json_object('id', id, 'owner', (select name from owners where owners.id = records.owner), 'kind', kind,
 'text', text, 'payload', json(payload), 'provenance', json(provenance), 'trust', trust, 'key', key,
 'supersedes', supersedes, 'superseded_by', superseded_by, 'revision', revision, 'created', created,
 'updated', updated)"""
EVERYBODY = "*"
"""The owner in the audit row of a call that changes the records of many."""


class Write:
    """One changing call: a transaction, one audit row, and the tick of the clock by which arrays are kept current.

    Nothing changed, nothing written.
    """

    def __init__(self, db: sqlite3.Connection, owner: str, actor: str, action: str, cause: str) -> None:
        self.db = db
        self.owner = owner
        self.origin = Origin(actor=actor, action=action, cause=cause)
        self.text = self.origin.model_dump_json()
        self.records = 0
        self.removed = False
        self._numbers: dict[str, int] = {}

    def __enter__(self) -> "Write":
        self.db.execute("begin immediate")
        last = self.db.execute("select coalesce(max(seq), 0) from sqlite_sequence where name = 'audit'").fetchone()[0]
        self.clock: int = last + 1
        self.number = self.number_of(self.owner) if self.owner != EVERYBODY else 0
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None or not self.records:
            self.db.rollback()
            return
        by = self.origin
        self.db.execute(
            "insert into audit (id, at, actor, action, owner, records, cause) values (?, ?, ?, ?, ?, ?, ?)",
            (self.clock, by.at.isoformat(), by.actor, by.action, self.owner, self.records, by.cause),
        )
        self.db.executemany(
            "update owners set changed = ?1, removed = iif(?2, ?1, removed) where id = ?3",
            [(self.clock, self.removed, number) for number in self._numbers.values()],
        )
        self.db.commit()

    def number_of(self, owner: str) -> int:
        """The number of an owner whose records this call changes."""
        if owner not in self._numbers:
            self.db.execute("insert into owners (name) values (?) on conflict do nothing", (owner,))
            row = self.db.execute("select id from owners where name = ?", (owner,)).fetchone()
            self._numbers[owner] = row[0]
        return self._numbers[owner]

    def insert(self, record: Record, origin: str = "") -> int:
        """The number of the new row; 0 when its owner and key are there already."""
        cursor = self.db.execute(
            f"insert into records ({FIELDS}, owner, audit, origin) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " on conflict (owner, kind, key) do nothing",
            (*record_row(record), self.number_of(record.owner), self.clock, origin or self.text),
        )
        return (cursor.lastrowid or 0) if cursor.rowcount else 0

    def archive(self, where: str, values: Sequence[Any], *, forgotten: bool) -> None:
        """Put the present state of records among the revisions that have been."""
        ended = self.text if forgotten else None
        self.db.execute(
            "insert into revisions (record, revision, owner, origin, ended, body)"
            f" select id, revision, owner, origin, ?, {_BODY} from records where {where}",
            (ended, *values),
        )

    def replace(self, num: int, old: Record, new: Record) -> None:
        """A new revision in place of the present one."""
        self.archive("num = ?", (num,), forgotten=False)
        assignments = ", ".join(f"{name} = ?" for name in FIELDS.split(", "))
        self.db.execute(
            f"update records set {assignments}, audit = ?, origin = ? where num = ?",
            (*record_row(new), self.clock, self.text, num),
        )
        self.db.execute("update vectors set changed = ? where record = ?", (self.clock, num))
        if (new.text, new.provenance.author) != (old.text, old.provenance.author):
            remove_words(self.db, self.number, [(num, old)])
            write_words(self.db, self.number, [(num, new)])
            # The vector is of the old text.
            self.removed = self.db.execute("delete from vectors where record = ?", (num,)).rowcount > 0
