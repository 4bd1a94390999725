"""What is stored and is not what was written: one error for every store."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from memeplex.errors import DamagedError

__all__ = ["UNREADABLE", "damaged", "illegible", "legible", "repairing"]

UNREADABLE = (TypeError, ValueError, RecursionError)
"""What reading raises. JSON that the database accepts and Python does not has endless digits, or endless nesting; in a
damaged file there may be anything, of any type."""


def repairing(path: Path) -> str:
    """The command that repairs a store in a file."""
    return f"memeplex doctor --repair --store {shlex.quote(str(path))}"


def damaged(where: object, what: str) -> DamagedError:
    """The error of a record that is not what was written; ``where`` is the store's path or URL, if it is known."""
    instead = f"{repairing(where)} recovers what is whole" if isinstance(where, Path) else "choose another with --store"
    return DamagedError(
        f"store {where}: {what}" if where else what,
        what=what,
        remedy=f"it is damaged, or of another version of memeplex; restore a copy, or {instead}",
    )


def illegible(where: object, what: str, error: Exception) -> DamagedError:
    """The error of what is whole for the database and still not one of ours."""
    if not isinstance(error, ValidationError):
        return damaged(where, f"{what} cannot be read ({error})")
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in (error.title, *fault["loc"]))
    return damaged(where, f"{what} cannot be read ({place}: {fault['msg']})")


@contextmanager
def legible(where: object, what: str) -> Iterator[None]:
    """Around the reading of something that may be illegible."""
    try:
        yield
    except UNREADABLE as error:
        raise illegible(where, what, error) from error
