"""Input tokens over long conversations, counted with a scripted model: the same on any machine."""

import asyncio
import random

from bench.common import Result
from memeplex import Agent, Settings, Team
from memeplex.memory import create_memory
from memeplex.models import ChatMessage
from memeplex.models.testing import FunctionModel
from memeplex.models.tokens import estimate
from memeplex.teams import MaxTurns, RunResult
from memeplex.usage import Purpose

TASK = "Design a warehouse for a city of 300,000 people. " * 4


def _speaker(tokens: int) -> FunctionModel:
    """A model whose every answer has about that many tokens and says something new."""

    def answer(messages: list[ChatMessage], output: object, settings: Settings) -> str:
        draw = random.Random(settings.seed)
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
