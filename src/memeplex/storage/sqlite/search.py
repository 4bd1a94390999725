"""Search in SQLite: words by FTS5, vectors exactly over arrays in memory, the two rankings fused."""

import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from memeplex.errors import EmbedderMismatchError, UserError
from memeplex.storage.fusion import CANDIDATES, DISTANCE, fuse
from memeplex.storage.records import Found, Hit, Query, Record, Vectors
from memeplex.storage.sqlite.arrays import Array, Arrays
from memeplex.storage.sqlite.rows import read_record, select
from memeplex.storage.terms import query_terms, searchable, terms

__all__ = ["Searcher", "embedder_number", "remove_words", "write_vectors", "write_words"]

_STALE = """select v.record, r.kind, v.vector from vectors v join records r on r.num = v.record
 where v.owner = ? and v.embedder = ? and v.changed > ?"""


def write_words(db: sqlite3.Connection, owner: int, records: Iterable[tuple[int, Record]]) -> None:
    """Index new records."""
    db.executemany(
        "insert into words (rowid, owner, terms) values (?, ?, ?)",
        ((num, f"o{owner}", _searchable(record)) for num, record in records),
    )


def remove_words(db: sqlite3.Connection, owner: int, records: Iterable[tuple[int, Record]]) -> None:
    """Take records out of the index, which has to be told what it was given."""
    db.executemany(
        "insert into words (words, rowid, owner, terms) values ('delete', ?, ?, ?)",
        ((num, f"o{owner}", _searchable(record)) for num, record in records),
    )


def _searchable(record: Record) -> str:
    return searchable(record.text, record.provenance.author, record.created)


def embedder_number(db: sqlite3.Connection, vectors: Vectors, count: int, *, replacing: bool = False) -> int:
    """The embedder's number; it is the store's only one, unless its vectors are being replaced.

    Raises:
        UserError: there are not as many vectors as records, or they are no numbers.
        EmbedderMismatchError: the store has another embedder, or vectors of another length.
    """
    values = vectors.values
    if values.shape != (count, values.shape[-1]) or not np.isfinite(values).all():
        raise UserError(f"{count} records need {count} vectors of finite numbers, not an array of {values.shape}")
    dimension = int(values.shape[1])
    known = {row[1]: row for row in db.execute("select id, name, dimension from embedders")}
    if row := known.get(vectors.embedder):
        if row[2] != dimension:
            raise EmbedderMismatchError(f"{vectors.embedder} gives {row[2]} dimensions in this store, not {dimension}")
        return int(row[0])
    if known and not replacing:
        raise EmbedderMismatchError(
            f"the vectors of this store are of {', '.join(sorted(known))}, not of {vectors.embedder}",
            remedy="use that embedder, or embed everything anew: memeplex reindex",
        )
    sql = "insert into embedders (name, dimension) values (?, ?)"
    return db.execute(sql, (vectors.embedder, dimension)).lastrowid or 0


def write_vectors(
    db: sqlite3.Connection, owner: int, embedder: int, clock: int, nums: Sequence[int], values: np.ndarray
) -> None:
    """Keep vectors, each of length 1, in place of those that the records have."""
    rows = np.ascontiguousarray(values, dtype="<f4")
    db.executemany(
        "insert or replace into vectors (record, owner, embedder, changed, vector) values (?, ?, ?, ?, ?)",
        ((num, owner, embedder, clock, row.tobytes()) for num, row in zip(nums, rows, strict=True)),
    )


