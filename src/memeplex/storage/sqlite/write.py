"""One changing call on SQLite's records."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memeplex.storage.changes import EVERYBODY, is_new_embedder
from memeplex.storage.lines import Revision
from memeplex.storage.records import Origin, Record, Vectors
from memeplex.storage.rows import FIELDS, read_record, record_row, select
from memeplex.storage.terms import searchable

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CHUNK", "SQLiteWrite", "present"]

CHUNK = 500
"""Ids in one statement."""

_BODY = """json_object('id', id, 'owner', (select name from owners where owners.id = records.owner), 'kind', kind,
 'text', text, 'payload', json(payload), 'provenance', json(provenance), 'trust', trust, 'key', key,
 'supersedes', supersedes, 'superseded_by', superseded_by, 'revision', revision, 'created', created,
 'updated', updated)"""
_NOW = """select (select coalesce(max(seq), 0) + 1 from sqlite_sequence where name = 'audit'),
 (select id from owners where name = ?)"""
_INSERT = f"""insert into records ({FIELDS}, owner, audit, origin) values ({", ".join("?" * 15)})
 on conflict (owner, kind, key) do nothing"""
_REVISION = "insert into revisions (record, revision, owner, origin, ended, body) values (?, ?, ?, ?, ?, ?)"
_VECTOR = """insert into vectors (record, owner, embedder, changed, vector) values (?, ?, ?, ?, ?)
 on conflict (record) do update
 set embedder = excluded.embedder, changed = excluded.changed, vector = excluded.vector"""


def present(db: sqlite3.Connection, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
    """The records that are there, with their numbers, by their ids."""
    found: dict[str, tuple[int, Record]] = {}
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        for row in db.execute(select(f"where id in ({', '.join('?' * len(part))})"), list(part)):
            found[row["id"]] = (row["num"], read_record(row))
    return found


class SQLiteWrite:
    """``changes.Write`` in SQLite; it is also the tick of the clock by which arrays are kept current.

    Nothing changed, nothing written.
    """

    def __init__(self, db: sqlite3.Connection, owner: str, actor: str, action: str, cause: str) -> None:
        self.db = db
        self.owner = owner
        self.origin = Origin(actor=actor, action=action, cause=cause)
        self.text = self.origin.model_dump_json()
        self.records = 0
        self.changed = False
        self.removed = False
        self._numbers: dict[str, int] = {}

    def __enter__(self) -> "SQLiteWrite":
        self.db.execute("begin immediate")
        self.clock, number = self.db.execute(_NOW, (self.owner,)).fetchone()
        if number is not None:
            self._numbers[self.owner] = number
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
        # Of additions alone, the vectors tell.
        if self.changed or self.removed:
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

    def present(self, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """The records that are there, with their numbers, by their ids."""
        return present(self.db, ids)

    def twin(self, record: Record) -> Record | None:
        """The record of the same owner, kind and key."""
        sql = select("where owner = ? and kind = ? and key = ?")
        row = self.db.execute(sql, (self.number_of(record.owner), record.kind, record.key)).fetchone()
        return read_record(row) if row is not None else None

    def insert(self, records: Sequence[Record], origin: str = "") -> list[int]:
        """The numbers of the new rows; 0 for one whose owner and key are there already."""
        return [self._insert(record, origin or self.text) for record in records]

    def _insert(self, record: Record, origin: str) -> int:
        row = (*record_row(record), self.number_of(record.owner), self.clock, origin)
        cursor = self.db.execute(_INSERT, row)
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
        self.changed = True
        self.archive("num = ?", (num,), forgotten=False)
        assignments = ", ".join(f"{name} = ?" for name in FIELDS.split(", "))
        self.db.execute(
            f"update records set {assignments}, audit = ?, origin = ? where num = ?",
            (*record_row(new), self.clock, self.text, num),
        )
        if (new.text, new.provenance.author) != (old.text, old.provenance.author):
            self.unindex([(num, old)])
            self.index(new.owner, [(num, new)])
            # The vector is of the old text.
            self.removed = self.db.execute("delete from vectors where record = ?", (num,)).rowcount > 0

    def index(self, owner: str, rows: Sequence[tuple[int, Record]]) -> None:
        """Have new records found by their words."""
        number = f"o{self.number_of(owner)}"
        self.db.executemany(
            "insert into words (rowid, owner, terms) values (?, ?, ?)",
            ((num, number, _searchable(record)) for num, record in rows),
        )

    def unindex(self, rows: Iterable[tuple[int, Record]]) -> None:
        """Take records out of the index, which has to be told what it was given."""
        self.db.executemany(
            "insert into words (words, rowid, owner, terms) values ('delete', ?, ?, ?)",
            ((num, f"o{self.number_of(record.owner)}", _searchable(record)) for num, record in rows),
        )

    def ever(self, record_id: str) -> bool:
        """Whether there is or has been such a record."""
        sql = "select 1 from records where id = ?1 union all select 1 from revisions where record = ?1"
        return self.db.execute(sql, (record_id,)).fetchone() is not None

    def archive_revision(self, record: Record, revision: Revision) -> None:
        """Keep a revision that has been."""
        self.db.execute(_REVISION, (record.id, record.revision, self.number_of(record.owner), *revision))

    def embedder(self, vectors: Vectors, count: int, *, replacing: bool = False) -> int:
        """The number of the embedder."""
        known = {row["name"]: row for row in self.db.execute("select id, name, dimension from embedders")}
        dimensions = {name: row["dimension"] for name, row in known.items()}
        if not is_new_embedder(vectors, count, dimensions, replacing=replacing):
            return int(known[vectors.embedder]["id"])
        sql = "insert into embedders (name, dimension) values (?, ?)"
        return self.db.execute(sql, (vectors.embedder, vectors.values.shape[1])).lastrowid or 0

    def embed(self, embedder: int, rows: Sequence[tuple[int, Record]], values: "np.ndarray") -> None:
        """Keep vectors, each of length 1, in place of those that the records have."""
        pairs = zip(rows, values.astype("<f4", copy=False), strict=True)
        self.db.executemany(
            _VECTOR,
            [
                (num, self.number_of(record.owner), embedder, self.clock, vector.tobytes())
                for (num, record), vector in pairs
            ],
        )

    def drop_embedders(self) -> None:
        """Forget embedders that have no vectors any more."""
        # Vectors may have been replaced by those of another embedder: arrays of the old one have to let go of them.
        self.removed = True
        self.db.execute("delete from embedders where not exists (select 1 from vectors where embedder = embedders.id)")


def _searchable(record: Record) -> str:
    return searchable(record.text, record.provenance.author, record.created)
