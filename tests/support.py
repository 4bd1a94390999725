"""What tests share: turns, conversations, a model that acts by what it reads alone, and one that listens."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from memeplex.agents import Agent
from memeplex.memory import Memory, MemoryScope, MemorySettings, create_memory
from memeplex.messages import Conversation, Task, Turn, TurnKind
from memeplex.models import ChatMessage, Model, Settings
from memeplex.models.testing import FunctionModel
from memeplex.storage import MemoryVersion
from memeplex.usage import Purpose

DOCUMENT: dict[str, Any] = {
    "summary": "Sensor data goes over Kinesis to S3 and from there to SageMaker.",
    "plan": ["ingest", "check and synchronise", "store and train"],
    "resources": [
        {"resource": "S3", "estimate": "14 PB"},
        {"resource": "Kinesis", "estimate": "200 shards"},
    ],
    "specification": {
        "name": "fleet pipeline",
        "components": [
            {"name": n, "service": "AWS", "purpose": "part", "inputs": ["sensor data"], "monthly_cost_usd": 1000}
            for n in ("ingestion", "storage", "training")
        ],
    },
}

Reply = Callable[[Sequence[ChatMessage], type[BaseModel] | None, Settings], Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request that a listening model has had."""

    purpose: Purpose
    text: str
    output: type[BaseModel] | None
    settings: Settings
    reply: Any


def prompt_text(messages: Sequence[ChatMessage]) -> str:
    return "\n".join(message["content"] for message in messages)


def block(text: str, tag: str) -> str:
    """What stands inside a data block of a prompt; empty when there is none."""
    found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", text, re.DOTALL)
    return found[1] if found else ""


def speaker_of(text: str) -> str:
    """The agent that a prompt is for."""
    found = re.search(r"You are ([^\s.,]+)[.,]", text)
    return found[1] if found else ""


def act(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
    """A reply that depends on the request alone, so that any process gives the same one."""
    text = prompt_text(messages)
    digest = hashlib.sha256(f"{settings.seed} {text}".encode()).hexdigest()
    if settings.purpose is Purpose.VOTE:
        return {"reason": f"by the criteria {digest[:4]}", "vote": "ACCEPT" if int(digest[:2], 16) % 4 else "OBJECT"}
    if settings.purpose is Purpose.MEMORY_UPDATE:
        return remembered(text, output)
    if settings.purpose is Purpose.TEMPLATE:
        return {"slots": [{"name": name, "description": f"all {name}"} for name in ("decisions", "open points")]}
    if output is not None and output.__name__ == "Document":
        return DOCUMENT
    return f"{speaker_of(text)} decides: Service-{digest[:5]} at {int(digest[5:9], 16)} USD, Region-{digest[9:12]}."


def remembered(text: str, output: type[BaseModel] | None) -> Any:
    """The update of a memory: what was there, and what the newest message says."""
    message, memory = block(text, "message"), block(text, "memory").replace("(empty)", "")
    if output is None:
        return f"{memory}\n{message}".strip()
    notes = {"array": [message[:100]], "string": message[:200]}
    properties = output.model_json_schema()["properties"]
    return {name: notes[schema["type"]] for name, schema in properties.items()}


def listening(reply: Reply = act, **more: Any) -> tuple[FunctionModel, list[Asked]]:
    """A model that answers with ``reply``, and all it was asked."""
    asked: list[Asked] = []

    def answer(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        said = reply(messages, output, settings)
        text = prompt_text(messages)
        asked.append(Asked(purpose=settings.purpose, text=text, output=output, settings=settings, reply=said))
        return said

    return FunctionModel(answer, **more), asked


def only(asked: Iterable[Asked], purpose: Purpose) -> list[Asked]:
    return [one for one in asked if one.purpose is purpose]


def turn(index: int, speaker: str, content: str, **more: Any) -> Turn:
    return Turn(index=index, speaker=speaker, content=content, **more)


def talk(*said: tuple[str, str] | tuple[str, str, TurnKind], task: str = "Build a bridge.") -> Conversation:
    """A conversation out of (speaker, content) or (speaker, content, kind)."""
    turns = [turn(i, s[0], s[1], kind=s[2] if len(s) > 2 else TurnKind.MESSAGE) for i, s in enumerate(said)]
    return Conversation(Task(text=task), turns)


async def forget(version: MemoryVersion) -> None:
    """Records nothing."""


def open_memory(
    model: Model, settings: MemorySettings | None = None, *, versions: Sequence[MemoryVersion] = (), **arguments: Any
) -> Memory:
    """The intrinsic memory of an agent named A."""
    settings = settings or create_memory("intrinsic", arguments)
    return settings.open(
        MemoryScope(agent="A", role="You build bridges.", model=model, record=forget, versions=versions)
    )


def agent(name: str, model: Model, memory: str | MemorySettings = "none", **more: Any) -> Agent:
    settings = create_memory(memory) if isinstance(memory, str) else memory
    return Agent(name, role=f"Role of {name}.", model=model, memory=settings, **more)


def plain(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Turns without times and seconds, to be compared between runs."""
    return [_timeless(one.model_dump(mode="json")) for one in turns]


def plain_versions(versions: Sequence[MemoryVersion]) -> list[dict[str, Any]]:
    """Memory versions without times and seconds, in one order."""
    ordered = sorted(versions, key=lambda version: (version.turn, version.agent))
    return [_timeless(one.model_dump(mode="json")) for one in ordered]


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    record.pop("created")
    for amounts in record["usage"].values():
        amounts.pop("seconds")
    return json.loads(json.dumps(record, sort_keys=True))
