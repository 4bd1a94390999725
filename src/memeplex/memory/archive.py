"""Records with their vectors: what is kept is embedded, what is looked for is found by words and by meaning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, TypeAlias

from pydantic import PlainValidator

from memeplex.embeddings import Embedder, chosen, create_embedder, relatedness
from memeplex.errors import ConflictError, EmbedderMismatchError, MemeplexError, ModelError, UserError
from memeplex.memory.notes import words
from memeplex.messages import clean_text, one_line
from memeplex.storage import Added, Found, Hit, Query, Record, Records, Vectors
from memeplex.storage.records import LONGEST
from memeplex.telemetry import EmbeddingFailed, emit

__all__ = ["Archive", "EmbedderChoice", "embedded_text", "embedder_of", "record_text", "shared_embedder"]


def _checked(value: Any) -> Any:
    if not (value is None or isinstance(value, str) or hasattr(value, "embed")):
        raise ValueError("is neither an embedder nor the name of one")
    return value


EmbedderChoice: TypeAlias = Annotated[Embedder | str | None, PlainValidator(_checked)]
"""An argument of a memory: an embedder, the name of one that needs no options, or ``None`` for words alone."""


def record_text(text: str) -> str:
    """A text as a record can hold it: not longer than it may be, and never empty."""
    cut = clean_text(text)[:LONGEST]
    return cut if cut.strip() else "(no text)"


def embedded_text(record: Record) -> str:
    """What of a record is embedded: who says it is part of what it means."""
    author = record.provenance.author
    return f"{author}: {record.text}" if author else record.text


@cache
def shared_embedder(name: str) -> Embedder | None:
    """One embedder of a name, without options, for all memories of a process."""
    wanted = chosen(name)
    return None if wanted is None else create_embedder(wanted)


def embedder_of(choice: Embedder | str | None) -> Embedder | None:
    """What an ``EmbedderChoice`` stands for.

    Raises:
        UserError: nothing has that name.
    """
    return shared_embedder(choice) if isinstance(choice, str) else choice


@dataclass(frozen=True, slots=True)
class Archive:
    """The records of a store, with the embedder of those who use it; without one, words alone are searched.

    An embedder that fails, or that is not the one of the store's vectors, loses nothing: what is kept then has no
    vector until it is embedded anew, what is looked for is found by its words, and an event says so.
    """

    records: Records
    embedder: Embedder | None = None

    async def keep(self, records: Sequence[Record], *, actor: str, cause: str = "") -> Added:
        """Keep records of one owner. Where the store has another embedder, they are found by words only."""
        vectors = await self._vectors(records)
        try:
            return await self.records.add(records, vectors, actor=actor, cause=cause)
        except EmbedderMismatchError as error:
            self._failed(error)
            return await self.records.add(records, actor=actor, cause=cause)

    async def change(self, record: Record, *, actor: str, cause: str = "") -> Record:
        """Keep a changed record, embedded anew; ``ConflictError`` if somebody else has changed it meanwhile."""
        vectors = await self._vectors([record])
        try:
            return await self.records.edit(record, vectors, actor=actor, cause=cause)
        except EmbedderMismatchError as error:
            self._failed(error)
            return await self.records.edit(record, actor=actor, cause=cause)

    async def revise(
        self, record_id: str, changed: Callable[[Record], Record | None], *, actor: str, cause: str = ""
    ) -> Record | None:
        """Change a record's payload; where somebody else was first, as it is after that.

        ``changed`` gives the new record, or ``None`` where there is nothing to change. Gives the record as it now is;
        ``None`` when there is none.
        """
        while found := await self.records.get([record_id]):
            if (new := changed(found[0])) is None:
                return found[0]
            try:
                return await self.records.edit(new, actor=actor, cause=cause)
            except ConflictError:
                continue
        return None

    async def search(self, text: str, owners: Sequence[str], *, kinds: Sequence[str] = (), limit: int = 10) -> Found:
        """The best hits for a text; its ``note`` says why words alone were searched, where meaning should have been."""
        vector, name, note = None, "", ""
        if self.embedder is not None:
            try:
                vector, name = (await self.embedder.embed([text], kind="query"))[0], self.embedder.id
            except ModelError as error:
                note = self._failed(error)
        query = Query(owners=tuple(owners), text=text, vector=vector, embedder=name, kinds=tuple(kinds), limit=limit)
        try:
            found = await self.records.search(query)
        except UserError as error:
            if vector is None:
                raise
            # The model behind that name has changed: its vectors are of another length now.
            note = self._failed(error)
            found = await self.records.search(replace(query, vector=None))
        if found.note:
            note = found.note
            emit(EmbeddingFailed(embedder=name, cause=note))
        return Found(found.hits, note)

    async def find(
        self,
        text: str,
        owners: Sequence[str],
        *,
        kinds: Sequence[str] = (),
        limit: int = 10,
        superseded: bool = False,
    ) -> Found:
        """As ``search``, without what is superseded; with ``superseded`` these too, behind the current one."""
        found = await self.search(text, owners, kinds=kinds, limit=limit)
        hits = (hit for hit in found.hits if superseded or hit.record.superseded_by is None)
        return Found(tuple(hits), found.note)

    def relevance(self, hit: Hit, text: str) -> float:
        """How far a hit has to do with the text that was looked for, from 0 to 1, whatever the embedder.

        Without vectors, it is the cosine of the two sets of words: a search's own score says nothing beyond it.
        """
        if hit.similarity is not None and self.embedder is not None:
            return relatedness(hit.similarity, self.embedder.unrelated)
        wanted, held = words(text), words(hit.record.text)
        return float(len(wanted & held) / (len(wanted) * len(held)) ** 0.5) if wanted and held else 0.0

    async def _vectors(self, records: Sequence[Record]) -> Vectors | None:
        if self.embedder is None:
            return None
        try:
            values = await self.embedder.embed([embedded_text(record) for record in records], kind="passage")
        except ModelError as error:
            self._failed(error)
            return None
        return Vectors(embedder=self.embedder.id, values=values)

    def _failed(self, error: MemeplexError) -> str:
        cause = one_line(f"{error}; {error.remedy}" if error.remedy else str(error))
        emit(EmbeddingFailed(embedder=self.embedder.id if self.embedder else "", cause=cause))
        return cause
