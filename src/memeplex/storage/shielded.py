"""Work that goes on to its end though whoever waits for it is cancelled."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["shielded"]

T = TypeVar("T")


async def shielded(work: Awaitable[T]) -> T:
    """What the work gives, or raises. When the waiter is cancelled, nobody hears of its fault any more."""
    future = asyncio.ensure_future(work)
    # Asked for, so that it does not count as lost: ``asyncio.shield`` lets go of it without asking.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(future)
