"""``memory list, search, edit, forget …``: what agents keep beyond a run."""

import getpass
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memeplex.cli.embedders import opened_archive, words_only_told
from memeplex.cli.output import cut, say, table, tell, tell_json
from memeplex.cli.reading import read_store
from memeplex.errors import UnknownNameError, UserError
from memeplex.messages import one_line
from memeplex.storage import Change, Found, Record, Records, Store

__all__ = [
    "counted",
    "edit_record",
    "export_records",
    "forget_records",
    "import_records",
    "list_records",
    "record_history",
    "search_records",
    "show_record",
]

_TEXT = 70


def actor() -> str:
    """Who changes something by hand, as the audit names them."""
    try:
        return f"human:{getpass.getuser()}"
    except (KeyError, OSError):
        return "human"


def list_records(
    owner: str | None, kinds: Sequence[str], limit: int, after: str, store: str | None, *, as_json: bool
) -> None:
    """An owner's records; with no owner, the owners."""
    if owner is None:
        counts = read_store(store, lambda opened: opened.records.owners())
        if as_json:
            tell_json({"owners": counts})
        elif not counts:
            tell("nothing is kept yet; lifelong memories keep something: memeplex run TEAM --memory lifelong")
        else:
            rows = [(name, sum(by_kind.values()), counted(by_kind)) for name, by_kind in counts.items()]
            table(("owner", "records", "of them"), rows, numbers=("records",))
        return

    async def listed(opened: Store) -> list[Record]:
        await _known_owner(opened, owner)
        return await opened.records.page(owner, kinds, limit=limit, after=after)

    found = read_store(store, listed)
    if as_json:
        tell_json({"owner": owner, "records": [record.model_dump(mode="json") for record in found]})
        return
    table(("id", "kind", "updated", "text"), [_row(record) for record in found])
    if len(found) == limit:
        say(f"there may be more: --after {found[-1].id}")


