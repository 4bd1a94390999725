"""Printing: results to standard output, all else to standard error, and no text of a model as it came.

What a model wrote could hold escape sequences that move the cursor, or marks that turn the reading direction. All
text goes through ``clean``.
"""

import errno
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from memeplex.errors import MemeplexError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ReaderGoneError",
    "clean",
    "console",
    "cut",
    "escaped",
    "lost_output",
    "prepare_streams",
    "say",
    "show_error",
    "silence",
    "table",
    "tell",
    "tell_json",
]

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\u200e\u200f\ud800-\udfff\U000e0000-\U000e007f]"
)
_WIDE = 160
_LOST = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def clean(text: str, *, one_line: bool = False) -> str:
    """Text that a terminal prints as it stands: no escape sequence, no control, no turn of direction."""
    text = _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))
    return " ".join(text.split()) if one_line else text


def cut(text: str, most: int) -> str:
    """The beginning of a text, on one line and of so many characters at most."""
    text = clean(text, one_line=True)
    return text if len(text) <= most else f"{text[: most - 1]}…"


class ReaderGoneError(Exception):
    """Whoever read our output has closed it. Not an ``OSError``, which Typer and Rich would take for a failure."""


def prepare_streams() -> None:
    """A terminal that lacks a character gets a stand-in for it, not an exception."""
    # Closed by whoever started us, as in ">&-": then Python has none.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def silence(*streams: TextIO) -> None:
    """Whatever a stream can no longer take goes nowhere, without a word, and the interpreter ends in peace."""
    for stream in streams or (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def lost_output(error: OSError) -> MemeplexError | None:
    """The error of an output that takes nothing more, as on a full disk; none when it is the error of a file."""
    if error.filename is not None or error.errno not in _LOST:
        return None
    remedy = "free some space, or send it elsewhere; what a run has said is in its store"
    return MemeplexError(f"the output cannot be written: {error.strerror}", remedy=remedy)


def tell(text: str = "") -> None:
    """A line of the result, to standard output."""
    _write(sys.stdout, text)


def tell_json(data: Any) -> None:
    """A result for machines: one JSON object, the only thing on standard output."""
    text = escaped(json.dumps(data, ensure_ascii=False, indent=2, default=str))
    if not _holds(sys.stdout, text):
        text = json.dumps(data, indent=2, default=str)
    _write(sys.stdout, text, raw=True)


def escaped(text: str) -> str:
    """JSON in which what a terminal may obey is written as an escape, which says the same to a machine."""
    return _CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _holds(stream: TextIO, text: str) -> bool:
    """Whether the stream's encoding has all characters of a text."""
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def say(text: str) -> None:
    """A line beside the result, to standard error. Where that is full there is nobody to tell, and work goes on."""
    try:
        _write(sys.stderr, text)
    except OSError:
        silence(sys.stderr)


def _write(stream: TextIO, text: str, *, raw: bool = False) -> None:
    try:
        stream.write((text if raw else clean(text)) + "\n")
        stream.flush()
    except BrokenPipeError as error:
        raise ReaderGoneError from error


def show_error(message: str, remedy: str, code: int, *, kind: str, as_json: bool, **more: object) -> None:
    """One line on what went wrong and one on what to do; with ``--json`` as an object on standard output too."""
    message, remedy = clean(message, one_line=True), clean(remedy, one_line=True)
    if as_json:
        error = {"type": kind, "message": message, "remedy": remedy, "exit_code": code, **more}
        # Where even this cannot be written, standard error has the same.
        with suppress(OSError):
            tell_json({"error": error})
    say(f"error: {message}")
    if remedy:
        say(f"remedy: {remedy}")


def console(stream: TextIO | None = None) -> "Console":
    """A Rich console that takes no text for markup; wide where nobody looks, so that nothing is cut."""
    from rich.console import Console

    stream = stream or sys.stdout
    width = None if stream.isatty() else _WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> None:
    """A table on standard output; the columns named in ``numbers`` stand to the right."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        # What stands first is an id or a name, to be copied: it is never folded.
        made.add_column(
            title,
            justify="right" if title in numbers else "left",
            overflow="fold",
            no_wrap=title == titles[0],
        )
    for row in rows:
        made.add_row(*(Text(clean(str(cell))) for cell in row))
    shown = console()
    with shown.capture() as captured:
        shown.print(made)
    _write(sys.stdout, captured.get().removesuffix("\n"), raw=True)
