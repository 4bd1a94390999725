"""What the tests of learning share: an agent with something to learn, and a model that learns it."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from support import block, prompt_text

from memeplex.learning import REFLECTION, Learning, LearningSettings, Situation
from memeplex.models import ChatMessage, Model, Settings
from memeplex.models.testing import FunctionModel
from memeplex.prompts import Library, Prompt
from memeplex.storage import Provenance, Record, Store
from memeplex.usage import Purpose

OWNER = "duo/A"
REASONING = Prompt.of("reasoning", "reasoning", "You answer in one sentence.")
SITUATIONS = [Situation(id=f"held-{n}", text=f"What does a ferry across {n} fjords cost?") for n in range(3)]
LESSONS = (
    "The price was there but its unit was missing.",
    "Nobody knew whether dollars or euros were meant.",
    "Say each amount with its unit.",
)
LEARNT = "You answer in one sentence. Every amount comes with its currency or unit."


def thinking(text: str = LEARNT) -> FunctionModel:
    """A model that revises to ``text``, and thinks prompts better that speak of units. It goes by what it reads."""

    def reply(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        read = prompt_text(messages)
        if settings.purpose is Purpose.LEARNING:
            return {"thoughts": "Units are what is missing.", "prompt": text}
        score = 8 if re.search(r"\bunit\b", block(read, "message")) else 3
        return {"thoughts": "It is about units.", "score": score}

    return FunctionModel(reply)


def reflection(
    lesson: str, *, category: str = "reasoning", importance: float = 0.8, conversation: str = "c1", owner: str = OWNER
) -> Record:
    return Record(
        owner=owner,
        kind=REFLECTION,
        text=lesson,
        payload={
            "lesson": lesson,
            "importance": importance,
            "category": category,
            "thoughts": "It was said in the feedback.",
            "conversation": conversation,
            "used": False,
        },
        provenance=Provenance(run=conversation, author="A"),
    )


async def reflect(store: Store, *lessons: str, **more: Any) -> list[str]:
    """Keep reflections; their ids."""
    records = [reflection(lesson, **more) for lesson in lessons or LESSONS]
    await store.records.add(records, actor="A")
    return [record.id for record in records]


def learning(
    store: Store, model: Model | None = None, *, score: Any = None, seed: int = 7, **settings: Any
) -> Learning:
    prompts = settings.pop("prompts", {"reasoning": REASONING})
    return Learning(
        Library(store.records, OWNER),
        store.jobs,
        agent="A",
        model=model or thinking(),
        prompts=prompts,
        score=score,
        settings=LearningSettings(**{"randomness": 0.0, **settings}),
        seed=seed,
    )


async def used(store: Store, ids: Sequence[str]) -> list[bool]:
    return [record.payload["used"] for record in await store.records.get(ids)]
