"""The history of SQLite's records, and their export and import: canonical JSON, a line a record."""

import json
import sqlite3
from collections.abc import Sequence
from itertools import pairwise

from pydantic import ValidationError

from memeplex.errors import ImportLineError
from memeplex.storage.records import Change, Line, Origin, Record
from memeplex.storage.sqlite.rows import read_record, select
from memeplex.storage.sqlite.search import write_words
from memeplex.storage.sqlite.write import Write

__all__ = ["export_line", "exported", "history", "load_lines", "read_line"]

_REVISION = "insert into revisions (record, revision, owner, origin, ended, body) values (?, ?, ?, ?, ?, ?)"

FORMAT = 1
"""The version of a line."""


def history(db: sqlite3.Connection, record_id: str) -> list[Change]:
    """What a record has been, and what it is."""
    changes: list[Change] = []
    for row in db.execute("select * from revisions where record = ? order by revision", (record_id,)).fetchall():
        origin, body = Origin.model_validate_json(row["origin"]), Record.model_validate_json(row["body"])
        changes.append(Change(origin=origin, record=body))
        if row["ended"]:
            changes.append(Change(origin=Origin.model_validate_json(row["ended"]), record=None))
    for row in db.execute(select("where id = ?"), (record_id,)).fetchall():
        origin = db.execute("select origin from records where id = ?", (record_id,)).fetchone()[0]
        changes.append(Change(origin=Origin.model_validate_json(origin), record=read_record(row)))
    return changes


def exported(db: sqlite3.Connection, owner: str | None) -> list[str]:
    """The ids of all records, past and present, in the order of owners and ids."""
    sql = """select distinct name, record from (
      select owner, id as record from records union all select owner, record from revisions
    ) r join owners o on o.id = r.owner where ?1 is null or name = ?1 order by name, record"""
    return [row["record"] for row in db.execute(sql, (owner,))]


def export_line(db: sqlite3.Connection, record_id: str) -> str:
    """A record's line."""
    line = Line(format=FORMAT, history=tuple(history(db, record_id)))
    return json.dumps(line.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def read_line(number: int, line: str) -> Line:
    """What a line says.

    Raises:
        ImportLineError: it is truncated, no record, or of a newer version.
    """
    try:
        data = json.loads(line)
    except ValueError as error:
        raise ImportLineError("it is no JSON, or was cut off", line=number) from error
    version = data.get("format") if isinstance(data, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise ImportLineError(
            f"it is of a newer version ({version}, known {FORMAT})", line=number, remedy="upgrade memeplex"
        )
    try:
        return Line.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise ImportLineError(f"it is no record of ours ({where}: {fault['msg']})", line=number) from error


def load_lines(write: Write, lines: Sequence[Line]) -> int:
    """Take in records that are not there yet; gives how many."""
    with write:
        for line in lines:
            was = [change.record for change in line.history if change.record is not None]
            known = "select 1 from records where id = ?1 union all select 1 from revisions where record = ?1"
            if not was or write.db.execute(known, (was[0].id,)).fetchone():
                continue
            owner, now = write.number_of(was[0].owner), line.history[-1]
            if now.record is not None:
                num = write.insert(now.record, now.origin.model_dump_json())
                if not num:
                    continue
                write_words(write.db, owner, [(num, now.record)])
            for change, after in pairwise(line.history):
                if (record := change.record) is not None:
                    ended = after.origin.model_dump_json() if after.record is None else None
                    origin, body = change.origin.model_dump_json(), record.model_dump_json()
                    write.db.execute(_REVISION, (record.id, record.revision, owner, origin, ended, body))
            write.records += 1
        return write.records
