"""Trying again when an endpoint is overloaded or out of reach: a wrapper around any model."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import BaseModel

from memeplex.endpoint.backoff import Backoff, full_jitter
from memeplex.models.base import Answering, ChatMessage, Completion, Model, Settings
from memeplex.telemetry import ReplyRetried, emit

__all__ = ["RetryModel"]


class RetryModel(Answering):
    """Asks ``inner`` again after a ``ModelUnavailableError``; every other error passes through at once.

    The arguments are those of ``Backoff``: how often, and how long to wait.
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
        jitter: Callable[[float], float] = full_jitter,
    ) -> None:
        self.inner = inner
        self.name = inner.name
        self.window = inner.window
        self.billions = inner.billions
        self._backoff = Backoff(
            attempts=attempts, base=base, longest=longest, patience=patience, sleep=sleep, jitter=jitter
        )

    async def answer(
        self, messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings
    ) -> Completion[Any]:
        """The inner model's answer.

        Raises:
            ModelUnavailableError: the last one, when all attempts are used up.
        """

        def retried(reason: str) -> None:
            emit(ReplyRetried(model=self.name, purpose=settings.purpose, reason=reason))

        return await self._backoff.run(lambda: self.inner.generate(messages, output, settings), retried)

    async def count(self, text: str) -> int:
        """Tokens in ``text``, as the inner model counts."""
        return await self.inner.count(text)

    async def aclose(self) -> None:
        """Close the inner model."""
        await self.inner.aclose()
