"""Ctrl-C and SIGTERM during long work: the first stops at the next boundary, such as a turn's, the second at once."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from memeplex.cli.output import say

__all__ = ["INTERRUPTED", "Interrupt"]

INTERRUPTED = 130
"""The exit code of what was stopped."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """How often some work was asked to stop. ``resume`` is the command that goes on with it, ``step`` what it ends."""

    def __init__(self, resume: str, *, step: str = "turn") -> None:
        self.count = 0
        self._resume = resume
        self._step = step

    def stop(self) -> bool:
        """Whether the work should end before its next step."""
        return self.count > 0

    @property
    def aborted(self) -> bool:
        """Whether it was told to end at once."""
        return self.count > 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the signals over while the block runs in the running task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        held: list[signal.Signals] = []

        def release() -> None:
            while held:
                loop.remove_signal_handler(held.pop())

        def signalled() -> None:
            self.count += 1
            if not self.aborted:
                say(f"stopping after this {self._step} (once more: at once)\ngo on with: {self._resume}")
            elif task is not None:
                task.cancel()
                # A third one ends the process, should the second not have been enough.
                release()

        for wanted in _SIGNALS:
            # Not on every system, and not outside the main thread: there, Python's own handler does.
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(wanted, signalled)
                held.append(wanted)
        try:
            yield
        finally:
            release()
