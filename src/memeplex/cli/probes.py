"""The calls that ``doctor`` makes: one for plain text, and one for each schema in use."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import BaseModel

from memeplex.autonoms import cast_vote, choose_speaker, make_template, patch_memory, rewrite_memory, take_notes
from memeplex.errors import ModelError
from memeplex.memory import MemoryScope
from memeplex.memory.intrinsic import IntrinsicSettings
from memeplex.memory.notes import key_terms
from memeplex.memory.template import Mode, Slot, Template
from memeplex.messages import Turn
from memeplex.models import ChatMessage, Model, Settings, schema_model
from memeplex.storage import MemoryVersion
from memeplex.teams import read_team
from memeplex.usage import Purpose

__all__ = ["PROBES", "Probe", "text_call"]

_TASK = "Design a store for sensor data: 2 TB a day, kept for 24 months, in the EU."
_SAID = "We store the raw data as Parquet files in S3, region eu-central-1, and delete it after 24 months."
_ROLE = "Data Engineer. You decide how the data is stored."
_TEMPLATE = Template(
    slots=(Slot(name="storage", description="formats and stores"), Slot(name="figures", description="volumes"))
)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One call. ``needed`` says whether teams with default settings make it; ``instead`` what to do without it."""

    what: str
    call: Callable[[Model], Awaitable[str]]
    instead: str
    needed: Callable[[Model], bool] = lambda model: True


def _settings(tokens: int) -> Settings:
    return Settings(purpose=Purpose.PROBE, max_tokens=tokens, temperature=0.0, seed=1)


def _never(model: Model) -> bool:
    return False


def _small(model: Model) -> bool:
    """Whether memories are in mode ``notes`` by default."""
    scope = MemoryScope(agent="", role="", model=model, record=_forget)
    return IntrinsicSettings().open(scope).mode == "notes"


async def _forget(version: MemoryVersion) -> None:
    """A probe leaves nothing behind."""


async def _text(model: Model) -> str:
    messages: list[ChatMessage] = [{"role": "user", "content": "Say in one short sentence what a data pipeline is."}]
    return (await model.generate(messages, None, _settings(48))).text


async def _vote(model: Model) -> str:
    vote = await cast_vote(
        model, _settings(96), proposal=_SAID, criteria=["It names the store."], name="DEA", role=_ROLE
    )
    return vote.output.vote


async def _notes(model: Model) -> str:
    done = await take_notes(
        model, _update("notes"), _settings(160), role=_ROLE, output=_SAID, slots=_TEMPLATE.slots, limit=3
    )
    return _held(done.output)


async def _rewrite(model: Model) -> str:
    done = await rewrite_memory(
        model, _update("rewrite"), _settings(400), role=_ROLE, memory="", output=_SAID, slots=_TEMPLATE.slots
    )
    return _held(done.output)


async def _patch(model: Model) -> str:
    done = await patch_memory(
        model, _update("patch"), _settings(400), role=_ROLE, memory="", output=_SAID, slots=_TEMPLATE.slots
    )
    return _held(done.output)


async def _template(model: Model) -> str:
    made = await make_template(model, _settings(400), task=_TASK, role=_ROLE)
    return ", ".join(slot.name for slot in made.output.slots)


async def _speaker(model: Model) -> str:
    team = {"DEA": _ROLE, "IA": "Infrastructure Engineer."}
    turns = [Turn(index=0, speaker="DEA", content=_SAID)]
    return (await choose_speaker(model, _settings(40), task=_TASK, team=team, turns=turns)).output.speaker


async def _document(model: Model) -> str:
    output = schema_model("Document", read_team("data-pipeline").output or {})
    asked = f"Write the final design of this task as a document.\n<task>\n{_TASK}\n</task>\n{_SAID}"
    messages: list[ChatMessage] = [{"role": "user", "content": asked}]
    made = await model.generate(messages, output, _settings(640))
    return f"{len(made.text)} characters, valid"


def _update(mode: Mode) -> type[BaseModel]:
    output = _TEMPLATE.output(mode)
    return output or BaseModel


def _held(output: BaseModel | None) -> str:
    """What the memory would hold.

    Raises:
        ModelError: nothing of what was said; a valid reply alone is no memory.
    """
    held = "; ".join(f"{k}: {', '.join(v)}" for k, v in _TEMPLATE.read(output).items()) if output else ""
    if not key_terms(held) & key_terms(_SAID):
        raise ModelError(f"the reply is valid, but holds nothing of what was said: {held or 'empty'}")
    return held


text_call = Probe(what="text", call=_text, instead="choose another model with --model")

PROBES = (
    Probe(what="vote", call=_vote, instead="use a team with speakers: round_robin, which does not vote"),
    Probe(
        what="memory, mode notes",
        call=_notes,
        instead="--memory intrinsic,mode=rewrite, or --memory none",
        needed=_small,
    ),
    Probe(
        what="memory, mode rewrite",
        call=_rewrite,
        instead="--memory intrinsic,mode=notes, or --memory none",
        needed=lambda model: not _small(model),
    ),
    Probe(
        what="memory, mode patch",
        call=_patch,
        instead="--memory intrinsic,mode=notes, or mode=rewrite",
        needed=_never,
    ),
    Probe(what="generated template", call=_template, instead="--template generic, or manual slots", needed=_never),
    Probe(what="model chooses speaker", call=_speaker, instead="speakers: round_robin or moderated", needed=_never),
    Probe(what="document of data-pipeline", call=_document, instead="choose a larger model with --model"),
)
"""One for each schema in use."""
