"""The protocol of a store, and the records that it keeps."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from memeplex.errors import StorageError
from memeplex.messages import LedgerField, Outcome, Task, Turn, utc_now
from memeplex.storage.jobs import Jobs
from memeplex.storage.records import Records
from memeplex.usage import Ledger

__all__ = ["MemoryVersion", "Run", "Runs", "Store"]


class Run(BaseModel):
    """One run of a team on one task. ``spec`` is the whole team as it ran, so that a run can be resumed.

    ``status``: running, interrupted, failed or finished. A run whose process was killed stays "running".
    """

    model_config = ConfigDict(frozen=True)

    id: str
    team: str
    task: Task
    spec: dict[str, Any]
    model: str
    seed: int
    software: str
    status: str = "running"
    outcome: Outcome | None = None
    created: datetime = Field(default_factory=utc_now)
    updated: datetime = Field(default_factory=utc_now)


class Runs(tuple[Run, ...]):
    """Some runs. ``damaged`` says of others, by their id, why they cannot be read: one spoils no list of many."""

    damaged: Mapping[str, StorageError]

    def __new__(cls, runs: Iterable[Run] = (), damaged: Mapping[str, StorageError] | None = None) -> "Runs":
        """Of the runs that are whole, and the errors of those that are not."""
        made = super().__new__(cls, runs)
        made.damaged = dict(damaged or {})
        return made


class MemoryVersion(BaseModel):
    """M(n, m): agent n's memory after turn m, with its cause. Turn -1 holds the template, version 0.

    ``status``: updated, unchanged, skipped or failed; a failed update repeats the version before it.
    ``content`` maps slots to their notes; ``cause`` says why the status is what it is.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    agent: str
    turn: int
    version: int
    status: str
    content: dict[str, list[str]]
    cause: str = ""
    model: str = ""
    usage: LedgerField = Field(default_factory=Ledger)
    created: datetime = Field(default_factory=utc_now)


class Store(Protocol):
    """Where runs live. When an awaited write returns, it is durable. ``url`` names the store, and shows no password.

    Every method raises ``StorageError`` when the store cannot be read or written.
    """

    url: str

    @property
    def records(self) -> Records:
        """What agents keep beyond a run."""
        ...

    @property
    def jobs(self) -> Jobs:
        """Work that must not get lost."""
        ...

    async def add_run(self, run: Run) -> None:
        """Keep a new run."""
        ...

    async def end_run(self, run_id: str, status: str, outcome: Outcome | None = None) -> None:
        """Record how a run stands: running again, interrupted, failed or finished."""
        ...

    async def runs(self, *, limit: int = 100) -> Runs:
        """The newest runs, newest first; those among them that cannot be read are its ``damaged``."""
        ...

    async def run(self, run_id: str) -> Run:
        """One run, by its id or a unique beginning of it.

        Raises:
            UnknownNameError: there is none.
            UserError: several begin so.
        """
        ...

    async def add_turn(self, run_id: str, turn: Turn) -> None:
        """Keep the next turn. The same index twice is an error."""
        ...

    async def turns(self, run_id: str) -> Sequence[Turn]:
        """All turns of a run, in order. That one is missing is a ``StorageError``."""
        ...

    async def add_version(self, run_id: str, version: MemoryVersion) -> None:
        """Keep what became of one agent's memory after one turn. The first word on a turn stands."""
        ...

    async def versions(self, run_id: str, agent: str | None = None) -> Sequence[MemoryVersion]:
        """The versions of one agent's memory, or of all agents', in the order of turns."""
        ...

    def lock(self, run_id: str) -> AbstractContextManager[None]:
        """Hold a run while working on it; freed by the system when the process dies.

        Raises:
            RunLockedError: another process holds it.
        """
        ...

    def held(self, run_id: str) -> bool:
        """Whether a process holds a run. Asking changes nothing in the store."""
        ...

    async def aclose(self) -> None:
        """Close the store."""
        ...
