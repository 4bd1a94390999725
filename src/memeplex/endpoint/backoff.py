"""Trying again when an endpoint is overloaded or out of reach."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from memeplex.errors import ModelUnavailableError

__all__ = ["Backoff", "full_jitter"]

T = TypeVar("T")


def full_jitter(longest: float) -> float:
    """Seconds between 0 and ``longest``, drawn evenly."""
    return random.uniform(0.0, longest)  # noqa: S311  (spreads callers in time, guards nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often and when a call is made again after a ``ModelUnavailableError``.

    The wait before try *n* is drawn between 0 and ``base * 2**n`` seconds (full jitter), at most ``longest``.
    If the endpoint asked for a longer pause, that is kept, up to ``patience`` seconds. ``attempts`` counts
    the first try. ``sleep`` and ``jitter`` are there for tests.
    """

    attempts: int = 4
    base: float = 0.5
    longest: float = 30.0
    patience: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[float], float] = full_jitter

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts counts the first try, so it is at least 1")

    def _wait(self, tries: int, retry_after: float | None) -> float:
        drawn = self.jitter(min(self.longest, self.base * 2**tries))
        return max(drawn, min(retry_after or 0.0, self.patience))

    async def run(self, call: Callable[[], Awaitable[T]], retried: Callable[[str], None]) -> T:
        """What ``call`` gives, once it gives something. ``retried`` is told why it is called again.

        Raises:
            ModelUnavailableError: the last one, when all attempts are used up. Every other error passes at once.
        """
        tries = 0
        while True:
            try:
                return await call()
            except ModelUnavailableError as error:
                tries += 1
                if tries >= self.attempts:
                    raise
                wait = self._wait(tries - 1, error.retry_after)
                retried(f"{error}; trying again in {wait:.1f} s")
            # Outside the handler, so that a cancelled wait is not reported as "during handling of …".
            await self.sleep(wait)
