"""Records in PostgreSQL: every changing call is one transaction and one audit row."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

import psycopg
from psycopg.rows import dict_row

from memeplex.errors import StorageError
from memeplex.storage.changes import EVERYBODY, add, edit, one_owner, put_vectors, take_in
from memeplex.storage.lines import Revision, read_changes, read_line, write_line
from memeplex.storage.postgres.indexing import Builder, index_name
from memeplex.storage.postgres.pool import SCHEMA, Db, snapshot
from memeplex.storage.postgres.search import search
from memeplex.storage.postgres.write import PostgresWrite, present
from memeplex.storage.records import Added, Audit, Change, Found, Query, Record, Vectors
from memeplex.storage.rows import read_audit, read_record, select

__all__ = ["Call", "PostgresRecords"]

T = TypeVar("T")

_CHUNK = 500
"""Records of an export that are read at a time."""

_TABLES = ("records", "revisions", "words", "vectors", "audit", "owners")
_OWNED = "owner = (select o.id from owners o where o.name = %s)"


class Call(Protocol):
    """Runs a function on a connection, in one of the store's threads."""

    async def __call__(self, work: Callable[[Db], T]) -> T:
        """What the function gives."""
        ...


class PostgresRecords:
    """``storage.Records`` on the connections of a ``PostgresStore``."""

    def __init__(self, call: Call, builder: Builder) -> None:
        self._call = call
        self._builder = builder

    async def add(
        self, records: Sequence[Record], vectors: Vectors | None = None, *, actor: str, cause: str = ""
    ) -> Added:
        """Keep records, all or none; those that are there already are left as they are."""
        if not records:
            return Added((), frozenset())
        owner = one_owner(records)
        return await self._call(lambda db: add(PostgresWrite(db, owner, actor, "add", cause), records, vectors))

    async def edit(self, record: Record, vectors: Vectors | None = None, *, actor: str, cause: str = "") -> Record:
        """Keep a changed record in place of the revision it was made from."""
        return await self._call(lambda db: edit(PostgresWrite(db, record.owner, actor, "edit", cause), record, vectors))

    async def forget(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Take records out of the memory; their history stays."""

        def work(db: Db) -> int:
            with PostgresWrite(db, owner, actor, "forget", cause) as write:
                _remove(write, ids)
                return write.records

        return await self._call(work)

    async def purge(self, owner: str, ids: Sequence[str] | None = None, *, actor: str, cause: str = "") -> int:
        """Delete records with their history, and write the tables anew without them; everybody waits meanwhile.

        When this returns, no file of a table or an index holds them any more, unless a transaction that was begun
        before could still see them. What a server keeps beside its tables is out of reach: its log of changes (WAL)
        and the archive of that, replicas that lag behind, backups, its own log where that shows statements, and what a
        disk keeps of files that have been removed.
        """

        def work(db: Db) -> int:
            count = _purge(PostgresWrite(db, owner, actor, "purge", cause), ids)
            if count:
                _write_anew(db)
            return count

        return await self._call(work)

    async def get(self, ids: Sequence[str]) -> list[Record]:
        """Records by id, in that order."""
        found = await self._call(lambda db: present(db, ids))
        return [found[name][1] for name in ids if name in found]

    async def page(self, owner: str, kinds: Sequence[str] = (), *, limit: int = 100, after: str = "") -> list[Record]:
        """An owner's records, by their ids."""
        chosen, values = ("and kind = any(%s)", [list(kinds)]) if kinds else ("", [])
        where = f"where {_OWNED} and id > %s {chosen} order by id limit %s"
        return await self._select(where, owner, after, *values, limit)

    async def newest(self, owner: str, kind: str, *, limit: int = 100) -> list[Record]:
        """An owner's newest records of a kind, oldest first."""
        where = f"where {_OWNED} and kind = %s order by id desc limit %s"
        return (await self._select(where, owner, kind, limit))[::-1]

    async def by_key(self, owner: str, kind: str, key: str) -> Record | None:
        """The record of an owner, kind and key, if it is there."""
        rows = await self._select(f"where {_OWNED} and kind = %s and key = %s", owner, kind, key)
        return rows[0] if rows else None

    async def search(self, query: Query) -> Found:
        """The best hits for a query."""
        return await self._call(lambda db: search(db, query, self._builder))

    async def history(self, record_id: str) -> list[Change]:
        """Every revision of a record, the first one first."""
        return (await self._call(lambda db: _histories(db, [record_id])))[record_id]

    async def audit(self, owner: str | None = None, *, limit: int = 100) -> list[Audit]:
        """The newest changes, newest first."""
        chosen, values = ("where owner = %s", [owner]) if owner is not None else ("", [])
        sql = f"select * from audit {chosen} order by id desc limit %s"

        def work(db: Db) -> list[Audit]:
            rows = db.cursor(row_factory=dict_row).execute(sql, [*values, limit])
            return [read_audit(row) for row in rows]

        return await self._call(work)

    async def export(self, owner: str | None = None) -> AsyncIterator[str]:
        """Lines of canonical JSON: every record with its history."""
        ids = await self._call(lambda db: _exported(db, owner))
        for start in range(0, len(ids), _CHUNK):
            part = ids[start : start + _CHUNK]
            for history in (await self._call(lambda db, part=part: _histories(db, part))).values():  # type: ignore[misc]
                yield write_line(history)

    async def load(self, lines: Sequence[str], *, actor: str, cause: str = "") -> int:
        """Take in what ``export`` wrote, all or nothing."""
        parsed = [read_line(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        return await self._call(lambda db: take_in(PostgresWrite(db, EVERYBODY, actor, "import", cause), parsed))

    async def without_vectors(self, embedder: str, *, limit: int = 256) -> list[Record]:
        """Records that the embedder has not embedded yet."""
        where = """where not exists (select from vectors v join embedders e on e.id = v.embedder
         where v.record = num and e.name = %s) order by num limit %s"""
        return await self._select(where, embedder, limit)

    async def set_vectors(self, ids: Sequence[str], vectors: Vectors, *, actor: str) -> None:
        """Put vectors in place of those that the records have."""
        await self._call(lambda db: put_vectors(PostgresWrite(db, EVERYBODY, actor, "reindex", ""), ids, vectors))

    async def owners(self) -> dict[str, dict[str, int]]:
        """All owners, with the number of their records by kind."""
        sql = "select name, kind, count(*) from records join owners on owners.id = owner group by 1, 2 order by 1, 2"
        counts: dict[str, dict[str, int]] = {}
        for name, kind, count in await self._call(lambda db: db.execute(sql).fetchall()):
            counts.setdefault(name, {})[kind] = count
        return counts

    async def _select(self, where: str, *values: object) -> list[Record]:
        return await self._call(lambda db: [read_record(row) for row in db.execute(select(where), values)])


def _histories(db: Db, ids: Sequence[str]) -> dict[str, list[Change]]:
    """What records have been and are, in the order of the ids."""
    past: dict[str, list[Revision]] = {name: [] for name in ids}
    sql = "select record, origin, ended, body from revisions where record = any(%s) order by record, revision"
    with snapshot(db):
        for name, *revision in db.execute(sql, (list(ids),)):
            past[name].append((revision[0], revision[1], revision[2]))
        rows = db.execute("select id, origin from records where id = any(%s)", (list(ids),)).fetchall()
        records = present(db, ids)
    now = {name: [(origin, records[name][1])] for name, origin in rows}
    return {name: read_changes(past[name], now.get(name, [])) for name in ids}


def _exported(db: Db, owner: str | None) -> list[str]:
    """The ids of all records, past and present, in the order of owners and ids."""
    sql = """select name, record from (select owner, id as record from records union select owner, record from revisions
     ) r join owners o on o.id = r.owner where %(owner)s::text is null or name = %(owner)s order by name, record"""
    return [record for _, record in db.execute(sql, {"owner": owner})]


def _remove(write: PostgresWrite, ids: Sequence[str] | None) -> None:
    where, values = (
        ("owner = %s", [write.number]) if ids is None else ("owner = %s and id = any(%s)", [write.number, list(ids)])
    )
    write.archive(where, values, forgotten=True)
    nums = [num for (num,) in write.db.execute(f"delete from records where {where} returning num", values)]
    write.unindex(nums)
    write.records += len(nums)


def _purge(write: PostgresWrite, ids: Sequence[str] | None) -> int:
    with write:
        _remove(write, ids)
        chosen, values = ("", [write.number]) if ids is None else ("and record = any(%s)", [write.number, list(ids)])
        sql = f"""with gone as (delete from revisions where owner = %s {chosen} returning record)
         select count(distinct record) from gone"""
        ((write.records,),) = write.db.execute(sql, values).fetchall()
        if ids is None:
            write.db.execute("delete from audit where owner = %s", (write.owner,))
        return write.records


def _write_anew(db: Db) -> None:
    """What was deleted is still in the files until new ones are written."""
    statement = f"vacuum (full) {', '.join(_TABLES)}"
    notices: list[str] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        notices.append(diagnostic.message_primary or "")

    db.add_notice_handler(note)
    try:
        db.execute("set client_min_messages = warning")
        # A graph takes longest to be written anew. It is made again, beside the work, when it is next needed.
        for (number,) in db.execute("select id from embedders").fetchall():
            db.execute(f"drop index if exists {index_name(number)}")
        db.execute(statement)
    except psycopg.Error as error:
        notices.insert(0, str(error).partition("\n")[0])
    finally:
        db.remove_notice_handler(note)
    if notices:
        raise StorageError(
            f"what was purged is deleted, but still in the server's files: {notices[0]}",
            remedy=f"have the owner of the tables run: set search_path = {SCHEMA}; {statement};",
        )
