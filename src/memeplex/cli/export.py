"""``--out``: the results of a run as files, each complete or not there at all."""

import os
import tempfile
from pathlib import Path
from typing import Any

from memeplex.cli.output import clean, escaped
from memeplex.cli.report import Report, json_text
from memeplex.errors import UserError

__all__ = ["prepare_folder", "write_results"]

_SOMETIMES = {"document.json", "specification.json"}
_REMEDY = "choose another folder with --out"


def prepare_folder(folder: str | None) -> None:
    """Make sure, before a long run, that its results will find a place.

    Raises:
        UserError: the folder cannot be made or written.
    """
    if folder is None:
        return
    path = _folder(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}", remedy=_REMEDY) from error


def _folder(given: str) -> Path:
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise UserError(f"cannot write to {given}: the home folder is not known", remedy=_REMEDY) from error


def write_results(folder: str | None, report: Report, resume: str) -> None:
    """Write everything that there is; with no folder, nothing.

    Raises:
        UserError: a file cannot be written; the run itself is safe in the store.
    """
    if folder is None:
        return
    path = _folder(folder)
    try:
        made = _files(report)
        for name, text in made.items():
            _replace(path / name, text)
        for name in _SOMETIMES - made.keys():
            # Of an earlier run: beside this one's files it would be taken for this one's.
            (path / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: {error.strerror}", remedy=f"the run is kept: {resume} --out DIR"
        ) from error


def _files(report: Report) -> dict[str, str]:
    document = report.document
    made = {
        "design.md": clean(f"# {report.run.team}\n\n{report.text}\n"),
        "transcript.jsonl": "".join(
            f"{escaped(turn.model_dump_json())}\n" for turn in report.result.conversation.turns
        ),
        "memories.json": _json(report.memories),
        "run.json": _json({**report.as_json(), "spec": report.run.spec, "task": report.run.task.text}),
    }
    if document is not None:
        made["document.json"] = _json(document)
    if isinstance(document, dict) and "specification" in document:
        made["specification.json"] = _json(document["specification"])
    return made


def _json(value: Any) -> str:
    return escaped(json_text(value)) + "\n"


def _umask() -> int:
    # It can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _replace(path: Path, text: str) -> None:
    """Under the final name only when it is whole."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
