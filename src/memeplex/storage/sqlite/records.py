"""Records in SQLite: every changing call is one transaction and one audit row."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from memeplex.errors import ConflictError, UserError
from memeplex.storage.records import Added, Audit, Change, Found, Query, Record, Vectors, text_key
from memeplex.storage.sqlite.lines import export_line, exported, history, load_lines, read_line
from memeplex.storage.sqlite.rows import read_record, select
from memeplex.storage.sqlite.search import Searcher, embedder_number, remove_words, write_vectors, write_words
from memeplex.storage.sqlite.write import EVERYBODY, Write

__all__ = ["Call", "SQLiteRecords"]

T = TypeVar("T")

_CHUNK = 500
"""Ids in one statement."""


class Call(Protocol):
    """Runs a function on the connection, in the store's own thread."""

    async def __call__(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What the function gives."""
        ...


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
        sql = select(
            f"where owner = (select o.id from owners o where o.name = ?) and id > ? {kind} order by id limit ?"
        )
        values = (owner, after, *kinds, limit)
        return await self._call(lambda db: [read_record(row) for row in db.execute(sql, values)])

    async def newest(self, owner: str, kind: str, *, limit: int = 100) -> list[Record]:
        """An owner's newest records of a kind, oldest first."""
        sql = select("where owner = (select o.id from owners o where o.name = ?) and kind = ? order by id desc limit ?")
        values = (owner, kind, limit)
        return (await self._call(lambda db: [read_record(row) for row in db.execute(sql, values)]))[::-1]

    async def by_key(self, owner: str, kind: str, key: str) -> Record | None:
        """The record of an owner, kind and key, if it is there."""
        sql = select("where owner = (select o.id from owners o where o.name = ?) and kind = ? and key = ?")
        rows = await self._call(lambda db: [read_record(row) for row in db.execute(sql, (owner, kind, key))])
        return rows[0] if rows else None

    async def search(self, query: Query) -> Found:
        """The best hits for a query."""
        return await self._call(lambda db: self._searcher.search(db, query))

    async def history(self, record_id: str) -> list[Change]:
        """Every revision of a record, the first one first."""
        return await self._call(lambda db: history(db, record_id))

    async def audit(self, owner: str | None = None, *, limit: int = 100) -> list[Audit]:
        """The newest changes, newest first."""
        sql = "select * from audit where ?1 is null or owner = ?1 order by id desc limit ?2"
        return await self._call(lambda db: [Audit.model_validate(dict(row)) for row in db.execute(sql, (owner, limit))])

    async def export(self, owner: str | None = None) -> AsyncIterator[str]:
        """Lines of canonical JSON: every record with its history."""
        for part in _parts(await self._call(lambda db: exported(db, owner))):
            for line in await self._call(lambda db, ids=part: [export_line(db, name) for name in ids]):  # type: ignore[misc]
                yield line

    async def load(self, lines: Sequence[str], *, actor: str, cause: str = "") -> int:
        """Take in what ``export`` wrote, all or nothing."""
        parsed = [read_line(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        return await self._call(lambda db: load_lines(Write(db, EVERYBODY, actor, "import", cause), parsed))

    async def without_vectors(self, embedder: str, *, limit: int = 256) -> list[Record]:
        """Records that the embedder has not embedded yet."""
        sql = select(
            "where not exists (select 1 from vectors v join embedders e on e.id = v.embedder"
            " where v.record = num and e.name = ?) order by num limit ?"
        )
        return await self._call(lambda db: [read_record(row) for row in db.execute(sql, (embedder, limit))])

    async def set_vectors(self, ids: Sequence[str], vectors: Vectors, *, actor: str) -> None:
        """Put vectors in place of those that the records have."""
        await self._call(lambda db: _set_vectors(db, ids, vectors, Write(db, EVERYBODY, actor, "reindex", "")))

    async def owners(self) -> dict[str, dict[str, int]]:
        """All owners, with the number of their records by kind."""

        def work(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
            counts: dict[str, dict[str, int]] = {}
            sql = (
                "select name, kind, count(*) from records join owners on owners.id = owner group by 1, 2 order by 1, 2"
            )
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
        rows: list[tuple[int, Record]] = []
        for place, record in enumerate(records):
            if num := write.insert(record):
                places.append(place)
                rows.append((num, record))
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
    new = old.model_copy(update={"superseded_by": record.id, "revision": old.revision + 1, "updated": write.origin.at})
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
        chosen = f"and id in ({', '.join('?' * len(part))})" if part is not None else ""
        where, values = f"owner = ? {chosen}", (write.number, *(part or ()))
        rows = write.db.execute(select(f"where {where}"), values).fetchall()
        write.archive(where, values, forgotten=True)
        remove_words(write.db, write.number, [(row["num"], read_record(row)) for row in rows])
        write.db.execute(f"delete from records where {where}", values)
        write.records += len(rows)
    write.removed = True


def _purge(db: sqlite3.Connection, ids: Sequence[str] | None, write: Write) -> int:
    with write:
        _remove(write, ids)
        write.records = 0
        for part in [None] if ids is None else _parts(ids):
            chosen = f"and record in ({', '.join('?' * len(part))})" if part is not None else ""
            which, values = f"from revisions where owner = ? {chosen}", (write.number, *(part or ()))
            write.records += db.execute(f"select count(distinct record) {which}", values).fetchone()[0]
            db.execute(f"delete {which}", values)
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


def _set_vectors(db: sqlite3.Connection, ids: Sequence[str], vectors: Vectors, write: Write) -> None:
    with write:
        number = embedder_number(db, vectors, len(ids), replacing=True)
        rows = {row["id"]: row for part in _parts(ids) for row in _by_ids(db, part)}
        for place, name in enumerate(ids):
            # What was forgotten meanwhile needs no vector.
            if name in rows:
                owner = write.number_of(rows[name]["owner"])
                one = vectors.values[place : place + 1]
                write_vectors(db, owner, number, write.clock, [rows[name]["num"]], one)
        write.removed, write.records = True, len(rows)
        db.execute("delete from embedders where not exists (select 1 from vectors where embedder = embedders.id)")
