"""The states of an agent: which can follow which, what is taken in each, and where others can see it.

Source: Memetic Agents, "State Management" and its table; the transitions are those of its code. A state is one record
in the store. What an agent does in a state is a routine (``routines.py``), and afterwards it is available again.
"""

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from memeplex.errors import ConflictError, StateError, UnknownNameError
from memeplex.messages import MessageKind, utc_now
from memeplex.storage import Record, Records

__all__ = ["ACTIVE", "STANDING", "TAKES", "TRANSITIONS", "Standing", "Standings", "State", "state_named"]

STANDING = "state"
"""The kind of the record that says how an agent stands."""


class State(StrEnum):
    """What an agent is at. Available is where it rests, and where it returns to."""

    AVAILABLE = "available"
    LEARNING = "learning"
    MEMORISING = "memorising"
    SOCIALISING = "socialising"
    SLEEPING = "sleeping"
    SHUTTING_DOWN = "shutting down"


_BACK = frozenset({State.AVAILABLE, State.SHUTTING_DOWN})

TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.AVAILABLE: frozenset(State) - {State.AVAILABLE},
    State.LEARNING: _BACK,
    State.MEMORISING: _BACK,
    State.SOCIALISING: _BACK,
    State.SLEEPING: _BACK,
    State.SHUTTING_DOWN: frozenset(),
}
"""Which states can follow. One that has shut down begins anew, as another process would."""

TAKES: Mapping[State, frozenset[MessageKind]] = {
    State.AVAILABLE: frozenset({MessageKind.STANDARD, MessageKind.FEEDBACK}),
    State.LEARNING: frozenset(),
    State.MEMORISING: frozenset(),
    State.SOCIALISING: frozenset({MessageKind.SOCIAL}),
    State.SLEEPING: frozenset(),
    State.SHUTTING_DOWN: frozenset(),
}
"""Which kinds of messages an agent deals with in a state. All others wait in its queue until it does."""

_ANSWERING = frozenset({"cached", "paper", "converse", "system", "reasoning", "cast_vote"})
_WORKING = frozenset(
    {
        "thought_loop",
        "give_feedback",
        "take_notes",
        "patch_memory",
        "rewrite_memory",
        "make_template",
        "choose_speaker",
        "draw_lessons",
        "write_procedure",
    }
)

ACTIVE: Mapping[State, frozenset[str]] = {
    State.AVAILABLE: _ANSWERING | _WORKING,
    State.LEARNING: _ANSWERING | {"revise_prompt", "evaluate_prompt", "judge"},
    State.MEMORISING: frozenset({"extract_memories", "reflect_on_memories", "reflect_on_feedback"}),
    State.SOCIALISING: _ANSWERING | {"revise_prompt", "evaluate_prompt"},
    State.SLEEPING: frozenset(),
    State.SHUTTING_DOWN: frozenset(),
}
"""Which prompts an agent uses in a state, by their names. In others they are out of its reach."""


def state_named(text: str) -> State:
    """The state of a name; ``shutting-down`` and ``SHUTTING_DOWN`` are ``shutting down``.

    Raises:
        UnknownNameError: there is none; it names those that are.
    """
    name = text.strip().casefold().replace("_", " ").replace("-", " ")
    try:
        return State(name)
    except ValueError:
        close = get_close_matches(name, list(State), n=1)
        known = ", ".join(State)
        remedy = f"did you mean {close[0]!r}? known: {known}" if close else f"known: {known}"
        raise UnknownNameError("state", text, list(State), remedy=remedy) from None


class Standing(BaseModel):
    """How an agent stands: its state, since when, and why.

    ``number`` counts its transitions. ``began`` is when it began to live, and ``entered`` when it was last in each
    state, by the clock that it lives by.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: State = State.AVAILABLE
    since: datetime = Field(default_factory=utc_now)
    began: datetime = Field(default_factory=utc_now)
    cause: str = ""
    number: int = 0
    entered: dict[State, datetime] = Field(default_factory=dict)

    def then(self, state: State, *, at: datetime, cause: str) -> "Standing":
        """The standing after one more transition."""
        entered = {**self.entered, state: at}
        return Standing(state=state, since=at, began=self.began, cause=cause, number=self.number + 1, entered=entered)


class Standings:
    """How the agents of a store stand. Everybody may look; an agent's own life changes it."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def of(self, owner: str) -> Standing | None:
        """How an agent stands; ``None`` if it has never lived."""
        record = await self._records.by_key(owner, STANDING, STANDING)
        return None if record is None else Standing.model_validate(record.payload)

    async def all(self) -> dict[str, Standing]:
        """Every agent that has lived, by its owner's key."""
        owners = [owner for owner, kinds in (await self._records.owners()).items() if STANDING in kinds]
        found = {owner: await self.of(owner) for owner in owners}
        return {owner: standing for owner, standing in found.items() if standing is not None}

    async def begin(self, owner: str, *, actor: str, at: datetime, cause: str) -> Standing:
        """An agent that begins to live, or does so anew after it had shut down: it is available."""
        present = await self.of(owner)
        if present is not None and present.state is not State.SHUTTING_DOWN:
            return present
        fresh = (present or Standing(since=at, began=at)).then(State.AVAILABLE, at=at, cause=cause)
        await self._keep(owner, fresh, actor=actor)
        return fresh

    async def change(self, owner: str, state: State, *, actor: str, at: datetime, cause: str) -> Standing:
        """Go over to another state, if it can follow.

        Raises:
            StateError: it cannot; it names those that can.
        """
        present = await self.of(owner) or Standing(since=at, began=at)
        possible = [one for one in State if one in TRANSITIONS[present.state]]
        if state not in possible:
            raise StateError(
                f"{owner} is {present.state}, and cannot be {state} next", state=present.state, possible=possible
            )
        fresh = present.then(state, at=at, cause=cause)
        await self._keep(owner, fresh, actor=actor)
        return fresh

    async def _keep(self, owner: str, standing: Standing, *, actor: str) -> None:
        record = await self._records.by_key(owner, STANDING, STANDING)
        payload, text = standing.model_dump(mode="json"), f"{standing.state} since {standing.since:%Y-%m-%d %H:%M}"
        if record is None:
            first = Record(owner=owner, kind=STANDING, text=text, key=STANDING, payload=payload)
            await self._records.add([first], actor=actor, cause=standing.cause)
            return
        if record.payload["number"] != standing.number - 1:
            raise ConflictError(f"the state of {owner} was changed meanwhile", yours=standing, theirs=record.payload)
        changed = record.model_copy(update={"payload": payload, "text": text})
        await self._records.edit(changed, actor=actor, cause=standing.cause)
