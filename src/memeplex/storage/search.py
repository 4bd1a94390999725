"""From what a store finds, by meaning and by words, to the hits of a query: the same in every store."""

import math
from collections.abc import Collection, Sequence
from typing import Protocol

from memeplex.errors import UserError
from memeplex.storage.fusion import CANDIDATES, Place, fuse
from memeplex.storage.records import Found, Hit, Query, Record
from memeplex.storage.terms import query_terms, terms

__all__ = ["Source", "find", "known_embedder"]


class Source(Protocol):
    """What a store knows of one query's owners, all of it from one state of the store. Records go by their numbers."""

    def similar(self, limit: int) -> tuple[dict[int, float], str]:
        """The records nearest to the query's vector, with their cosines; and what could not be searched."""
        ...

    def cosines(self, nums: Sequence[int]) -> dict[int, float]:
        """The cosines of those records that have a vector."""
        ...

    def worded(self, words: Sequence[str], limit: int) -> dict[int, float]:
        """The records that share words, with their BM25 scores; how much a word tells is reckoned over all owners."""
        ...

    def authors(self) -> Collection[str]:
        """All authors of the owners' records."""
        ...

    def written_by(self, nums: Sequence[int], authors: Collection[str]) -> set[int]:
        """The records among those that are by these authors."""
        ...

    def places(self, nums: Sequence[int]) -> dict[int, Place]:
        """Where those records and their neighbours stand."""
        ...

    def records(self, nums: Sequence[int]) -> dict[int, Record]:
        """Those records."""
        ...

    def numbered(self, record_id: str) -> tuple[int, Record] | None:
        """A record of any owner, with its number."""
        ...


def known_embedder(query: Query, known: dict[str, int]) -> tuple[bool, str]:
    """Whether the store has vectors of the query's embedder; ``known`` are dimensions by name. Else a note, if any.

    Raises:
        UserError: the query's vector has another length.
    """
    if query.vector is None or query.embedder not in known:
        others = ", ".join(sorted(known)) if query.vector is not None else ""
        return False, f"searched by words only: the vectors are of {others}; memeplex reindex" if others else ""
    if query.vector.shape != (known[query.embedder],):
        raise UserError(f"the query's vector has shape {query.vector.shape}, not ({known[query.embedder]},)")
    return True, ""


def find(query: Query, source: Source) -> Found:
    """The best hits for a query."""
    wide = query.limit + len(query.exclude)
    depth = max(CANDIDATES, 2 * query.limit)
    similar, note = source.similar(depth if query.text else wide)
    worded, scores = dict[int, float](), dict(similar)
    if query.text and query.owners:
        named = _named(query, source.authors())
        # The names of authors are no words here: over all owners, to whom they are rare, they would tell much.
        words = query_terms(query.text, [term for author in named for term in terms(author)])
        worded = source.worded(words, depth) if words else {}
        candidates = [*similar, *(num for num in worded if num not in similar)]
        theirs = source.written_by(candidates, named) if named and candidates else set[int]()
        scores = fuse(similar, worded, source.places(candidates) if candidates else {}, theirs)
    found = source.records(sorted(scores, key=lambda num: (-scores[num], num))[:wide])
    _put_current_first(source, query.owners, scores, found)
    order = sorted(found, key=lambda num: (-scores[num], -found[num].created.timestamp(), -num))
    order = [num for num in order if found[num].id not in query.exclude][: query.limit]
    if unseen := [num for num in order if num not in similar]:
        similar |= source.cosines(unseen)
    hits = (
        Hit(record=found[num], score=scores[num], similarity=similar.get(num), keyword=worded.get(num)) for num in order
    )
    return Found(tuple(hits), note)


def _named(query: Query, authors: Collection[str]) -> list[str]:
    """The authors whom the query names."""
    said = set(terms(query.text))
    return sorted(name for name in authors if (words := set(terms(name))) and words <= said)


def _put_current_first(
    source: Source, owners: Sequence[str], scores: dict[int, float], found: dict[int, Record]
) -> None:
    """What supersedes a hit is a hit as well, and comes before it."""
    stale = [num for num, record in found.items() if record.superseded_by]
    while stale:
        num = stale.pop()
        pair = source.numbered(found[num].superseded_by or "")
        if pair is None or pair[1].owner not in owners:
            continue
        newer, record = pair
        if newer not in found:
            found[newer] = record
            if record.superseded_by:
                stale.append(newer)
        # Of equals, the newest comes first.
        scores[newer] = max(scores.get(newer, -math.inf), scores[num])
