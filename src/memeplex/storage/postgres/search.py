"""Search in PostgreSQL: words by BM25 over a table of terms, vectors by pgvector."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from memeplex.storage.fusion import DISTANCE, Place
from memeplex.storage.postgres.indexing import Builder, indexed_as, usable
from memeplex.storage.postgres.pool import Db, snapshot
from memeplex.storage.records import Found, Query, Record
from memeplex.storage.rows import read_record, select
from memeplex.storage.search import find, known_embedder

__all__ = ["EXACT", "search"]

EXACT = 20_000
"""Records of the owners asked for up to which all their vectors are compared."""

_DEARER = 40
"""A vector met in a graph costs as much as so many that are compared one after the other; measured."""

_LEAST, _MOST = 200, 1000
"""Vectors that a search of a graph keeps in view: with fewer it misses whole clusters, and more it does not allow."""

_PLANNING = """select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
 set_config('enable_mergejoin', 'off', true)"""

# As FTS5 reckons it, of which SQLite's scores are: k1 = 1.2, b = 0.75, and a word that more than half of the records
# have tells next to nothing. Words of one stem count twice. Materialized: else words are counted anew for every hit.
_WORDED = """with total as (select sum(documents)::float8 as n, sum(length)::float8 as l from owners),
 wanted as materialized (select term, (select count(*) from words w where w.term = asked.term)::float8 as df
  from (select stem(given) as term from unnest(%(words)s::text[]) as given) asked),
 weighted as materialized (select term, 0.75::float8 * n / l as relative,
  2.2::float8 * case when n > 2 * df then ln((n - df + 0.5) / (df + 0.5)) else 1e-6 end as idf
  from wanted, total where df > 0)