def search_records(
    text: str,
    owners: Sequence[str],
    kinds: Sequence[str],
    limit: int,
    embedder: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """The records that a text finds, by their words and their meaning."""

    async def searched(opened: Store) -> Found:
        for owner in owners:
            await _known_owner(opened, owner)
        everybody = tuple(owners) or tuple(await opened.records.owners())
        async with opened_archive(opened, embedder) as archive:
            with words_only_told():
                return await archive.search(text, everybody, kinds=kinds, limit=limit)

    found = read_store(store, searched)
    hits = found.hits
    if as_json:
        entries = [{"score": hit.score, "record": hit.record.model_dump(mode="json")} for hit in hits]
        tell_json({"hits": entries, "note": found.note})
    elif not hits:
        tell("nothing was found")
    else:
        rows = [(f"{hit.score:.2f}", hit.record.owner, *_row(hit.record)) for hit in hits]
        table(("score", "owner", "id", "kind", "updated", "text"), rows, numbers=("score",))


def show_record(record_id: str, store: str | None, *, as_json: bool) -> None:
    """One record with all that is known of it."""
    record = read_store(store, lambda opened: _one(opened.records, record_id))
    if as_json:
        tell_json(record.model_dump(mode="json"))
        return
    tell(f"{record.id}, {record.kind} of {record.owner}, revision {record.revision}, trust {record.trust:g}")
    tell(f"created {record.created:%Y-%m-%d %H:%M}, updated {record.updated:%Y-%m-%d %H:%M} UTC")
    origin = {name: value for name, value in record.provenance.model_dump().items() if value}
    tell("from " + ", ".join(f"{name} {value}" for name, value in origin.items()) if origin else "of unknown origin")
    for name, other in (("supersedes", record.supersedes), ("superseded by", record.superseded_by)):
        if other:
            tell(f"{name} {other}")
    tell()
    tell(record.text)
    for name, value in record.payload.items():
        tell(f"{name}: {value}")


def record_history(record_id: str, store: str | None, *, as_json: bool) -> None:
    """Every revision of a record, and who made it."""
    changes: list[Change] = read_store(store, lambda opened: opened.records.history(record_id))
    if not changes:
        raise _unknown(record_id)
    if as_json:
        tell_json({"id": record_id, "changes": [change.model_dump(mode="json") for change in changes]})
        return
    rows = [
        (
            change.record.revision if change.record else "",
            f"{change.origin.at:%Y-%m-%d %H:%M}",
            change.origin.action,
            change.origin.actor,
            cut(change.origin.cause, _TEXT),
            cut(change.record.text, _TEXT) if change.record else "",
        )
        for change in changes
    ]
    table(("revision", "at", "action", "by", "cause", "text"), rows, numbers=("revision",))


def edit_record(
    record_id: str, text: str | None, trust: float | None, cause: str, store: str | None, *, as_json: bool
) -> None:
    """Change a record by hand; its history keeps what it was."""
    if text is None and trust is None:
        raise UserError("nothing is to be changed", remedy="give --text, --trust or both")
    changes: dict[str, Any] = {name: value for name, value in (("text", text), ("trust", trust)) if value is not None}

    async def edited(opened: Store) -> Record:
        record = await _one(opened.records, record_id)
        try:
            changed = Record.model_validate({**record.model_dump(), **changes})
        except ValidationError as error:
            told = one_line(str(error.errors(include_url=False)[0]["msg"]))
            raise UserError(f"record {record_id} cannot be changed so: {told}", remedy="give another text") from error
        return await opened.records.edit(changed, actor=actor(), cause=cause)

    record = read_store(store, edited)
    if as_json:
        tell_json(record.model_dump(mode="json"))
    else:
        tell(f"{record.id} is at revision {record.revision}")


def forget_records(
    owner: str, ids: Sequence[str], cause: str, store: str | None, *, purge: bool, everything: bool, as_json: bool
) -> None:
    """Take records out of a memory, or delete them with their history."""
    if not ids and not everything:
        raise UserError("no record is named", remedy="give ids, or --all for everything that the owner has")

    async def done(opened: Store) -> int:
        chosen = None if everything else list(ids)
        act = opened.records.purge if purge else opened.records.forget
        count = await act(owner, chosen, actor=actor(), cause=cause)
        if not count:
            await _known_owner(opened, owner)
        return count

    count = read_store(store, done)
    if as_json:
        tell_json({"owner": owner, "purged" if purge else "forgotten": count})
    else:
        tell(f"{count} records {'purged, with their history' if purge else 'forgotten; their history is kept'}")


def export_records(owner: str | None, out: str | None, store: str | None) -> None:
    """Canonical JSON, a line a record, to a file or to standard output."""
    if out is None:
        count = _exported(owner, store, tell)
    else:
        path = Path(out)
        part = path.with_name(f"{path.name}.part")
        try:
            with part.open("w", encoding="utf-8") as file:
                count = _exported(owner, store, lambda line: file.write(f"{line}\n"))
            # Only whole: an older export is not lost to one that failed.
            part.replace(path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}", remedy="choose another file") from error
        finally:
            part.unlink(missing_ok=True)
    say(f"{count} records exported")


def _exported(owner: str | None, store: str | None, write: Callable[[str], object]) -> int:
    async def work(opened: Store) -> int:
        if owner is not None:
            await _known_owner(opened, owner)
        count = 0
        async for line in opened.records.export(owner):
            write(line)
            count += 1
        return count

    return read_store(store, work)


def import_records(path: str, store: str | None, *, as_json: bool) -> None:
    """Take in an export; what is there already is left as it is."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text", remedy="give a file that memory export wrote") from error
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}", remedy="give a file that memory export wrote"
        ) from error
    # Not splitlines: a text may hold other line breaks, which JSON lets stand.
    lines = [line for line in text.split("\n") if line.strip()]

    async def loaded(opened: Store) -> int:
        return await opened.records.load(lines, actor=actor(), cause=f"from {Path(path).name}")

    count = read_store(store, loaded, make=True)
    if as_json:
        tell_json({"imported": count, "known": len(lines) - count})
    else:
        tell(f"{count} records imported, {len(lines) - count} were there already")


def _row(record: Record) -> tuple[str, ...]:
    stale = " (superseded)" if record.superseded_by else ""
    return record.id, record.kind + stale, f"{record.updated:%Y-%m-%d %H:%M}", cut(record.text, _TEXT)


def counted(counts: dict[str, int]) -> str:
    """How many of each."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


async def _one(records: Records, record_id: str) -> Record:
    found = await records.get([record_id])
    if not found:
        raise _unknown(record_id)
    return found[0]


def _unknown(record_id: str) -> UnknownNameError:
    return UnknownNameError("record", record_id, remedy="memeplex memory list OWNER, or memory search, gives the ids")


async def _known_owner(store: Store, owner: str) -> None:
    owners = list(await store.records.owners())
    if owner not in owners:
        raise UnknownNameError("owner of records", owner, owners[:20], remedy="" if owners else "nothing is kept yet")
