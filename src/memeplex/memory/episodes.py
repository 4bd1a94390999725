"""Episodes: one agent's record of one task.

Source: Scaling Teams or Scaling Time?, section 3: task context, team composition, actions, outcome, environment
context and lessons.
"""

import math
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memeplex.memory.archive import record_text
from memeplex.memory.topology import joined
from memeplex.messages import Outcome, Task, Turn, one_line
from memeplex.storage import Provenance, Record

__all__ = ["EPISODE", "Episode", "as_episode", "record_of", "succeeded", "type_of"]

EPISODE = "episode"
"""The kind of these records."""

_TOLD = ("feedback", "answer")
"""Of an outcome's details, what a lesson may be drawn from."""

_AGREED = frozenset({"consensus", "completed"})
_NOT_CONTEXT = frozenset({"type", "expect"})
"""Of a task's data: its type has a place of its own, and the answer it is judged by is nobody's to remember."""


class Episode(BaseModel):
    """What an episode record holds beside its text, which is the task.

    ``quality`` is that of the collaboration, from 0 to 1, where somebody has judged it. ``procedures`` are those that
    the agent had before it; whether the task succeeded counts for them. ``shown`` are the episodes that it had.
    """

    model_config = ConfigDict(extra="ignore")

    team: tuple[str, ...]
    type: str = ""
    actions: tuple[str, ...] = ()
    success: bool
    status: str
    reward: float | None = None
    error: str = ""
    details: dict[str, Any] = Field(default_factory=dict)
    context: dict[str, Any] = Field(default_factory=dict)
    lessons: tuple[str, ...] = ()
    quality: float | None = None
    procedures: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """How it ended, in a line, with what was said of it."""
        said = [f"error: {self.error}"] if self.error else []
        reward = "" if self.reward is None else f", reward {self.reward:g}"
        said += [str(value) for key, value in self.details.items() if key in _TOLD and isinstance(value, str)]
        return one_line(". ".join([f"{'success' if self.success else 'failure'} ({self.status}{reward})", *said]), 400)


def succeeded(outcome: Outcome) -> bool:
    """Whether a task counts as done. Where nobody has judged it, an agreed or a completed conversation does."""
    return outcome.status in _AGREED if outcome.success is None else outcome.success


def type_of(task: Task) -> str:
    """The type that a task declares in its data; empty where it declares none."""
    return str(task.data.get("type", ""))


def as_episode(record: Record) -> Episode:
    """The episode in a record."""
    return Episode.model_validate(record.payload)


def record_of(
    task: Task,
    outcome: Outcome,
    *,
    owner: str,
    run: str,
    agent: str,
    team: Sequence[str],
    model: str,
    turns: Sequence[Turn],
    procedures: Sequence[str],
    shown: Sequence[str],
) -> Record:
    """The record of one task, without lessons as yet. ``turns`` are the agent's own."""
    details = dict(outcome.details)
    quality = details.pop("quality", None)
    episode = Episode(
        team=tuple(sorted(set(team))),
        type=type_of(task),
        actions=tuple(turn.content for turn in turns),
        success=succeeded(outcome),
        status=outcome.status,
        reward=_finite(outcome.reward),
        error=str(details.pop("error", "")),
        details=_finite(details),
        context=_finite({key: value for key, value in task.data.items() if key not in _NOT_CONTEXT}),
        quality=_finite(quality) if isinstance(quality, int | float) else None,
        procedures=tuple(procedures),
        shown=tuple(shown),
    )
    return Record(
        owner=owner,
        kind=EPISODE,
        text=record_text(task.text),
        key=joined(run, agent),
        payload=episode.model_dump(mode="json"),
        provenance=Provenance(run=run, turns=tuple(turn.index for turn in turns), author=agent, model=model),
    )


def _finite(value: Any) -> Any:
    """A value without the numbers that JSON cannot hold: a reward that could not be reckoned is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
