"""Episodes: one agent's record of one task.

Source: Scaling Teams or Scaling Time?, section 3: task context, team composition, actions, outcome, environment
context and lessons.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memeplex.messages import Outcome, Task, one_line
from memeplex.storage import Provenance, Record

__all__ = ["EPISODE", "Episode", "as_episode", "record_of", "succeeded"]

EPISODE = "episode"
"""The kind of these records."""

_NO_CONTEXT = frozenset({"type", "expect"})
"""What a task's data holds beside its context. What is expected of an answer must not get into a memory."""

_TOLD = ("feedback", "answer")
"""Of an outcome's details, what a lesson may be drawn from."""

_AGREED = frozenset({"consensus", "completed"})


class Episode(BaseModel):
    """What an episode record holds beside its text, which is the task.

    ``quality`` is that of the collaboration, from 0 to 1, where somebody has judged it. ``procedures`` are those that
    the agent had before it; whether the task succeeded counts for them.
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

    @property
    def told(self) -> str:
        """How it ended, in a line, with what was said of it."""
        said = [f"error: {self.error}"] if self.error else []
        said += [str(value) for key, value in self.details.items() if key in _TOLD and isinstance(value, str)]
        return one_line(". ".join([f"{'success' if self.success else 'failure'} ({self.status})", *said]), 400)


def succeeded(outcome: Outcome) -> bool:
    """Whether a task counts as done. Where nobody has judged it, an agreed or a completed conversation does."""
    return outcome.status in _AGREED if outcome.success is None else outcome.success


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
    turns: Sequence[int],
    actions: Sequence[str],
    procedures: Sequence[str],
) -> Record:
    """The record of one task, without lessons as yet."""
    details = dict(outcome.details)
    quality = details.pop("quality", None)
    episode = Episode(
        team=tuple(sorted(team)),
        type=str(task.data.get("type", "")),
        actions=tuple(actions),
        success=succeeded(outcome),
        status=outcome.status,
        reward=outcome.reward,
        error=str(details.pop("error", "")),
        details=details,
        context={key: value for key, value in task.data.items() if key not in _NO_CONTEXT},
        quality=quality if isinstance(quality, int | float) else None,
        procedures=tuple(procedures),
    )
    return Record(
        owner=owner,
        kind=EPISODE,
        text=task.text,
        key=f"{run}/{agent}",
        payload=episode.model_dump(mode="json"),
        provenance=Provenance(run=run, turns=tuple(turns), author=agent, model=model),
    )
