"""What the tests of lifelong memory share: teams that live through tasks, and a look at what they keep."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from support import Asked, act, agent, block, forget, listening, only, prompt_text

from memeplex import Team
from memeplex.embeddings import create_embedder
from memeplex.memory import MemoryScope, create_memory
from memeplex.memory.archive import Archive
from memeplex.memory.base import MemorySettings
from memeplex.memory.episodes import Episode, as_episode
from memeplex.memory.lifelong import LifelongMemory
from memeplex.memory.procedures import Procedure, Trial, as_procedure
from memeplex.messages import Conversation, Outcome, Task, Turn, utc_now
from memeplex.models import ChatMessage, Model, Settings
from memeplex.storage import Record, Store
from memeplex.storage.sqlite import SQLiteStore
from memeplex.teams import MaxTurns, RunResult
from memeplex.usage import Purpose

STRATEGY = {
    "title": "Paying an invoice",
    "strategy": "1. Ask zed for the ledger. 2. Compare the sums. 3. Pay.",
    "tools": ["zed: give it the invoice's number"],
    "failures": ["a sum that nobody compared"],
}


def work(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
    """``act``, with lessons that name the task they are from, and one strategy."""
    if settings.purpose is Purpose.LESSON:
        return {"lessons": [f"Ask zed before the next step of: {block(prompt_text(messages), 'task')[:60]}"]}
    if settings.purpose is Purpose.CONSOLIDATION:
        return STRATEGY
    return act(messages, output, settings)


def task(text: str, success: bool = True, **data: Any) -> Task:
    """A task that ``act`` fulfils, or cannot fulfil."""
    return Task(text=text, data={"expect": "decides" if success else "nobody says this", **data})


def invoices(count: int, start: int = 1, *, success: bool = True) -> list[Task]:
    """Tasks of one kind."""
    return [task(f"Pay invoice number {n} of the paper supplier.", success) for n in range(start, start + count)]


def lifelong(**arguments: Any) -> MemorySettings:
    return create_memory("lifelong", {"embedder": "hashing", **arguments})


def team(
    model: Model,
    memory: MemorySettings | Mapping[str, MemorySettings] | None = None,
    *,
    name: str = "duo",
    agents: Iterable[str] = "AB",
    turns: int = 2,
) -> Team:
    memory = memory or lifelong()
    made = [agent(who, model, memory[who] if isinstance(memory, Mapping) else memory) for who in agents]
    return Team(name=name, agents=made, termination=MaxTurns(turns), overlap=False)


async def live(made: Team, store: Store, *tasks: Task | str) -> list[RunResult]:
    """The tasks, one after the other."""
    return [await made.run(one, store=store) for one in tasks]


def injected(asked: Iterable[Asked]) -> list[str]:
    """What stood before the task in each prompt for an answer."""
    return [block(one.text, "experience") for one in only(asked, Purpose.ANSWER)]


async def kept(store: Store, owner: str, kind: str) -> list[Record]:
    return await store.records.newest(owner, kind, limit=1000)


async def episodes(store: Store, owner: str = "duo/A") -> list[Episode]:
    return [as_episode(record) for record in await kept(store, owner, "episode")]


async def procedures(store: Store, owner: str = "duo/A") -> list[Procedure]:
    return [as_procedure(record) for record in await kept(store, owner, "procedure")]


async def exported(store: Store, owner: str | None = None) -> list[str]:
    return [line async for line in store.records.export(owner)]


def archive(store: Store) -> Archive:
    return Archive(store.records, create_embedder("hashing"))


def memory_of(
    store: Store,
    model: Model,
    conversation: Conversation | None = None,
    *,
    run: str = "r",
    name: str = "A",
    of: str = "duo",
    members: Iterable[str] = "AB",
    **arguments: Any,
) -> LifelongMemory:
    """One agent's memory outside a team."""
    scope = MemoryScope(
        agent=name,
        role=f"Role of {name}.",
        model=model,
        record=forget,
        run=run,
        team=of,
        members={who: f"Role of {who}." for who in members},
        store=store,
        conversation=conversation or Conversation(Task(text="x")),
    )
    opened = lifelong(**arguments).open(scope)
    assert isinstance(opened, LifelongMemory)
    return opened


async def finish(memory: LifelongMemory, told: Task, outcome: Outcome, *said: str) -> None:
    """A task of one agent, from its start to its end."""
    conversation = memory._conversation
    conversation.task = told
    await memory.retrieve(conversation)
    for text in said or ("Done.",):
        conversation.append(Turn(index=len(conversation.turns), speaker=memory._scope.agent, content=text))
    await memory.consolidate(outcome)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    try:
        yield store
    finally:
        await store.aclose()


class Clock:
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return utc_now() + self.ahead

    def tick(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


__all__ = [
    "STRATEGY",
    "Clock",
    "archive",
    "episodes",
    "exported",
    "finish",
    "injected",
    "invoices",
    "kept",
    "lifelong",
    "listening",
    "live",
    "memory_of",
    "opened",
    "procedures",
    "task",
    "team",
    "work",
]


def unproven(trials: Sequence[Trial]) -> int:
    """Sources that failed before any had succeeded: they say nothing on the procedure."""
    before = takewhile(lambda trial: not trial.success, trials)
    return sum(not trial.applied for trial in before)
