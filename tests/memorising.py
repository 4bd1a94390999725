"""Memorises in a process that kills itself: ``memorising.py STORE prepare|memorise KIND AT``.

``KIND`` is ``before`` or ``after`` (SIGKILL at the AT-th call to the store, before or after it is done), ``model``
(when the model is asked for the AT-th time), or ``never``. ``prepare`` puts conversations into short-term memory. A
process that ends tells the numbers of its calls. Each process words what it extracts in a way of its own, so that
nothing that was stored twice could pass for once.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from days import facts, memory, own, reflection, tiers, user
from pydantic import BaseModel
from support import block, prompt_text

from memeplex.models import ChatMessage, Settings
from memeplex.models.testing import FunctionModel
from memeplex.storage.sqlite import SQLiteStore
from memeplex.usage import Purpose

STORE, ACTION, KIND, AT = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
TALKS = {f"talk {n}": 7 if n == 2 else 2 for n in range(5)}
"""Conversations, with their numbers of facts. One of them is several chunks; all tell a price of the same thing."""
counted = {"call": 0, "model": 0}


def die_at(count: int, *kinds: str) -> None:
    if KIND in kinds and count == AT:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalStore(SQLiteStore):
    async def _call(self, work: Callable[..., Any], *more: Any) -> Any:
        counted["call"] += 1
        at = counted["call"]
        die_at(at, "before")
        done = await super()._call(work, *more)
        die_at(at, "after")
        return done


def model(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
    counted["model"] += 1
    die_at(counted["model"], "model")
    if settings.purpose is Purpose.REFLECTION:
        return {"reflections": [reflection(f"Say {os.getpid()} and {counted['model']} first.")]}
    found = facts(block(prompt_text(messages), "turns"))
    return {"memories": [said(fact) for fact in found]}


def said(fact: dict[str, Any]) -> dict[str, Any]:
    if fact["predicate"] == "has price":
        return fact
    return memory(fact["statement"], fact["subject"], f"{fact['predicate']} {os.getpid()}", fact["object"])


async def main() -> None:
    store = MortalStore(Path(STORE))
    agent = tiers(store, FunctionModel(model))
    if ACTION == "prepare":
        for number, (name, count) in enumerate(TALKS.items()):
            told = [user(f"The part {n} of {name} is oak. {'So be it. ' * 30}") for n in range(count)]
            await agent.say(name, *told, own(f"The price of steel is {number} dollars."), social=number == 4)
            if number % 2:
                await agent.receive_feedback(name, number, "Too long.", sender="bob")
        await agent.sleep()
    else:
        await agent.memorise()
    await store.aclose()
    print(counted["call"], counted["model"])


asyncio.run(main())
