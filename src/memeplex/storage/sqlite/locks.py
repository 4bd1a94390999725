"""Who works on what: a guard for each store, and a lock for each run that is being worked on.

The lock of a run is a file that is removed when the run is let go. Removing a lock file is safe only when nobody is
between opening and locking it: both are done, for all runs of a store, under the guard. The system frees either when
its process dies; what a killed process leaves is an empty file, which the next who works on the run takes over.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from filelock import FileLock, Timeout

from memeplex.errors import RunLockedError
from memeplex.storage.sqlite.faults import explained

__all__ = ["BUSY_SECONDS", "guard", "make_folder", "run_held", "run_lock"]

BUSY_SECONDS = 30.0
"""How long one process waits for what another does to the store."""
_TIDY_SECONDS = 1.0


def make_folder(path: Path) -> None:
    """The folder of a file. Conversations are private: one that is made here is for its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def guard(path: Path, *, seconds: float = BUSY_SECONDS) -> FileLock:
    """The lock on the store itself, to hold while its lock files or its tables are changed."""
    return FileLock(f"{path}.lock", timeout=seconds)


@contextmanager
def run_lock(path: Path, run_id: str) -> Iterator[None]:
    """Hold a run.

    Raises:
        RunLockedError: another process holds it.
        StorageError: the lock file cannot be made.
    """
    with explained(path):
        file = _file(path, run_id)
        lock = FileLock(file, timeout=0)
        make_folder(path)
        with guard(path):
            _acquire(lock, file, run_id)
    try:
        yield
    finally:
        _release(lock, file, path)


def run_held(path: Path, run_id: str) -> bool:
    """Whether a process holds the run. Where none does and none has been killed, nothing is made or touched.

    Raises:
        StorageError: it cannot be told.
    """
    with explained(path):
        if not _file(path, run_id).exists():
            return False
        # Under the guard all the while: who looks must not be taken for who works on the run.
        with guard(path):
            file = _file(path, run_id)
            lock = FileLock(file, timeout=0)
            try:
                lock.acquire()
            except Timeout:
                return True
            lock.release()
            file.unlink(missing_ok=True)
            with suppress(OSError):
                file.parent.rmdir()
            return False


def _file(path: Path, run_id: str) -> Path:
    # Quoted: an id given from Python may hold a slash.
    return path.with_name(f"{path.name}.locks") / f"{quote(run_id, safe='')}.lock"


def _acquire(lock: FileLock, file: Path, run_id: str) -> None:
    file.parent.mkdir(exist_ok=True)
    try:
        lock.acquire()
    except Timeout:
        raise RunLockedError(
            f"another process is working on run {run_id}", remedy="wait for it to end, or stop it"
        ) from None


def _release(lock: FileLock, file: Path, path: Path) -> None:
    try:
        # Where the guard is not to be had, the file stays. That is untidy and nothing else.
        with suppress(OSError), guard(path, seconds=_TIDY_SECONDS):
            # In this order, since Windows removes no open file; under the guard the order is nobody's concern.
            lock.release()
            file.unlink()
            file.parent.rmdir()
    finally:
        lock.release()
