"""What is stored and is not what was written: one error for every store."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from memeplex.errors import DamagedError

__all__ = ["damaged", "legible", "repairing"]


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


@contextmanager
def legible(where: object, what: str) -> Iterator[None]:
    """A record that is whole for the database may still not be one of ours."""
    try:
        yield
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in (error.title, *fault["loc"]))
        raise damaged(where, f"{what} cannot be read ({place}: {fault['msg']})") from error
    except (TypeError, ValueError, RecursionError) as error:
        # JSON that the database accepts and Python does not: numbers of thousands of digits, endless nesting. In a
        # damaged file there may be anything, of any type.
        raise damaged(where, f"{what} cannot be read ({error})") from error
