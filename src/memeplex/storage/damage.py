"""What is stored and is not what was written: one error for every store."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from memeplex.errors import StorageError

__all__ = ["damaged", "legible"]


def damaged(where: object, what: str) -> StorageError:
    """The error of a record that is not what was written; ``where`` is the store's path or URL, if it is known."""
    return StorageError(
        f"store {where}: {what}" if where else what,
        remedy="it is damaged, or of another version of memeplex; restore a copy, or choose another with --store",
    )


@contextmanager
def legible(where: object, what: str) -> Iterator[None]:
    """A record that is whole for the database may still not be one of ours."""
    try:
        yield
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in (error.title, *fault["loc"]))
        raise damaged(where, f"{what} cannot be read ({place}: {fault['msg']})") from error
    except (ValueError, RecursionError) as error:
        # JSON that the database accepts and Python does not: numbers of thousands of digits, endless nesting.
        raise damaged(where, f"{what} cannot be read ({error})") from error
