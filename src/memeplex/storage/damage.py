"""What is stored and is not what was written: one error for every store."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from memeplex.errors import StorageError

__all__ = ["UNREADABLE", "damaged", "illegible", "legible"]

UNREADABLE = (ValueError, RecursionError)
"""What reading raises: JSON that the database accepts and Python does not has endless digits, or endless nesting."""


def damaged(where: object, what: str) -> StorageError:
    """The error of a record that is not what was written; ``where`` is the store's path or URL, if it is known."""
    return StorageError(
        f"store {where}: {what}" if where else what,
        remedy="it is damaged, or of another version of memeplex; restore a copy, or choose another with --store",
    )


def illegible(where: object, what: str, error: Exception) -> StorageError:
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
