"""What the tests of agents that live share: two agents of a team, messages, a clock that is put forward."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from days import think
from pydantic import BaseModel

from memeplex.agents import Agent
from memeplex.agents.life import Life
from memeplex.agents.rhythm import SimulatedClock
from memeplex.memory import create_memory
from memeplex.messages import StandardMessage
from memeplex.models import ChatMessage, Model, Settings
from memeplex.models.testing import FunctionModel
from memeplex.storage import Store
from memeplex.usage import Purpose

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
MEMBERS = {"seller": "You sell bridges.", "buyer": "You buy bridges."}


def converse(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
    """``think``, for an agent that is content with its first thought and a judge that is content with everything."""
    if settings.purpose is Purpose.THOUGHT:
        return {"missing": "", "decision": "STOP"}
    if settings.purpose is Purpose.JUDGE:
        return {"reasons": "It answers.", "score": 6}
    if settings.purpose is Purpose.LEARNING and output is not None:
        if "score" in output.model_fields:
            return {"reasons": "It is a prompt.", "score": 5}
        return {"thoughts": "Nothing.", "prompt": "Be brief and clear."}
    return think(messages, output, settings)


def life(store: Store, name: str = "seller", *, model: Model | None = None, **more: Any) -> Life:
    """One agent of the team, to be lived."""
    agent = Agent(
        name,
        role=MEMBERS.get(name, "You watch."),
        reasoning="Be brief.",
        model=model or FunctionModel(converse),
        memory=create_memory("tiers", {"embedder": "none"}),
    )
    more.setdefault("clock", SimulatedClock(NOON))
    return Life(agent, store, team="desk", members=MEMBERS, **more)


def message(content: str, number: int = 1, **more: Any) -> StandardMessage:
    values = {"id": f"m{number}", "sender": "bob", "recipient": "seller", "conversation": "talk", **more}
    return StandardMessage(content=content, **values)
