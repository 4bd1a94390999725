"""The one thread in which a store's statements run, so that a slow disk never holds up the event loop.

A pool with a single thread takes twice as long to ask and to be told, and that is as long as a small write takes.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar
from weakref import finalize

__all__ = ["Thread"]

T = TypeVar("T")
_Asked = SimpleQueue[Callable[[], None] | None]


class Thread:
    """Does what it is asked, in that order.

    It ends when it is closed or forgotten, and at the latest with the process, which waits for what is under way.
    """

    def __init__(self, name: str) -> None:
        self._asked: _Asked = SimpleQueue()
        thread = threading.Thread(target=_work, args=(self._asked,), name=name, daemon=True)
        thread.start()
        self._end = finalize(self, _end, self._asked, thread)

    async def call(self, work: Callable[[], T]) -> T:
        """What the work gives, or raises. It is done though whoever waits is cancelled: then nobody hears of it.

        Raises:
            RuntimeError: the thread has ended.
        """
        if not self._end.alive:
            raise RuntimeError("the thread has ended")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._asked.put(lambda: _answered(loop, answer, work))
        return await answer

    def close(self) -> None:
        """End it, once all is done that it has been asked."""
        self._end()


def _work(asked: _Asked) -> None:
    while (work := asked.get()) is not None:
        work()
        # Not held while it waits for the next.
        del work


def _end(asked: _Asked, thread: threading.Thread) -> None:
    asked.put(None)
    # Whoever forgets it last may be the thread itself.
    if thread is not threading.current_thread():
        thread.join()


def _answered(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[T]", work: Callable[[], T]) -> None:
    # A loop that has been closed has nobody left who waits.
    with suppress(RuntimeError):
        try:
            told = work()
        except BaseException as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
            loop.call_soon_threadsafe(_fail, answer, error)
        else:
            loop.call_soon_threadsafe(_tell, answer, told)


def _tell(answer: "asyncio.Future[T]", told: T) -> None:
    if not answer.done():
        answer.set_result(told)


def _fail(answer: "asyncio.Future[T]", error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
        # Asked for, so that it does not count as lost when whoever waits is cancelled just now.
        answer.exception()
