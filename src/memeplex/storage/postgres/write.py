"""One changing call on PostgreSQL's records."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from memeplex.storage.changes import EVERYBODY, is_new_embedder
from memeplex.storage.lines import Revision
from memeplex.storage.postgres.indexing import index_name
from memeplex.storage.postgres.pool import Db
from memeplex.storage.records import Origin, Record, Vectors
from memeplex.storage.rows import FIELDS, read_record, record_row, select
from memeplex.storage.terms import searchable

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PostgresWrite", "present"]

_WRITERS = int.from_bytes(b"writers\0", "big")
"""A lock that writers of one owner share, and that a writer of many has alone."""

_BODY = """json_build_object('id', id, 'owner', (select name from owners where owners.id = records.owner), 'kind', kind,
 'text', text, 'payload', payload, 'provenance', provenance, 'trust', trust, 'key', key, 'supersedes', supersedes,
 'superseded_by', superseded_by, 'revision', revision, 'created', created, 'updated', updated)"""
_INSERT = f"""insert into records ({FIELDS}, owner, origin) values ({", ".join(["%s"] * 14)})
 on conflict (owner, kind, key) do nothing returning num"""
_INDEX = """insert into words (term, owner, record, tf, length) select stem(term), %s, record, sum(tf), length
 from unnest(%s::text[], %s::bigint[], %s::int[], %s::int[]) as given (term, record, tf, length) group by 1, 3, 5"""
_EMBED = """insert into vectors (record, owner, kind, embedder, vector) values (%s, %s, %s, %s, %s::vector)
 on conflict (record) do update set embedder = excluded.embedder, vector = excluded.vector"""


def present(db: Db, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
    """The records that are there, with their numbers, by their ids."""
    return {row[1]: (row[0], read_record(row)) for row in db.execute(select("where id = any(%s)"), (list(ids),))}


class PostgresWrite:
    """``changes.Write`` in PostgreSQL. Writers of one owner wait for each other, those of several do not.

    Nothing changed, nothing written.
    """

    def __init__(self, db: Db, owner: str, actor: str, action: str, cause: str) -> None:
        self.db = db
        self.owner = owner
        self.origin = Origin(actor=actor, action=action, cause=cause)
        self.text = self.origin.model_dump_json()
        self.records = 0
        self._numbers: dict[str, int] = {}
        self._grown: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> "PostgresWrite":
        self.db.execute("begin")
        how = "pg_advisory_xact_lock" if self.owner == EVERYBODY else "pg_advisory_xact_lock_shared"
        try:
            self.db.execute(f"select {how}(%s)", (_WRITERS,))
            self.number = self.number_of(self.owner) if self.owner != EVERYBODY else 0
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None or not self.records:
            # Of a connection that is gone, the server takes everything back by itself.
            with suppress(psycopg.OperationalError):
                self.db.execute("rollback")
            return
        by = self.origin
        self.db.execute(
            "insert into audit (at, actor, action, owner, records, cause) values (%s, %s, %s, %s, %s, %s)",
            (by.at, by.actor, by.action, self.owner, self.records, by.cause),
        )
        for number, (documents, length) in self._grown.items():
            sql = "update owners set documents = documents + %s, length = length + %s where id = %s"
            self.db.execute(sql, (documents, length, number))
        self.db.execute("commit")

    def number_of(self, owner: str) -> int:
        """The number of an owner whose records this call changes; nobody else changes them until it is over."""
        if owner not in self._numbers:
            locked = "select id from owners where name = %s for no key update"
            row = self.db.execute(locked, (owner,)).fetchone()
            if row is None:
                self.db.execute("insert into owners (name) values (%s) on conflict do nothing", (owner,))
                row = self.db.execute(locked, (owner,)).fetchone()
            self._numbers[owner] = row[0] if row else 0
        return self._numbers[owner]

    def present(self, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """The records that are there, with their numbers, by their ids."""
        return present(self.db, ids)

    def twin(self, record: Record) -> Record | None:
        """The record of the same owner, kind and key."""
        sql = select("where owner = %s and kind = %s and key = %s")
        row = self.db.execute(sql, (self.number_of(record.owner), record.kind, record.key)).fetchone()
        return read_record(row) if row is not None else None

    def insert(self, records: Sequence[Record], origin: str = "") -> list[int]:
        """The numbers of the new rows; 0 for one whose owner and key are there already."""
        rows = [(*record_row(record), self.number_of(record.owner), origin or self.text) for record in records]
        cursor = self.db.cursor()
        cursor.executemany(_INSERT, rows, returning=True)
        return [found[0] if (found := result.fetchone()) else 0 for result in cursor.results()]

    def archive(self, where: str, values: Sequence[Any], *, forgotten: bool) -> None:
        """Put the present state of records among the revisions that have been."""
        sql = f"""insert into revisions (record, revision, owner, origin, ended, body)
         select id, revision, owner, origin, %s::json, {_BODY} from records where {where}"""
        self.db.execute(sql, (self.text if forgotten else None, *values))

    def replace(self, num: int, old: Record, new: Record) -> None:
        """A new revision in place of the present one."""
        self.archive("num = %s", (num,), forgotten=False)
        assignments = ", ".join(f"{name} = %s" for name in FIELDS.split(", "))
        values = (*record_row(new), self.text, num)
        self.db.execute(f"update records set {assignments}, origin = %s where num = %s", values)
        if (new.text, new.provenance.author) != (old.text, old.provenance.author):
            self.unindex([num])
            self.index(new.owner, [(num, new)])
            # The vector is of the old text.
            self.db.execute("delete from vectors where record = %s", (num,))

    def index(self, owner: str, rows: Sequence[tuple[int, Record]]) -> None:
        """Have new records found by their words."""
        number = self.number_of(owner)
        terms, nums, counts, lengths, total = list[str](), list[int](), list[int](), list[int](), 0
        for num, record in rows:
            said = searchable(record.text, record.provenance.author, record.created).split()
            counted = Counter(said)
            terms += counted.keys()
            counts += counted.values()
            nums += [num] * len(counted)
            # SQLite's index counts the owner among the terms; scores are to be the same.
            lengths += [len(said) + 1] * len(counted)
            total += len(said) + 1
        self.db.execute(_INDEX, (number, terms, nums, counts, lengths))
        self._grow(number, len(rows), total)

    def unindex(self, nums: Sequence[int]) -> None:
        """Take records of this call's owner out of the index."""
        sql = """with gone as (delete from words where record = any(%s) returning record, length)
         select count(*), coalesce(sum(length), 0)::bigint from (select distinct record, length from gone) each"""
        ((worded, length),) = self.db.execute(sql, (list(nums),)).fetchall()
        # One without any word has the owner alone.
        self._grow(self.number, -len(nums), -(length + len(nums) - worded))

    def ever(self, record_id: str) -> bool:
        """Whether there is or has been such a record."""
        sql = "select 1 from records where id = %s union all select 1 from revisions where record = %s limit 1"
        return self.db.execute(sql, (record_id, record_id)).fetchone() is not None

    def archive_revision(self, record: Record, revision: Revision) -> None:
        """Keep a revision that has been."""
        sql = "insert into revisions (record, revision, owner, origin, ended, body) values (%s, %s, %s, %s, %s, %s)"
        self.db.execute(sql, (record.id, record.revision, self.number_of(record.owner), *revision))

    def embedder(self, vectors: Vectors, count: int, *, replacing: bool = False) -> int:
        """The number of the embedder."""
        known = self._embedders()
        dimensions = {name: dimension for name, (_, dimension) in known.items()}
        if is_new_embedder(vectors, count, dimensions, replacing=replacing):
            # Looked at again with nobody beside us: of two first ones, the second is refused.
            self.db.execute("lock table embedders in share row exclusive mode")
            known = self._embedders()
            dimensions = {name: dimension for name, (_, dimension) in known.items()}
            if is_new_embedder(vectors, count, dimensions, replacing=replacing):
                sql = "insert into embedders (name, dimension) values (%s, %s)"
                self.db.execute(sql, (vectors.embedder, vectors.values.shape[1]))
                known = self._embedders()
        return known[vectors.embedder][0]

    def embed(self, embedder: int, rows: Sequence[tuple[int, Record]], values: "np.ndarray") -> None:
        """Keep vectors, each of length 1, in place of those that the records have."""
        pairs = zip(rows, values, strict=True)
        self.db.cursor().executemany(
            _EMBED,
            [(num, self.number_of(record.owner), record.kind, embedder, vector) for (num, record), vector in pairs],
        )

    def drop_embedders(self) -> None:
        """Forget embedders that have no vectors any more, and their indexes."""
        sql = """delete from embedders e where not exists (select from vectors where embedder = e.id) returning id"""
        for (number,) in self.db.execute(sql).fetchall():
            self.db.execute(f"drop index if exists {index_name(number)}")

    def _embedders(self) -> dict[str, tuple[int, int]]:
        rows = self.db.execute("select name, id, dimension from embedders")
        return {name: (number, dimension) for name, number, dimension in rows}

    def _grow(self, owner: int, documents: int, length: int) -> None:
        before = self._grown.get(owner, (0, 0))
        self._grown[owner] = (before[0] + documents, before[1] + length)
