"""Export and import of records: canonical JSON, a line a record, the same bytes from every store."""

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise

from pydantic import ValidationError

from memeplex.errors import ImportLineError
from memeplex.storage.damage import legible
from memeplex.storage.records import Change, Line, Origin, Record

__all__ = ["FORMAT", "Revision", "read_changes", "read_line", "revisions", "write_line"]

FORMAT = 1
"""The version of a line."""

Revision = tuple[str, str | None, str]
"""A revision as a store keeps it: the call that made it, the one that forgot it, and its body, all JSON."""


def read_changes(past: Iterable[Revision], present: Iterable[tuple[str, Record]]) -> list[Change]:
    """What a record has been, out of its revisions, and what it is, with the call that made it so."""
    changes: list[Change] = []
    with legible("", "the history of a record"):
        for origin, ended, body in past:
            changes.append(Change(origin=Origin.model_validate_json(origin), record=Record.model_validate_json(body)))
            if ended:
                changes.append(Change(origin=Origin.model_validate_json(ended), record=None))
        changes += [Change(origin=Origin.model_validate_json(origin), record=record) for origin, record in present]
    return changes


def revisions(line: Line) -> Iterator[tuple[Record, Revision]]:
    """The revisions of a line that have been edited away or forgotten."""
    for change, after in pairwise(line.history):
        if (record := change.record) is not None:
            ended = after.origin.model_dump_json() if after.record is None else None
            yield record, (change.origin.model_dump_json(), ended, record.model_dump_json())


def write_line(history: Iterable[Change]) -> str:
    """A record's line."""
    with legible("", "the history of a record"):
        line = Line(format=FORMAT, history=tuple(history))
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
