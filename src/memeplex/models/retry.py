"""Trying again when an endpoint is overloaded or out of reach: a wrapper around any model."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import BaseModel

from memeplex.errors import ModelUnavailableError
from memeplex.models.base import Answering, ChatMessage, Completion, Model, Settings
from memeplex.telemetry import ReplyRetried, emit

__all__ = ["RetryModel"]


def _full_jitter(longest: float) -> float:
    return random.uniform(0.0, longest)  # noqa: S311  (spreads callers in time, guards nothing)


class RetryModel(Answering):
    """Asks ``inner`` again after a ``ModelUnavailableError``; every other error passes through at once.

    The wait before try *n* is drawn between 0 and ``base * 2**n`` seconds (full jitter), at most ``longest``.
    If the endpoint asked for a longer pause, that is kept, up to ``patience`` seconds. ``attempts`` counts
    the first try. ``sleep`` and ``jitter`` are there for tests.
    """

    def __init__(
        self,
        inner: Model,
        *,
        attempts: int = 4,
        base: float = 0.5,
        longest: float = 30.0,
        patience: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float], float] = _full_jitter,
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts counts the first try, so it is at least 1")
        self.inner = inner
        self.name = inner.name
        self.window = inner.window
        self.billions = inner.billions
        self._attempts = attempts
        self._base = base
        self._longest = longest
        self._patience = patience
        self._sleep = sleep
        self._jitter = jitter

    def _wait(self, tries: int, retry_after: float | None) -> float:
        drawn = self._jitter(min(self._longest, self._base * 2**tries))
        return max(drawn, min(retry_after or 0.0, self._patience))

    async def answer(
        self, messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings
    ) -> Completion[Any]:
        """The inner model's answer.

        Raises:
            ModelUnavailableError: the last one, when all attempts are used up.
        """
        tries = 0
        while True:
            try:
                return await self.inner.generate(messages, output, settings)
            except ModelUnavailableError as error:
                tries += 1
                if tries >= self._attempts:
                    raise
                wait = self._wait(tries - 1, error.retry_after)
                reason = f"{error}; trying again in {wait:.1f} s"
                emit(ReplyRetried(model=self.name, purpose=settings.purpose, reason=reason))
            # Outside the handler, so that a cancelled wait is not reported as "during handling of …".
            await self._sleep(wait)

    async def count(self, text: str) -> int:
        """Tokens in ``text``, as the inner model counts."""
        return await self.inner.count(text)

    async def aclose(self) -> None:
        """Close the inner model."""
        await self.inner.aclose()
