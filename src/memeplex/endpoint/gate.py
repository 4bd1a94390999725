"""Whether requests to real models may be made at all: the switch that a test suite turns off."""

from collections.abc import Iterator
from contextlib import contextmanager

from memeplex.errors import RequestForbiddenError

__all__ = ["allow_requests", "check_allowed", "requests_allowed"]

_allowed = True


def allow_requests(allowed: bool) -> None:
    """Whether this process may make requests to models. A test suite turns them off.

    A plain module variable: a context variable would not reach the tasks that a test runner has already
    started.
    """
    global _allowed
    _allowed = allowed


@contextmanager
def requests_allowed(allowed: bool = True) -> Iterator[None]:
    """Allow (or forbid) requests inside the block, such as those to a fake server on the loopback address."""
    before = _allowed
    allow_requests(allowed)
    try:
        yield
    finally:
        allow_requests(before)


def check_allowed(name: str) -> None:
    """Raise before a request to the model of that name, if requests are turned off.

    Raises:
        RequestForbiddenError: they are.
    """
    if not _allowed:
        raise RequestForbiddenError(
            f"a request to {name} was made while requests are turned off",
            remedy="use memeplex.models.testing, or requests_allowed() for a fake server",
        )
