"""Input tokens over long conversations, counted with a scripted model: the same on any machine."""

import asyncio
import random
import tempfile

from bench.common import Result
from memeplex import Agent, Settings, Team
from memeplex.memory import create_memory
from memeplex.memory.retrieval import RETRIEVAL
from memeplex.models import ChatMessage
from memeplex.models.testing import FunctionModel
from memeplex.models.tokens import estimate
from memeplex.storage import opened_store
from memeplex.teams import MaxTurns, RunResult
from memeplex.usage import Purpose

TASK = "Design a warehouse for a city of 300,000 people. " * 4


def _speaker(tokens: int) -> FunctionModel:
    """A model whose every answer has about that many tokens and says something new; its lessons are long."""

    def answer(messages: list[ChatMessage], output: object, settings: Settings) -> object:
        draw = random.Random(settings.seed)
        if settings.purpose is Purpose.LESSON:
            return {"lessons": [f"Put ware-{draw.randrange(10**5)} on the shelf. {'So it goes. ' * 16}"] * 3}
        if settings.purpose is Purpose.CONSOLIDATION:
            return {"title": "Warehouses", "strategy": "Count the shelves, then the boxes. " * 17}
        if settings.purpose is Purpose.MEMORY_UPDATE:
            return "\n".join(f"item {draw.randrange(10**6)} stands in hall {draw.randrange(10**4)}" for _ in range(25))
        text = ""
        while estimate(text) < tokens:
            text += (
                f"Shelf {draw.randrange(10**6)} takes {draw.randrange(10**4)} boxes of ware-{draw.randrange(10**5)}. "
            )
        return text

    return FunctionModel(answer, window=10**7)


def _run(turns: int, size: int, memory: str, budget: int) -> RunResult:
    model = _speaker(size)
    agents = [
        Agent(f"a{i}", role=f"You are planner {i}.", model=model, memory=create_memory(memory), context_tokens=budget)
        for i in range(5)
    ]
    team = Team(name="long", agents=agents, termination=MaxTurns(turns))
    return asyncio.run(team.run(TASK))


def growth() -> list[Result]:
    """Input of turn 1,000 against turn 100: medians over ten turns, since the window moves in steps."""
    turns = _run(1005, 60, "intrinsic", 4096).conversation.turns
    early, late = (sum(t.usage[Purpose.ANSWER].input for t in turns[n - 5 : n + 5]) / 10 for n in (100, 1000))
    detail = {"turn 100": round(early), "turn 1,000": round(late)}
    return [Result("input tokens of turn 1,000 against turn 100", late / early, limit=1.1, detail=detail)]


def total() -> list[Result]:
    """All input of 200 turns of 300 tokens, memory updates included, against the full history in every prompt."""
    ours = _run(200, 300, "intrinsic", 4096).usage
    full = _run(200, 300, "none", 10**6).usage
    detail = {
        "intrinsic": ours.total.input,
        "of it memory updates": ours[Purpose.MEMORY_UPDATE].input,
        "full": full.total.input,
    }
    return [
        Result(
            "input tokens of 200 turns against full history",
            ours.total.input / full.total.input,
            limit=0.2,
            detail=detail,
        )
    ]


def injected() -> list[Result]:
    """What a lifelong memory puts before each of 30 tasks, against the transcripts of all tasks before it."""
    return asyncio.run(_stream(30))


async def _stream(count: int) -> list[Result]:
    given, replayed, past = 0, 0, 0
    memory = create_memory("lifelong", {"embedder": "hashing", "topology": "shared"})
    team = Team(
        name="planners",
        agents=[Agent(f"a{i}", role=f"You are planner {i}.", model=_speaker(300), memory=memory) for i in range(3)],
        termination=MaxTurns(6),
    )
    with tempfile.TemporaryDirectory() as folder:
        async with opened_store(f"{folder}/stream.db") as store:
            for number in range(count):
                result = await team.run(f"{TASK} Its number is {number}.", store=store, seed=number)
                kept = [await store.records.by_key("planners", RETRIEVAL, f"{result.run}/a{i}") for i in range(3)]
                given += sum(estimate(record.payload["text"]) for record in kept if record is not None) // 3
                replayed += past
                past += sum(estimate(turn.content) for turn in result.conversation.turns) + estimate(TASK)
    detail = {"injected a task": given // count, "transcripts a task": replayed // count}
    name = "tokens that lifelong memory injects over 30 tasks, against replaying all past transcripts"
    return [Result(name, given / replayed, limit=0.1, detail=detail)]
