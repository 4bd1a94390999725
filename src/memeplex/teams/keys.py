"""What a team file may say: its keys, their types and their defaults."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from memeplex.agents import Layout
from memeplex.memory.template import Slot
from memeplex.messages import is_name
from memeplex.teams.termination import Flagged, MaxTokens, MaxTurns, Stalled, Termination

__all__ = ["AgentSpec", "Kind", "Kinds", "TeamSpec", "TerminationSpec"]


def _kind(value: object) -> object:
    name = value.get("kind") if isinstance(value, dict) else value
    if not isinstance(name, str):
        raise ValueError("has no kind" if isinstance(value, dict) else "is neither a name nor a mapping with a kind")
    return value


Kind = Annotated[dict[str, Any] | str, BeforeValidator(_kind)]
"""A name, or a mapping whose ``kind`` is the name and whose other keys are arguments."""


def _kinds(value: object) -> object:
    if not isinstance(value, list):
        return _kind(value)
    if not value:
        raise ValueError("names nothing")
    return [_kind(one) for one in value]


Kinds = Annotated[dict[str, Any] | str | list[dict[str, Any] | str], BeforeValidator(_kinds)]
"""A ``Kind``, or several that are used as one."""


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentSpec(_Spec):
    """One agent. What is left out is taken from the team. ``slots`` are the manual template of its memory.

    They are used unless the team or the memory names another template.
    """

    name: str = Field(min_length=1, max_length=64, pattern=r"^[^\s\[\]]+$")
    role: str = Field(min_length=1)
    reasoning: str = ""
    model: str | None = None
    memory: Kinds | None = None
    slots: list[Slot] = Field(default_factory=list)
    max_tokens: int | None = Field(default=None, ge=8)
    temperature: float | None = Field(default=None, ge=0, le=2)

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        if not is_name(name):
            raise ValueError("a name has no spaces, brackets or invisible characters")
        return name

    @field_validator("slots")
    @classmethod
    def _distinct(cls, slots: list[Slot]) -> list[Slot]:
        return _once(slots, "slots")


class TerminationSpec(_Spec):
    """The conversation is over when any of these is reached."""

    max_turns: int = Field(default=40, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    flag: str | None = None
    stalled: int = Field(default=6, ge=1)

    def build(self) -> Termination:
        """All conditions, joined by "or"."""
        whole: Termination = MaxTurns(self.max_turns) | Stalled(self.stalled)
        if self.max_tokens is not None:
            whole = whole | MaxTokens(self.max_tokens)
        return whole if self.flag is None else whole | Flagged(self.flag)


class TeamSpec(_Spec):
    """A whole team, as a team file describes it. ``output`` is the JSON Schema of the final document."""

    name: str = Field(min_length=1)
    description: str = ""
    task: str = ""
    model: str = "local:qwen2.5-coder-0.5b"
    embedder: str = Field(default="auto", min_length=1)
    memory: Kinds = "intrinsic"
    template: Literal["generic", "generated", "manual"] | None = None
    agents: list[AgentSpec] = Field(min_length=1)
    speakers: Kind = "round_robin"
    termination: TerminationSpec = TerminationSpec()
    output: dict[str, Any] | None = None
    layout: Layout = "cached"
    context_tokens: int | None = Field(default=None, ge=64)
    max_tokens: int = Field(default=256, ge=8)
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    overlap: bool = True

    @field_validator("agents")
    @classmethod
    def _distinct(cls, agents: list[AgentSpec]) -> list[AgentSpec]:
        return _once(agents, "agents")


_Named = TypeVar("_Named", AgentSpec, Slot)


def _once(items: list[_Named], what: str) -> list[_Named]:
    names = [item.name for item in items]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two {what} are named {doubled[0]!r}")
    return items
