"""What tests of memory tiers share: agents that live outside of a run, and a model that takes down what is said."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from lives import opened
from pydantic import BaseModel
from support import act, block, forget, listening, prompt_text

from memeplex.memory import MemoryScope, create_memory
from memeplex.memory.tiers import Said, TiersMemory, ToolCall
from memeplex.messages import Conversation
from memeplex.models import ChatMessage, Model, Settings
from memeplex.models.testing import FunctionModel
from memeplex.storage import Record, Store
from memeplex.usage import Purpose

FACT = re.compile(r"The ([\w ]+?) of ([\w ]+?) is ([\w ]+?)\.")


def memory(statement: str, subject: str, predicate: str, thing: str, **more: Any) -> dict[str, Any]:
    return {
        "statement": statement,
        "subject": subject,
        "predicate": predicate,
        "object": thing,
        "category": "fact",
        "confidence": 0.9,
        "tags": [predicate.split()[-1]],
        **more,
    }


def reflection(lesson: str, **more: Any) -> dict[str, Any]:
    return {"thoughts": "It went on.", "lesson": lesson, "importance": 0.5, "category": "reasoning", **more}


def facts(text: str) -> list[dict[str, Any]]:
    """Every sentence of the form "The budget of the bridge is small." as a memory."""
    found = dict.fromkeys(found.groups() for found in FACT.finditer(text))
    return [memory(f"The {p} of {s} is {o}.", s, f"has {p}", o) for p, s, o in found]


def think(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
    """``act``, with the facts of a conversation, and a lesson that names the last thing said."""
    text = prompt_text(messages)
    if settings.purpose is Purpose.EXTRACTION:
        return {"memories": facts(block(text, "turns"))[:10]}
    if settings.purpose is Purpose.REFLECTION:
        source = block(text, "message") or block(text, "turns")
        return {"reflections": [reflection(f"Next time begin with: {source.splitlines()[-1][:80]}")]}
    if settings.purpose is Purpose.FEEDBACK:
        return {"comment": "It names the sum.", "score": 7}
    return act(messages, output, settings)


def says(**replies: Any) -> Any:
    """``think``, with other replies for some purposes; an exception is raised."""

    def reply(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        said = replies.get(settings.purpose.name.lower())
        if isinstance(said, Exception):
            raise said
        return think(messages, output, settings) if said is None else said

    return reply


def tiers(
    store: Store,
    model: Model | None = None,
    *,
    name: str = "A",
    of: str = "duo",
    run: str = "",
    conversation: Conversation | None = None,
    **arguments: Any,
) -> TiersMemory:
    """One agent's memory tiers, outside of a team's run unless one is named."""
    scope = MemoryScope(
        agent=name,
        role=f"Role of {name}.",
        model=model or FunctionModel(think),
        record=forget,
        run=run,
        team=of,
        store=store,
        conversation=conversation,
    )
    made = create_memory("tiers", {"embedder": "hashing", **arguments}).open(scope)
    assert isinstance(made, TiersMemory)
    return made


def user(content: str, name: str = "bob", **more: Any) -> Said:
    return Said(role="user", name=name, content=content, **more)


def own(content: str, name: str = "A", **more: Any) -> Said:
    return Said(role="assistant", name=name, content=content, **more)


async def live(memory: TiersMemory, *talks: tuple[str, Iterable[Said]]) -> None:
    """Conversations by their ids, one after the other, each slept over and memorised."""
    for conversation, said in talks:
        await memory.say(conversation, *said)
        await memory.sleep()
        await memory.memorise()


async def kinds(store: Store, owner: str = "duo/A") -> dict[str, int]:
    return (await store.records.owners()).get(owner, {})


async def kept(store: Store, kind: str, owner: str = "duo/A") -> list[Record]:
    return await store.records.newest(owner, kind, limit=10_000)


async def statements(store: Store, owner: str = "duo/A") -> list[str]:
    return [record.payload["statement"] for record in await kept(store, "atomic", owner)]


__all__ = [
    "Said",
    "ToolCall",
    "facts",
    "kept",
    "kinds",
    "listening",
    "live",
    "memory",
    "opened",
    "own",
    "reflection",
    "says",
    "statements",
    "think",
    "tiers",
    "user",
]
