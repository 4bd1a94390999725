"""Records in SQLite: every changing call is one transaction and one audit row."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from memeplex.storage.changes import EVERYBODY, add, edit, one_owner, put_vectors, take_in
from memeplex.storage.damage import legible
from memeplex.storage.lines import read_changes, read_line, write_line
from memeplex.storage.records import Added, Audit, Change, Found, Query, Record, Vectors
from memeplex.storage.rows import read_audit, read_record, select
from memeplex.storage.sqlite.search import Searcher
from memeplex.storage.sqlite.write import CHUNK, SQLiteWrite, present

__all__ = ["Call", "SQLiteRecords"]

T = TypeVar("T")


class Call(Protocol):
    """Runs a function on the connection, in the store's own thread."""

    async def __call__(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What the function gives."""
        ...


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
        owner = one_owner(records)
        return await self._call(lambda db: add(SQLiteWrite(db, owner, actor, "add", cause), records, vectors))

    async def edit(self, record: Record, vectors: Vectors | None = None, *, actor: str, cause: str = "") -> Record:
        """Keep a changed record in place of the revision it was made from."""
        return await self._call(lambda db: edit(SQLiteWrite(db, record.owner, actor, "edit", cause), record, vectors))

    async def forget(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Take records out of the memory; their history stays."""

        def work(db: sqlite3.Connection) -> int:
            with SQLiteWrite(db, owner, actor, "forget", cause) as write:
                _remove(write, ids)
                return write.records

        return await self._call(work)

    async def purge(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Delete records with their history, and every trace of them in the file."""
        return await self._call(lambda db: _purge(db, ids, SQLiteWrite(db, owner, actor, "purge", cause)))

    async def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in that order."""

        found = await self._call(lambda db: present(db, ids))
        return [found[name][1] for name in ids if name in found]

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

        def work(db: sqlite3.Connection) -> Found:
            # A vector of a damaged file may be of any length.
            with legible("", "a vector"):
                return self._searcher.search(db, query)

        return await self._call(work)

    async def history(self, record_id: str) -> list[Change]:
        """Every revision of a record, the first one first."""
        return await self._call(lambda db: _history(db, record_id))

    async def audit(self, owner: str | None = None, *, limit: int = 100) -> list[Audit]:
        """The newest changes, newest first."""
        sql = "select * from audit where ?1 is null or owner = ?1 order by id desc limit ?2"
        return await self._call(lambda db: [read_audit(dict(row)) for row in db.execute(sql, (owner, limit))])

    async def export(self, owner: str | None = None) -> AsyncIterator[str]:
        """Lines of canonical JSON: every record with its history."""
        for part in _parts(await self._call(lambda db: _exported(db, owner))):
            for line in await self._call(lambda db, ids=part: [write_line(_history(db, name)) for name in ids]):  # type: ignore[misc]
                yield line

    async def load(self, lines: Sequence[str], *, actor: str, cause: str = "") -> int:
        """Take in what ``export`` wrote, all or nothing."""
        parsed = [read_line(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        return await self._call(lambda db: take_in(SQLiteWrite(db, EVERYBODY, actor, "import", cause), parsed))

    async def without_vectors(self, embedder: str, *, limit: int = 256) -> list[Record]:
        """Records that the embedder has not embedded yet."""
        sql = select(
            "where not exists (select 1 from vectors v join embedders e on e.id = v.embedder"
            " where v.record = num and e.name = ?) order by num limit ?"
        )
        return await self._call(lambda db: [read_record(row) for row in db.execute(sql, (embedder, limit))])

    async def set_vectors(self, ids: Sequence[str], vectors: Vectors, *, actor: str) -> None:
        """Put vectors in place of those that the records have."""
        await self._call(lambda db: put_vectors(SQLiteWrite(db, EVERYBODY, actor, "reindex", ""), ids, vectors))

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
    return (ids[i : i + CHUNK] for i in range(0, len(ids), CHUNK))


def _history(db: sqlite3.Connection, record_id: str) -> list[Change]:
    past = db.execute("select origin, ended, body from revisions where record = ? order by revision", (record_id,))
    origin = db.execute("select origin from records where id = ?", (record_id,)).fetchall()
    present = (read_record(row) for row in db.execute(select("where id = ?"), (record_id,)))
    return read_changes(past, zip((row[0] for row in origin), present, strict=True))


def _exported(db: sqlite3.Connection, owner: str | None) -> list[str]:
    """The ids of all records, past and present, in the order of owners and ids."""
    sql = """select distinct name, record from (
      select owner, id as record from records union all select owner, record from revisions
    ) r join owners o on o.id = r.owner where ?1 is null or name = ?1 order by name, record"""
    return [row["record"] for row in db.execute(sql, (owner,))]


def _remove(write: SQLiteWrite, ids: Sequence[str] | None) -> None:
    for part in [None] if ids is None else _parts(ids):
        chosen = f"and id in ({', '.join('?' * len(part))})" if part is not None else ""
        where, values = f"owner = ? {chosen}", (write.number, *(part or ()))
        rows = write.db.execute(select(f"where {where}"), values).fetchall()
        write.archive(where, values, forgotten=True)
        write.unindex((row["num"], read_record(row)) for row in rows)
        write.db.execute(f"delete from records where {where}", values)
        write.records += len(rows)
    write.removed = True


def _purge(db: sqlite3.Connection, ids: Sequence[str] | None, write: SQLiteWrite) -> int:
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
