"""Records in SQLite: every changing call is one transaction and one audit row."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from memeplex.errors import ConflictError, UserError
from memeplex.messages import utc_now
from memeplex.storage.records import Added, Audit, Change, Found, Origin, Query, Record, Vectors, text_key
from memeplex.storage.sqlite_rows import FIELDS, read_record, record_row, select
from memeplex.storage.sqlite_search import Searcher, embedder_number, remove_words, write_vectors, write_words

__all__ = ["Call", "SQLiteRecords"]

T = TypeVar("T")

_BODY = """json_object('id', id, 'owner', (select name from owners where owners.id = records.owner), 'kind', kind,
 'text', text, 'payload', json(payload), 'provenance', json(provenance), 'trust', trust, 'key', key,
 'supersedes', supersedes, 'superseded_by', superseded_by, 'revision', revision, 'created', created,
 'updated', updated)"""
_CHUNK = 500
"""Ids in one statement."""


class Call(Protocol):
    """Runs a function on the connection, in the store's own thread."""

    async def __call__(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What the function gives."""
        ...


class Write:
    """One changing call: a transaction, one audit row, and the tick of the clock by which arrays are kept current.

    Nothing changed, nothing written.
    """

    def __init__(self, db: sqlite3.Connection, owner: str, actor: str, action: str, cause: str) -> None:
        self.db = db
        self.owner = owner
        self.origin = Origin(actor=actor, action=action, cause=cause)
        self.records = 0
        self.removed = False

    def __enter__(self) -> "Write":
        self.db.execute("begin immediate")
        self.db.execute("insert into owners (name) values (?) on conflict do nothing", (self.owner,))
        self.number: int = self.db.execute("select id from owners where name = ?", (self.owner,)).fetchone()[0]
        last = self.db.execute("select coalesce(max(seq), 0) from sqlite_sequence where name = 'audit'").fetchone()[0]
        self.clock: int = last + 1
        self.text = self.origin.model_dump_json()
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
        self.db.execute(
            "update owners set changed = ?1, removed = iif(?2, ?1, removed) where id = ?3",
            (self.clock, self.removed, self.number),
        )
        self.db.commit()

    def insert(self, record: Record) -> int:
        """The number of the new row; 0 when its owner and key are there already."""
        cursor = self.db.execute(
            f"insert into records ({FIELDS}, owner, audit, origin) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " on conflict (owner, kind, key) do nothing",
            (*record_row(record), self.number, self.clock, self.text),
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
        if new.text != old.text:
            remove_words(self.db, self.number, [(num, old.text)])
            write_words(self.db, self.number, [(num, new.text)])
            # The vector is of the old text.
            self.removed = self.db.execute("delete from vectors where record = ?", (num,)).rowcount > 0


def _one_owner(records: Sequence[Record]) -> str:
    owners = {record.owner for record in records}
    if len(owners) != 1:
        raise UserError("records of one owner are added in one call", remedy="make one call for each owner")
    return owners.pop()


class SQLiteRecords:
    """``storage.Records`` on the connection of a ``SQLiteStore``."""

    def __init__(self, call: Call, *, memory: int) -> None:
        self._call = call
        self._searcher = Searcher(memory)

    async def add(
        self, records: Sequence[Record], vectors: Vectors | None = None, *, actor: str, cause: str = ""
    ) -> Added:
        """Keep records, all or none; those that are there already are left as they are."""
        if not records:
            return Added((), frozenset())
        owner = _one_owner(records)
        return await self._call(lambda db: _add(db, records, vectors, Write(db, owner, actor, "add", cause)))

    async def edit(self, record: Record, vectors: Vectors | None = None, *, actor: str, cause: str = "") -> Record:
        """Keep a changed record in place of the revision it was made from."""
        return await self._call(lambda db: _edit(db, record, vectors, Write(db, record.owner, actor, "edit", cause)))

    async def forget(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Take records out of the memory; their history stays."""

        def work(db: sqlite3.Connection) -> int:
            with Write(db, owner, actor, "forget", cause) as write:
                _remove(write, ids)
                return write.records

        return await self._call(work)

    async def purge(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Delete records with their history, and every trace of them in the file."""
        return await self._call(lambda db: _purge(db, ids, Write(db, owner, actor, "purge", cause)))

    async def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in that order."""

        def work(db: sqlite3.Connection) -> list[Record]:
            rows = [row for part in _parts(ids) for row in _by_ids(db, part)]
            found = {row["id"]: read_record(row) for row in rows}
            return [found[name] for name in ids if name in found]

        return await self._call(work)

    async def page(self, owner: str, kinds: Sequence[str] = (), *, limit: int = 100, after: str = "") -> list[Record]:
        """An owner's records, by their ids."""
        kind = f"and kind in ({', '.join('?' * len(kinds))})" if kinds else ""
        sql = select(f"where owner = (select o.id from owners o where o.name = ?) and id > ? {kind} order by id limit ?")
        values = (owner, after, *kinds, limit)
        return await self._call(lambda db: [read_record(row) for row in db.execute(sql, values)])

    async def search(self, query: Query) -> Found:
        """The best hits for a query."""
        return await self._call(lambda db: self._searcher.search(db, query))

    async def history(self, record_id: str) -> list[Change]:
        """Every revision of a record, the first one first."""
        return await self._call(lambda db: history(db, record_id))

    async def audit(self, owner: str | None = None, *, limit: int = 100) -> list[Audit]:
        """The newest changes, newest first."""
        sql = "select * from audit where ?1 is null or owner = ?1 order by id desc limit ?2"
        return await self._call(
            lambda db: [Audit.model_validate(dict(row)) for row in db.execute(sql, (owner, limit))]
        )

    async def owners(self) -> dict[str, dict[str, int]]:
        """All owners, with the number of their records by kind."""

        def work(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
            counts: dict[str, dict[str, int]] = {}
            sql = "select name, kind, count(*) from records join owners on owners.id = owner group by 1, 2 order by 1, 2"
            for name, kind, count in db.execute(sql):
                counts.setdefault(name, {})[kind] = count
            return counts

        return await self._call(work)


def _parts(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ids[i : i + _CHUNK] for i in range(0, len(ids), _CHUNK))


def _by_ids(db: sqlite3.Connection, ids: Sequence[str]) -> list[sqlite3.Row]:
    return db.execute(select(f"where records.id in ({', '.join('?' * len(ids))})"), list(ids)).fetchall()


def _add(db: sqlite3.Connection, records: Sequence[Record], vectors: Vectors | None, write: Write) -> Added:
    with write:
        places: list[int] = []
        rows: list[tuple[int, str]] = []
        for place, record in enumerate(records):
            if num := write.insert(record):
                places.append(place)
                rows.append((num, record.text))
        new = frozenset(records[place].id for place in places)
        write.records = len(new)
        write_words(db, write.number, rows)
        if vectors is not None:
            number = embedder_number(db, vectors, len(records))
            write_vectors(db, write.number, number, write.clock, [num for num, _ in rows], vectors.values[places])
        for place in places:
            if records[place].supersedes:
                _supersede(write, records[place])
        ids = tuple(record.id if record.id in new else _present(db, write.number, record) for record in records)
        return Added(ids, new)


def _present(db: sqlite3.Connection, owner: int, record: Record) -> str:
    sql = "select id from records where owner = ? and kind = ? and key = ?"
    return str(db.execute(sql, (owner, record.kind, record.key)).fetchone()[0])


def _supersede(write: Write, record: Record) -> None:
    row = next(iter(_by_ids(write.db, [record.supersedes or ""])), None)
    if row is None or row["owner"] != write.owner:
        raise UserError(f"there is no record {record.supersedes!r} of {write.owner} to supersede")
    old = read_record(row)
    new = old.model_copy(
        update={"superseded_by": record.id, "revision": old.revision + 1, "updated": write.origin.at}
    )
    write.replace(row["num"], old, new)


def _edit(db: sqlite3.Connection, record: Record, vectors: Vectors | None, write: Write) -> Record:
    with write:
        row = next(iter(_by_ids(db, [record.id])), None)
        old = read_record(row) if row is not None else None
        if row is None or old is None or old.revision != record.revision:
            raise ConflictError(f"record {record.id} has been changed by somebody else", yours=record, theirs=old)
        if (old.owner, old.kind, old.created) != (record.owner, record.kind, record.created):
            raise UserError(f"record {record.id}: owner, kind and time of creation cannot be edited")
        key = text_key(record.kind, record.text) if old.key == text_key(old.kind, old.text) else old.key
        new = record.model_copy(update={"revision": old.revision + 1, "updated": write.origin.at, "key": key})
        try:
            write.replace(row["num"], old, new)
        except sqlite3.IntegrityError as error:
            twin = db.execute(select("where owner = ? and kind = ? and key = ?"), (write.number, new.kind, key))
            raise ConflictError(
                f"{new.owner} has a record with this text already", yours=record, theirs=read_record(twin.fetchone())
            ) from error
        if vectors is not None:
            number = embedder_number(db, vectors, 1)
            write_vectors(db, write.number, number, write.clock, [row["num"]], vectors.values)
        write.records = 1
        return new


def _remove(write: Write, ids: Sequence[str] | None) -> None:
    for part in [None] if ids is None else _parts(ids):
        where, values = "owner = ?", [write.number]
        if part is not None:
            where, values = f"{where} and id in ({', '.join('?' * len(part))})", [write.number, *part]  # type: ignore[list-item]
        rows = write.db.execute(f"select num, text from records where {where}", values).fetchall()
        write.archive(where, values, forgotten=True)
        remove_words(write.db, write.number, [(row["num"], row["text"]) for row in rows])
        write.db.execute(f"delete from records where {where}", values)
        write.records += len(rows)
    write.removed = True


def _purge(db: sqlite3.Connection, ids: Sequence[str] | None, write: Write) -> int:
    with write:
        _remove(write, ids)
        gone = 0
        for part in [None] if ids is None else _parts(ids):
            chosen = f"and record in ({', '.join('?' * len(part))})" if part is not None else ""
            sql = f"delete from revisions where owner = ? {chosen}"
            gone += db.execute(sql, (write.number, *(part or ()))).rowcount
        write.records = write.records or gone
        if ids is None:
            db.execute("delete from audit where owner = ?", (write.owner,))
        count = write.records
    if count:
        # What was deleted is still in free pages, in merged index segments and in the journal.
        db.execute("insert into words (words) values ('optimize')")
        db.commit()
        db.execute("vacuum")
        db.execute("pragma wal_checkpoint(truncate)")
    return count


def history(db: sqlite3.Connection, record_id: str) -> list[Change]:
    """What a record has been, and what it is."""
    changes: list[Change] = []
    rows = db.execute("select * from revisions where record = ? order by revision", (record_id,)).fetchall()
    for row in rows:
        origin, body = Origin.model_validate_json(row["origin"]), Record.model_validate_json(row["body"])
        changes.append(Change(origin=origin, record=body))
        if row["ended"]:
            changes.append(Change(origin=Origin.model_validate_json(row["ended"]), record=None))
    for row in _by_ids(db, [record_id]):
        origin = db.execute("select origin from records where id = ?", (record_id,)).fetchone()[0]
        changes.append(Change(origin=Origin.model_validate_json(origin), record=read_record(row)))
    return changes
