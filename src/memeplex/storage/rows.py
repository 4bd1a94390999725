"""Runs, turns, memories and records as rows of a database, and back: the same columns in every store."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from memeplex.errors import StorageError, UnknownNameError, UserError
from memeplex.messages import Outcome, Task, Turn
from memeplex.storage.base import MemoryVersion, Run, Runs
from memeplex.storage.damage import UNREADABLE, damaged, illegible, legible
from memeplex.storage.records import Audit, Provenance, Record

__all__ = [
    "FIELDS",
    "RUN_FIELDS",
    "read_audit",
    "read_record",
    "read_runs",
    "read_turns",
    "read_versions",
    "record_row",
    "run_row",
    "select",
    "single_run",
]

FIELDS = "id, kind, key, text, payload, provenance, trust, supersedes, superseded_by, revision, created, updated"

_JSON = json.JSONEncoder(ensure_ascii=False)
_ANY = Record(owner="anybody", kind="any", text="any")

RUN_FIELDS = "id, team, status, model, seed, spec, task, software, created, updated"


def run_row(run: Run) -> tuple[Any, ...]:
    """The values of ``RUN_FIELDS``; a new run has no outcome."""
    row = (run.id, run.team, run.status, run.model, run.seed, json.dumps(run.spec))
    return (*row, run.task.model_dump_json(), run.software, run.created.isoformat(), run.updated.isoformat())


def _run(where: object, row: Mapping[str, Any]) -> Run:
    fields = dict(row)
    with legible(where, f"run {fields['id']}"):
        fields["spec"] = json.loads(fields["spec"])
        fields["task"] = Task.model_validate_json(fields["task"])
        fields["outcome"] = Outcome.model_validate_json(fields["outcome"]) if fields["outcome"] else None
        return Run.model_validate(fields)


def read_runs(where: object, rows: Iterable[Mapping[str, Any]]) -> Runs:
    """Runs out of whole rows, and which of them cannot be read."""
    whole: list[Run] = []
    faults: dict[str, StorageError] = {}
    for row in rows:
        try:
            whole.append(_run(where, row))
        except StorageError as error:
            faults[str(row["id"])] = error
    return Runs(whole, faults)


def single_run(where: object, run_id: str, rows: Sequence[Mapping[str, Any]]) -> Run:
    """The run that was asked for, out of up to two whose ids begin so; one of exactly that id is the first."""
    if len(rows) > 1 and rows[0]["id"] != run_id:
        raise UserError(f"several runs begin with {run_id!r}", remedy="give more of the id; memeplex runs lists them")
    if not rows:
        raise UnknownNameError("run", run_id, remedy="memeplex runs lists what this store holds")
    return _run(where, rows[0])


def read_turns(where: object, run_id: str, rows: Sequence[tuple[int, str]]) -> list[Turn]:
    """Turns out of their indices and bodies, in order; none may be missing."""
    for expected, (index, _) in enumerate(rows):
        if index != expected:
            raise damaged(where, f"turn {expected} of run {run_id} is missing")
    with legible(where, f"a turn of run {run_id}"):
        return [Turn.model_validate_json(body) for _, body in rows]


def read_versions(where: object, run_id: str, bodies: Iterable[str]) -> list[MemoryVersion]:
    """Versions of memories out of their bodies."""
    with legible(where, f"a memory of run {run_id}"):
        return [MemoryVersion.model_validate_json(body) for body in bodies]


def record_row(record: Record) -> tuple[Any, ...]:
    """The values of ``FIELDS``."""
    return (
        record.id,
        record.kind,
        record.key,
        record.text,
        _JSON.encode(record.payload),
        record.provenance.model_dump_json(exclude_defaults=True),
        record.trust,
        record.supersedes,
        record.superseded_by,
        record.revision,
        record.created.isoformat(),
        record.updated.isoformat(),
    )


def read_record(row: Iterable[Any]) -> Record:
    """A record out of its row. Columns are typed by the database; what they hold as JSON is looked at here.

    Raises:
        StorageError: it is damaged.
    """
    _, name, kind, key, text, payload, provenance, trust, old, new, revision, created, updated, owner = row
    try:
        plain = json.loads(payload)
        if not isinstance(plain, dict):
            raise ValueError("payload is no object")
        fields = {
            "id": name,
            "owner": owner,
            "kind": kind,
            "text": text,
            "payload": plain,
            "provenance": Provenance.model_validate_json(provenance),
            "trust": trust,
            "key": key,
            "supersedes": old,
            "superseded_by": new,
            "revision": revision,
            "created": datetime.fromisoformat(created),
            "updated": datetime.fromisoformat(updated),
        }
    except UNREADABLE as error:
        raise illegible("", f"record {name}", error) from error
    # Not validated, which would take as long as the search itself; and a copy is made twice as fast as a new one.
    return _ANY.model_copy(update=fields)


def read_audit(row: Mapping[str, Any]) -> Audit:
    """A changing call out of its row."""
    with legible("", "a change in the audit"):
        return Audit.model_validate(row)


def select(where: str) -> str:
    """A statement that reads records with the names of their owners."""
    return f"select num, {FIELDS}, (select name from owners o where o.id = owner) as owner from records {where}"
