"""The structure of an intrinsic memory: a template of typed, size-capped slots.

Source: Intrinsic Memory Agents, appendix B.1: manual, generic and generated templates.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model, model_validator

from memeplex.autonoms.make_template import ProposedTemplate

__all__ = ["GENERIC", "NOTES", "Content", "Mode", "Slot", "Template"]

Mode = Literal["rewrite", "patch", "notes"]
Content = dict[str, list[str]]
"""What a memory holds: the notes of each slot; a slot of text has at most one."""

NOTES = 5
"""Notes that one update may bring for a slot."""
_NOTE = Annotated[str, StringConstraints(max_length=100)]


_FIELD = "Slot_"
"""In front of a field whose slot is called as something of Pydantic's is: schema, copy, model_dump."""
_OUTPUT = ConfigDict(
    extra="forbid",
    protected_namespaces=(),
    serialize_by_alias=True,
    alias_generator=lambda name: name.removeprefix(_FIELD),
)


class Slot(BaseModel):
    """One named part of a memory. ``max_chars`` caps a text, and the sum of a list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    description: str = ""
    type: Literal["text", "list"] = "text"
    max_chars: int = Field(default=400, ge=20, le=20_000)


class Template(BaseModel):
    """Slots by name. Without ``named`` the model is told of no slot: the generic template."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: tuple[Slot, ...] = Field(min_length=1)
    named: bool = True

    @model_validator(mode="after")
    def _distinct(self) -> "Template":
        names = [slot.name for slot in self.slots]
        if len(set(names)) < len(names):
            raise ValueError("two slots have the same name")
        return self

    @classmethod
    def proposed(cls, proposal: ProposedTemplate) -> "Template":
        """A template out of what a model proposed; names are put in order, doubles dropped."""
        slots: dict[str, Slot] = {}
        for slot in proposal.slots:
            name = re.sub(r"[^a-z0-9]+", "_", slot.name.casefold()).strip("_")[:32].lstrip("0123456789_")
            if name:
                slots.setdefault(name, Slot(name=name, description=slot.description))
        return cls(slots=tuple(slots.values()) or GENERIC.slots, named=bool(slots))

    def output(self, mode: Mode) -> type[BaseModel] | None:
        """The schema of an update: all slots, only changed slots, or new notes for each slot.

        ``None`` for a rewrite of the generic template: its text is the memory, in any form.
        """
        if mode == "rewrite" and not self.named:
            return None
        fields: dict[str, Any] = {}
        for slot in self.slots:
            if mode == "notes":
                least = 1 if len(self.slots) == 1 else 0
                fields[_field(slot.name)] = (Annotated[list[_NOTE], Field(min_length=least, max_length=NOTES)], ...)
            else:
                kind = _list(slot) if slot.type == "list" else _text(slot)
                fields[_field(slot.name)] = (kind, ... if mode == "rewrite" else _nothing(slot))
        return create_model("Memory", __config__=_OUTPUT, **fields)

    def read(self, output: BaseModel) -> Content:
        """The content of an update, slot by slot; empty ones are left out."""
        content: Content = {}
        for name, value in output.model_dump().items():
            entries = value if isinstance(value, list) else [value or ""]
            if kept := [entry.strip() for entry in entries if entry.strip()]:
                content[name] = kept
        return content

    def blocks(self, content: Content) -> tuple[str, ...]:
        """The content as text, cut where it may be cut: by slot, or by line where there are no named slots."""
        if self.named:
            return tuple(f"{name}: {'; '.join(content[name])}" for name in self._order(content))
        lines = [line for name in self._order(content) for entry in content[name] for line in entry.split("\n")]
        return tuple(line for line in lines if line.strip())

    def _order(self, content: Content) -> list[str]:
        return [slot.name for slot in self.slots if content.get(slot.name)]


def _field(name: str) -> str:
    return _FIELD + name if hasattr(BaseModel, name) else name


def _text(slot: Slot) -> Any:
    return Annotated[str, StringConstraints(max_length=slot.max_chars)]


def _list(slot: Slot) -> Any:
    return Annotated[list[_NOTE], Field(max_length=max(slot.max_chars // 50, 1))]


def _nothing(slot: Slot) -> Any:
    return Field(default_factory=list) if slot.type == "list" else ""


GENERIC = Template(slots=(Slot(name="notes", max_chars=4_000),), named=False)
"""No reference to any problem or field; free representation (appendix B.1.2)."""
