"""Records with their vectors: what is kept is embedded, what is looked for is found by words and by meaning."""

from collections.abc import Sequence
from dataclasses import dataclass

from memeplex.embeddings import Embedder, relatedness
from memeplex.errors import EmbedderMismatchError
from memeplex.storage import Added, Found, Hit, Query, Record, Records, Vectors

__all__ = ["Archive", "embedded_text"]


def embedded_text(record: Record) -> str:
    """What of a record is embedded: who says it is part of what it means."""
    author = record.provenance.author
    return f"{author}: {record.text}" if author else record.text


@dataclass(frozen=True, slots=True)
class Archive:
    """The records of a store, with the embedder of those who use it; without one, words alone are searched."""

    records: Records
    embedder: Embedder | None = None

    async def keep(self, records: Sequence[Record], *, actor: str, cause: str = "") -> Added:
        """Keep records of one owner. Where the store has another embedder, they are found by words only."""
        vectors = await self._vectors(records)
        try:
            return await self.records.add(records, vectors, actor=actor, cause=cause)
        except EmbedderMismatchError:
            return await self.records.add(records, actor=actor, cause=cause)

    async def change(self, record: Record, *, actor: str, cause: str = "") -> Record:
        """Keep a changed record, embedded anew; ``ConflictError`` if somebody else has changed it meanwhile."""
        vectors = await self._vectors([record])
        try:
            return await self.records.edit(record, vectors, actor=actor, cause=cause)
        except EmbedderMismatchError:
            return await self.records.edit(record, actor=actor, cause=cause)

    async def find(self, text: str, owners: Sequence[str], *, kinds: Sequence[str] = (), limit: int = 10) -> Found:
        """The best hits for a text."""
        vector, name = None, ""
        if self.embedder is not None:
            vector = (await self.embedder.embed([text], kind="query"))[0]
            name = self.embedder.id
        query = Query(owners=tuple(owners), text=text, vector=vector, embedder=name, kinds=tuple(kinds), limit=limit)
        return await self.records.search(query)

    def relevance(self, hit: Hit) -> float:
        """How far a hit has to do with what was looked for, from 0 to 1, whatever the embedder."""
        if hit.similarity is None or self.embedder is None:
            return max(0.0, min(1.0, hit.score))
        return relatedness(hit.similarity, self.embedder.unrelated)

    async def _vectors(self, records: Sequence[Record]) -> Vectors | None:
        if self.embedder is None:
            return None
        values = await self.embedder.embed([embedded_text(record) for record in records], kind="passage")
        return Vectors(embedder=self.embedder.id, values=values)