class Searcher:
    """Searches one store. ``memory`` bounds the arrays that are held, in bytes."""

    def __init__(self, memory: int) -> None:
        self._arrays = Arrays(memory)
        self._kinds: dict[str, int] = {}

    def search(self, db: sqlite3.Connection, query: Query) -> Found:
        """The best hits for a query, all read from one state of the store."""
        db.execute("begin")
        try:
            sql = f"select id, changed, removed from owners where name in ({_marks(query.owners)})"
            owners = db.execute(sql, query.owners).fetchall()
            similar, arrays, note = self._similar(db, query, owners)
            hits = self._hits(db, query, [row["id"] for row in owners], similar, arrays)
            return Found(hits, note)
        finally:
            db.rollback()

    def _similar(
        self, db: sqlite3.Connection, query: Query, owners: Sequence[sqlite3.Row]
    ) -> tuple[dict[int, float], list[Array], str]:
        """The records nearest by meaning, with their cosines, and the arrays they are in."""
        if query.vector is None:
            return {}, [], ""
        known = {row["name"]: row for row in db.execute("select * from embedders")}
        embedder = known.get(query.embedder)
        if embedder is None:
            others = ", ".join(sorted(known))
            return {}, [], f"searched by words only: the vectors are of {others}; memeplex reindex" if others else ""
        if query.vector.shape != (embedder["dimension"],):
            raise UserError(f"the query's vector has shape {query.vector.shape}, not ({embedder['dimension']},)")
        vector = query.vector.astype(np.float32, copy=False)
        kinds = [self._kind(kind) for kind in query.kinds] or None
        arrays = [self._current(db, owner, embedder) for owner in owners]
        depth = _depth(query) if query.text else query.limit + len(query.exclude)
        best = [pair for array in arrays for pair in array.best(vector, depth, kinds)]
        best.sort(key=lambda pair: (-pair[1], pair[0]))
        self._arrays.trim()
        return dict(best[:depth]), arrays, ""

    def _current(self, db: sqlite3.Connection, owner: sqlite3.Row, embedder: sqlite3.Row) -> Array:
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
            array.put([row[0] for row in rows], [self._kind(row[1]) for row in rows], values)
        array.clock = owner["changed"]
        return array

    def _kind(self, name: str) -> int:
        return self._kinds.setdefault(name, len(self._kinds))

    def _hits(
        self,
        db: sqlite3.Connection,
        query: Query,
        owners: Sequence[int],
        similar: dict[int, float],
        arrays: Sequence[Array],
    ) -> tuple[Hit, ...]:
        worded, scores = {}, dict(similar)
        if query.text and owners:
            authors = _named_authors(db, query, owners)
            worded = _worded(db, query, owners, authors)
            candidates = [*similar, *(num for num in worded if num not in similar)]
            scores = fuse(similar, worded, _places(db, candidates), _written_by(db, candidates, authors))
        wanted = sorted(scores, key=lambda num: (-scores[num], num))[: query.limit + len(query.exclude)]
        rows = db.execute(select(f"where num in ({_marks(wanted)})"), wanted)
        found = {row["num"]: read_record(row) for row in rows}
        _put_current_first(db, query.owners, scores, found)
        order = sorted(found, key=lambda num: (-scores[num], -found[num].created.timestamp(), -num))
        order = [num for num in order if found[num].id not in query.exclude][: query.limit]
        if query.vector is not None:
            for array in arrays:
                similar |= array.cosines(query.vector, [num for num in order if num not in similar])
        return tuple(
            Hit(record=found[num], score=scores[num], similarity=similar.get(num), keyword=worded.get(num))
            for num in order
        )


def _put_current_first(
    db: sqlite3.Connection, owners: Sequence[str], scores: dict[int, float], found: dict[int, Record]
) -> None:
    """What supersedes a hit is a hit as well, and comes before it."""
    stale = [num for num, record in found.items() if record.superseded_by]
    while stale:
        num = stale.pop()
        row = db.execute(select("where id = ?"), (found[num].superseded_by,)).fetchone()
        if row is None or row["owner"] not in owners:
            continue
        newer = row["num"]
        if newer not in found:
            found[newer] = read_record(row)
            if found[newer].superseded_by:
                stale.append(newer)
        # Of equals, the newest comes first.
        scores[newer] = max(scores.get(newer, -math.inf), scores[num])


def _depth(query: Query) -> int:
    return max(CANDIDATES, 2 * query.limit)


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _worded(db: sqlite3.Connection, query: Query, owners: Sequence[int], authors: Sequence[str]) -> dict[int, float]:
    """The records that share words with the query, with their BM25 scores.

    The names of authors are no words here: how much a word tells is reckoned over all owners, to whom it is rare.
    """
    words = query_terms(query.text, [term for author in authors for term in terms(author)])
    if not words:
        return {}
    any_owner = " OR ".join(f"o{owner}" for owner in owners)
    any_word = " OR ".join(f'"{word}"' for word in words)
    match = f"(owner : ({any_owner})) AND (terms : ({any_word}))"
    kinds = f"and kind in ({_marks(query.kinds)})" if query.kinds else ""
    join = "join records on num = words.rowid" if kinds else ""
    sql = f"""select words.rowid, -bm25(words, 0.0, 1.0) as score from words {join}
     where words match ? {kinds} order by score desc, words.rowid limit ?"""
    return dict(db.execute(sql, (match, *query.kinds, _depth(query))).fetchall())


def _named_authors(db: sqlite3.Connection, query: Query, owners: Sequence[int]) -> list[str]:
    """The authors of the owners' records whom the query names."""
    said = set(terms(query.text))
    # From author to author over the index, since an owner has few of them among many records.
    sql = """with recursive authors (name) as (
      select min(author) from records where owner = ?1 and author > '' union all
      select (select min(author) from records where owner = ?1 and author > name) from authors where name is not null
    ) select name from authors where name is not null"""
    names = {row[0] for owner in owners for row in db.execute(sql, (owner,))}
    return sorted(name for name in names if (words := set(terms(name))) and words <= said)


def _written_by(db: sqlite3.Connection, nums: Sequence[int], authors: Sequence[str]) -> set[int]:
    if not authors or not nums:
        return set()
    sql = f"select num from records where num in ({_marks(nums)}) and author in ({_marks(authors)})"
    return {row[0] for row in db.execute(sql, (*nums, *authors))}


def _places(db: sqlite3.Connection, nums: Sequence[int]) -> dict[int, tuple[object, int]]:
    """Where the candidates and their neighbours stand: in which source, and at which position."""
    sql = f"""select distinct n.num, n.owner, n.kind, n.source, n.position from records c join records n
     on n.owner = c.owner and n.kind = c.kind and n.source = c.source
     and n.position between c.position - {DISTANCE} and c.position + {DISTANCE} where c.num in ({_marks(nums)})"""
    return {row[0]: ((row[1], row[2], row[3]), row[4]) for row in db.execute(sql, list(nums))}