select record, sum(idf * tf / (tf + 1.2::float8 * (0.25::float8 + relative * w.length))) as score
 from weighted join words w using (term) {join} where w.owner = any(%(owners)s) {kinds}
 group by record order by score desc, record limit %(limit)s"""

# From author to author over the index, since an owner has few of them among many records.
_AUTHORS = """with recursive authors (owner, name) as (
  select o, (select min(author) from records where owner = o and author > '') from unnest(%s::bigint[]) as o union all
  select owner, (select min(author) from records r where r.owner = a.owner and author > name) from authors a
  where name is not null
) select distinct name from authors where name is not null"""

_PLACES = f"""select distinct n.num, n.owner, n.kind, n.source, n.position from records c join records n
 on n.owner = c.owner and n.kind = c.kind and n.source = c.source
 and n.position between c.position - {DISTANCE} and c.position + {DISTANCE} where c.num = any(%s)"""


def search(db: Db, query: Query, builder: Builder) -> Found:
    """The best hits for a query, all read from one state of the store."""
    with snapshot(db):
        # All goes over indexes, from the few rows that are asked for to what belongs to them. The statistics by which
        # the server would see that are not kept, since they hold the very words.
        db.execute(_PLANNING)
        return find(query, _Source(db, query, builder))


class _Source:
    """``search.Source`` inside one transaction."""

    def __init__(self, db: Db, query: Query, builder: Builder) -> None:
        self._db = db
        self._query = query
        self._builder = builder
        sql = "select id, documents from owners where name = any(%s)"
        rows = db.execute(sql, (list(query.owners),)).fetchall()
        self._owners = [row[0] for row in rows]
        self._size = sum(row[1] for row in rows)
        self._vector: np.ndarray | None = None
        self._embedder = 0

    def similar(self, limit: int) -> tuple[dict[int, float], str]:
        rows = self._db.execute("select name, id, dimension from embedders").fetchall()
        known, note = known_embedder(self._query, {name: dimension for name, _, dimension in rows})
        if not known or self._query.vector is None:
            return {}, note
        self._vector = self._query.vector.astype(np.float32, copy=False)
        ((self._embedder, dimension),) = [row[1:] for row in rows if row[0] == self._query.embedder]
        kind = indexed_as(dimension) if self._size > EXACT else ""
        met = self._met(limit) if kind else 0
        if kind and usable(self._db, self._embedder):
            return (self._graph(kind, limit, met) if _DEARER * met < self._size else self._exact(limit)), ""
        if kind:
            self._builder.start(self._embedder, dimension)
            note = f"the index of vectors could not be made: {self._builder.fault}" if self._builder.fault else ""
        return self._exact(limit), note

    def _exact(self, limit: int) -> dict[int, float]:
        # The plain column: the graph is over another expression, so that no planner takes it for this.
        sql = f"""select record, -(vector <#> %(vector)s::vector) as cosine from vectors
         where {self._filter()} order by vector <#> %(vector)s::vector, record limit %(limit)s"""
        return dict(self._db.execute(sql, self._values(limit=limit)).fetchall())

    def _met(self, limit: int) -> int:
        """How many vectors a graph has to go through: the fewer of all are the owners', the more to find as many."""
        ((total,),) = self._db.execute("select sum(documents)::bigint from owners").fetchall()
        return max(_LEAST, 2 * limit, limit * int(total) // int(self._size))

    def _graph(self, kind: str, limit: int, met: int) -> dict[int, float]:
        settings = """select set_config('hnsw.ef_search', %s, true), set_config('hnsw.max_scan_tuples', %s, true),
         set_config('hnsw.iterative_scan', 'relaxed_order', true),
         -- Else the server may rather compare and sort all, of which it thinks too well.
         set_config('enable_sort', 'off', true)"""
        self._db.execute(settings, (str(min(_MOST, met)), str(max(20_000, 20 * met))))
        distance = f"(vector::{kind}) <#> %(vector)s::vector::{kind}"
        sql = f"""select record, -distance from (select record, {distance} as distance from vectors
         where {self._filter()} order by {distance} limit %(limit)s) as near order by distance, record"""
        return dict(self._db.execute(sql, self._values(limit=limit)).fetchall())

    def _filter(self) -> str:
        kinds = "and kind = any(%(kinds)s)" if self._query.kinds else ""
        # Written out: the index is of this embedder's vectors, and a plan has to see that.
        return f"embedder = {self._embedder:d} and owner = any(%(owners)s) {kinds}"

    def _values(self, **more: Any) -> dict[str, Any]:
        return {"vector": self._vector, "owners": self._owners, "kinds": list(self._query.kinds), **more}

    def cosines(self, nums: Sequence[int]) -> dict[int, float]:
        if self._vector is None:
            return {}
        sql = """select record, -(vector <#> %s::vector) from vectors where record = any(%s) and embedder = %s"""
        return dict(self._db.execute(sql, (self._vector, list(nums), self._embedder)).fetchall())

    def worded(self, words: Sequence[str], limit: int) -> dict[int, float]:
        kinds = list(self._query.kinds)
        sql = _WORDED.format(
            join="join records on num = record" if kinds else "", kinds="and kind = any(%(kinds)s)" if kinds else ""
        )
        values = {"words": list(words), "owners": self._owners, "kinds": kinds, "limit": limit}
        return dict(self._db.execute(sql, values).fetchall())

    def authors(self) -> Collection[str]:
        return [name for (name,) in self._db.execute(_AUTHORS, (self._owners,))]

    def written_by(self, nums: Sequence[int], authors: Collection[str]) -> set[int]:
        sql = "select num from records where num = any(%s) and author = any(%s)"
        return {num for (num,) in self._db.execute(sql, (list(nums), list(authors)))}

    def places(self, nums: Sequence[int]) -> dict[int, Place]:
        return {row[0]: (row[1:4], row[4]) for row in self._db.execute(_PLACES, (list(nums),))}

    def records(self, nums: Sequence[int]) -> dict[int, Record]:
        rows = self._db.execute(select("where num = any(%s)"), (list(nums),))
        return {row[0]: read_record(row) for row in rows}

    def numbered(self, record_id: str) -> tuple[int, Record] | None:
        row = self._db.execute(select("where id = %s"), (record_id,)).fetchone()
        return (row[0], read_record(row)) if row is not None else None
