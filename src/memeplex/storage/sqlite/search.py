"""Search in SQLite: words by FTS5, vectors exactly over arrays in memory."""

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from memeplex.storage.fusion import DISTANCE, Place
from memeplex.storage.records import Found, Query, Record
from memeplex.storage.rows import read_record, select
from memeplex.storage.search import find, known_embedder
from memeplex.storage.sqlite.arrays import Array, Arrays

__all__ = ["Searcher"]

_OWNERS = """select id, removed,
 max(changed, coalesce((select max(changed) from vectors v where v.owner = owners.id), 0)) as changed
 from owners where name in ({})"""
_STALE = """select v.record, r.kind, v.vector from vectors v join records r on r.num = v.record
 where v.owner = ? and v.embedder = ? and v.changed > ?"""


class Searcher:
    """Searches one store. ``memory`` bounds the arrays that are held, in bytes."""

    def __init__(self, memory: int) -> None:
        self._arrays = Arrays(memory)
        self._kinds: dict[str, int] = {}

    def search(self, db: sqlite3.Connection, query: Query) -> Found:
        """The best hits for a query, all read from one state of the store."""
        db.execute("begin")
        try:
            return find(query, _Source(db, query, self))
        finally:
            db.rollback()

    def current(self, db: sqlite3.Connection, owner: sqlite3.Row, embedder: sqlite3.Row) -> Array:
        """An owner's array, brought up to the state of the store that this transaction sees."""
        array = self._arrays.of(owner["id"], embedder["id"], embedder["dimension"])
        if array.clock == owner["changed"]:
            return array
        if len(array) and owner["removed"] > array.clock:
            sql = "select record from vectors where owner = ? and embedder = ?"
            present = {row[0] for row in db.execute(sql, (owner["id"], embedder["id"]))}
            array.remove([num for num in array.nums if num not in present])
        rows = db.execute(_STALE, (owner["id"], embedder["id"], array.clock)).fetchall()
        if rows:
            values = np.frombuffer(b"".join(row[2] for row in rows), dtype="<f4").reshape(len(rows), -1)
            array.put([row[0] for row in rows], [self.kind(row[1]) for row in rows], values)
        array.clock = owner["changed"]
        return array

    def kind(self, name: str) -> int:
        """The number by which arrays know a kind."""
        return self._kinds.setdefault(name, len(self._kinds))

    def trim(self) -> None:
        """Drop what goes beyond the budget."""
        self._arrays.trim()


class _Source:
    """``search.Source`` inside one transaction."""

    def __init__(self, db: sqlite3.Connection, query: Query, searcher: Searcher) -> None:
        self._db = db
        self._query = query
        self._searcher = searcher
        self._owners = db.execute(_OWNERS.format(_marks(query.owners)), query.owners).fetchall()
        self._vector: np.ndarray | None = None
        self._in: list[Array] = []

    def similar(self, limit: int) -> tuple[dict[int, float], str]:
        known = {row["name"]: row for row in self._db.execute("select * from embedders")}
        usable, note = known_embedder(self._query, {name: row["dimension"] for name, row in known.items()})
        if not usable or self._query.vector is None:
            return {}, note
        self._vector = self._query.vector.astype(np.float32, copy=False)
        embedder = known[self._query.embedder]
        self._in = [self._searcher.current(self._db, owner, embedder) for owner in self._owners]
        kinds = [self._searcher.kind(kind) for kind in self._query.kinds] or None
        best = [pair for array in self._in for pair in array.best(self._vector, limit, kinds)]
        best.sort(key=lambda pair: (-pair[1], pair[0]))
        self._searcher.trim()
        return dict(best[:limit]), ""

    def cosines(self, nums: Sequence[int]) -> dict[int, float]:
        found: dict[int, float] = {}
        if self._vector is not None:
            for array in self._in:
                found |= array.cosines(self._vector, nums)
        return found

    def worded(self, words: Sequence[str], limit: int) -> dict[int, float]:
        if not self._owners:
            return {}
        kinds = self._query.kinds
        any_owner = " OR ".join(f"o{owner['id']}" for owner in self._owners)
        any_word = " OR ".join(f'"{word}"' for word in words)
        match = f"(owner : ({any_owner})) AND (terms : ({any_word}))"
        join = "join records on num = words.rowid" if kinds else ""
        sql = f"""select words.rowid, -bm25(words, 0.0, 1.0) as score from words {join}
         where words match ? {f"and kind in ({_marks(kinds)})" if kinds else ""}
         order by score desc, words.rowid limit ?"""
        return dict(self._db.execute(sql, (match, *kinds, limit)).fetchall())

    def authors(self) -> Collection[str]:
        # From author to author over the index, since an owner has few of them among many records.
        sql = """with recursive authors (name) as (
          select min(author) from records where owner = ?1 and author > ''
          union all select (select min(author) from records where owner = ?1 and author > name and author > '')
          from authors where name is not null
        ) select name from authors where name is not null"""
        return {row[0] for owner in self._owners for row in self._db.execute(sql, (owner["id"],))}

    def written_by(self, nums: Sequence[int], authors: Collection[str]) -> set[int]:
        sql = f"select num from records where num in ({_marks(nums)}) and author in ({_marks(authors)})"
        return {row[0] for row in self._db.execute(sql, (*nums, *authors))}

    def places(self, nums: Sequence[int]) -> dict[int, Place]:
        sql = f"""select distinct n.num, n.owner, n.kind, n.source, n.position from records c join records n
         on n.owner = c.owner and n.kind = c.kind and n.source = c.source
         and n.position between c.position - {DISTANCE} and c.position + {DISTANCE} where c.num in ({_marks(nums)})"""
        return {row[0]: ((row[1], row[2], row[3]), row[4]) for row in self._db.execute(sql, list(nums))}

    def records(self, nums: Sequence[int]) -> dict[int, Record]:
        rows = self._db.execute(select(f"where num in ({_marks(nums)})"), list(nums))
        return {row["num"]: read_record(row) for row in rows}

    def numbered(self, record_id: str) -> tuple[int, Record] | None:
        row = self._db.execute(select("where id = ?"), (record_id,)).fetchone()
        return (row["num"], read_record(row)) if row is not None else None


def _marks(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))
