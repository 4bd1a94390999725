"""Records as rows of SQLite, and back."""

import json
import sqlite3
from datetime import datetime
from typing import Any

from memeplex.storage.records import Provenance, Record

__all__ = ["FIELDS", "read_record", "record_row", "select"]

FIELDS = "id, kind, key, text, payload, provenance, trust, supersedes, superseded_by, revision, created, updated"
_NAMES = (*FIELDS.split(", "), "owner")


def record_row(record: Record) -> tuple[Any, ...]:
    """The values of ``FIELDS``."""
    return (
        record.id,
        record.kind,
        record.key,
        record.text,
        json.dumps(record.payload, ensure_ascii=False),
        record.provenance.model_dump_json(exclude_defaults=True),
        record.trust,
        record.supersedes,
        record.superseded_by,
        record.revision,
        record.created.isoformat(),
        record.updated.isoformat(),
    )


def read_record(row: sqlite3.Row) -> Record:
    """A record out of its row. Columns are typed by the database; what they hold as JSON is looked at here."""
    fields: dict[str, Any] = dict(zip(_NAMES, tuple(row)[1:], strict=True))
    payload, provenance = json.loads(fields["payload"]), json.loads(fields["provenance"])
    if not isinstance(payload, dict):
        raise ValueError("payload is no object")
    fields |= {
        "payload": payload,
        "provenance": Provenance.model_validate(provenance) if provenance else Provenance(),
        "created": datetime.fromisoformat(fields["created"]),
        "updated": datetime.fromisoformat(fields["updated"]),
    }
    # Constructed, not validated: validation would take as long as the search itself.
    return Record.model_construct(**fields)


def select(where: str) -> str:
    """A statement that reads records with the names of their owners."""
    return f"select num, {FIELDS}, (select name from owners o where o.id = owner) as owner from records {where}"
