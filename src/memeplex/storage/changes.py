"""What changing calls do, whatever the store: each on one ``Write``, a transaction and an audit row."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from memeplex.errors import ConflictError, EmbedderMismatchError, UserError
from memeplex.storage.lines import Revision, revisions
from memeplex.storage.records import Added, Line, Origin, Record, Vectors, text_key

if TYPE_CHECKING:
    import numpy as np

__all__ = ["EVERYBODY", "Write", "add", "edit", "is_new_embedder", "one_owner", "put_vectors", "take_in"]

EVERYBODY = "*"
"""The owner in the audit row of a call that changes the records of many."""


class Write(Protocol):
    """One changing call. Left without an error and with ``records`` counted, it is committed; else nothing was."""

    owner: str
    origin: Origin
    records: int

    def __enter__(self) -> "Write":
        """Begin the transaction."""
        ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End it."""
        ...

    def present(self, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """The records that are there, with their numbers, by their ids."""
        ...

    def twin(self, record: Record) -> Record | None:
        """The record of the same owner, kind and key."""
        ...

    def insert(self, records: Sequence[Record], origin: str = "") -> list[int]:
        """The numbers of the new rows, 0 for one whose owner and key are there already; made by ``origin``, or now."""
        ...

    def index(self, owner: str, rows: Sequence[tuple[int, Record]]) -> None:
        """Have new records found by their words."""
        ...

    def replace(self, num: int, old: Record, new: Record) -> None:
        """A new revision in place of the present one. A vector of another text is gone."""
        ...

    def ever(self, record_id: str) -> bool:
        """Whether there is or has been such a record."""
        ...

    def archive_revision(self, record: Record, revision: Revision) -> None:
        """Keep a revision that has been."""
        ...

    def embedder(self, vectors: Vectors, count: int, *, replacing: bool = False) -> int:
        """The number of the embedder of so many vectors, as ``is_new_embedder`` allows."""
        ...

    def embed(self, embedder: int, rows: Sequence[tuple[int, Record]], values: "np.ndarray") -> None:
        """Keep vectors in place of those that the records have."""
        ...

    def drop_embedders(self) -> None:
        """Forget embedders that have no vectors any more."""
        ...


def one_owner(records: Sequence[Record]) -> str:
    """Whose the records are.

    Raises:
        UserError: they are not of one.
    """
    owners = {record.owner for record in records}
    if len(owners) != 1:
        raise UserError("records of one owner are added in one call", remedy="make one call for each owner")
    return owners.pop()


def is_new_embedder(vectors: Vectors, count: int, known: Mapping[str, int], *, replacing: bool) -> bool:
    """Whether so many vectors are of an embedder that the store does not know yet; ``known`` are dimensions by name.

    It is the store's only one, unless its vectors are being replaced.

    Raises:
        UserError: there are not as many vectors as records, or they are no numbers.
        EmbedderMismatchError: the store has another embedder, or vectors of another length.
    """
    import numpy as np

    values = vectors.values
    if values.shape != (count, values.shape[-1]) or not np.isfinite(values).all():
        raise UserError(f"{count} records need {count} vectors of finite numbers, not an array of {values.shape}")
    dimension = known.get(vectors.embedder)
    if dimension is not None:
        if dimension != values.shape[1]:
            raise EmbedderMismatchError(
                f"{vectors.embedder} gives {dimension} dimensions in this store, not {values.shape[1]}"
            )
        return False
    if known and not replacing:
        raise EmbedderMismatchError(
            f"the vectors of this store are of {', '.join(sorted(known))}, not of {vectors.embedder}",
            remedy="use that embedder, or embed everything anew: memeplex reindex",
        )
    return True


def add(write: Write, records: Sequence[Record], vectors: Vectors | None) -> Added:
    """Keep records, all or none; those that are there already are left as they are."""
    with write:
        nums = write.insert(records)
        places = [place for place, num in enumerate(nums) if num]
        rows = [(nums[place], records[place]) for place in places]
        new = frozenset(record.id for _, record in rows)
        write.records = len(new)
        write.index(write.owner, rows)
        if vectors is not None:
            number = write.embedder(vectors, len(records))
            write.embed(number, rows, vectors.values if len(rows) == len(records) else vectors.values[places])
        for _, record in rows:
            if record.supersedes:
                _supersede(write, record)
        return Added(tuple(record.id if record.id in new else _known(write, record) for record in records), new)


def _known(write: Write, record: Record) -> str:
    # It stood in the way of this one, so it is there.
    return (write.twin(record) or record).id


def _supersede(write: Write, record: Record) -> None:
    num, old = write.present([record.supersedes or ""]).get(record.supersedes or "", (0, None))
    if old is None or old.owner != write.owner:
        raise UserError(f"there is no record {record.supersedes!r} of {write.owner} to supersede")
    new = old.model_copy(update={"superseded_by": record.id, "revision": old.revision + 1, "updated": write.origin.at})
    write.replace(num, old, new)


def edit(write: Write, record: Record, vectors: Vectors | None) -> Record:
    """Keep a changed record in place of the revision it was made from."""
    with write:
        num, old = write.present([record.id]).get(record.id, (0, None))
        if old is None or old.revision != record.revision:
            raise ConflictError(f"record {record.id} has been changed by somebody else", yours=record, theirs=old)
        if (old.owner, old.kind, old.created) != (record.owner, record.kind, record.created):
            raise UserError(f"record {record.id}: owner, kind and time of creation cannot be edited")
        key = text_key(record.kind, record.text) if old.key == text_key(old.kind, old.text) else old.key
        new = record.model_copy(update={"revision": old.revision + 1, "updated": write.origin.at, "key": key})
        twin = write.twin(new)
        if twin is not None and twin.id != new.id:
            raise ConflictError(f"{new.owner} has a record with this text already", yours=record, theirs=twin)
        write.replace(num, old, new)
        if vectors is not None:
            write.embed(write.embedder(vectors, 1), [(num, new)], vectors.values)
        write.records = 1
        return new


def take_in(write: Write, lines: Sequence[Line]) -> int:
    """Take in records that are not there yet, with their history; gives how many."""
    with write:
        for line in lines:
            was = [change.record for change in line.history if change.record is not None]
            if not was or write.ever(was[0].id):
                continue
            now = line.history[-1]
            if now.record is not None:
                (num,) = write.insert([now.record], now.origin.model_dump_json())
                if not num:
                    continue
                write.index(now.record.owner, [(num, now.record)])
            for record, revision in revisions(line):
                write.archive_revision(record, revision)
            write.records += 1
        return write.records


def put_vectors(write: Write, ids: Sequence[str], vectors: Vectors) -> None:
    """Put vectors in place of those that the records have, of whatever embedder."""
    with write:
        number = write.embedder(vectors, len(ids), replacing=True)
        present = write.present(ids)
        # What was forgotten meanwhile needs no vector.
        places = [place for place, name in enumerate(ids) if name in present]
        write.embed(number, [present[ids[place]] for place in places], vectors.values[places])
        write.records = len(places)
        write.drop_embedders()
