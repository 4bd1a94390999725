"""What an agent keeps: one protocol, one file for each design."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, get_type_hints

from pydantic import ValidationError

from memeplex.errors import UserError
from memeplex.memory.base import Lasting, Memory, MemoryScope, MemorySettings, Recollection
from memeplex.memory.combined import CombinedSettings
from memeplex.memory.notes import condense
from memeplex.registry import Registry

__all__ = [
    "Lasting",
    "Memory",
    "MemoryScope",
    "MemorySettings",
    "Recollection",
    "argument_error",
    "combine_memories",
    "condense",
    "create_memory",
    "memories",
    "parse_memory",
    "takes",
]

memories = Registry(
    "memory",
    "memeplex.memory",
    {
        "intrinsic": "memeplex.memory.intrinsic:IntrinsicSettings",
        "lifelong": "memeplex.memory.lifelong:LifelongSettings",
        "none": "memeplex.memory.baselines.none:NoMemorySettings",
        "paper": "memeplex.memory.intrinsic:paper",
        "tiers": "memeplex.memory.tiers:TiersSettings",
    },
)
"""Settings of memory designs by name: called with a design's arguments, they give a ``MemorySettings``."""


def create_memory(name: str, arguments: Mapping[str, Any] | None = None) -> MemorySettings:
    """The memory design of that name, with its arguments.

    Raises:
        UnknownNameError: there is no such design.
        UserError: it has no such argument, or not with that value.
    """
    design = memories.load(name)
    try:
        settings: MemorySettings = design(**(arguments or {}))
    except ValidationError as error:
        raise argument_error(f"memory {name}", design, error) from error
    except TypeError as error:
        raise UserError(
            f"memory {name} does not take {', '.join(sorted(arguments or {}))}",
            remedy=f"leave out what {name} sets by itself",
        ) from error
    return settings


def combine_memories(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> MemorySettings:
    """One memory out of several designs, each by its name and arguments: what each brings back stands side by side.

    Raises:
        UnknownNameError: there is no such design.
        UserError: there is none, a design stands there twice, or it has no such argument.
    """
    made = [create_memory(name, arguments) for name, arguments in parts]
    designs = [type(settings) for settings in made]
    if not made or len(set(designs)) < len(designs):
        raise UserError(
            f"memories {', '.join(name for name, _ in parts)}: one agent has each design once",
            remedy="name different ones, such as [intrinsic, lifelong]",
        )
    return made[0] if len(made) == 1 else CombinedSettings(tuple(made))


def takes(name: str, argument: str) -> bool:
    """Whether the memory design of that name has that argument.

    A function that hands on what it does not name takes what the settings take that it is annotated to give.

    Raises:
        UnknownNameError: there is no such design.
    """
    design = memories.load(name)
    parameters = signature(design).parameters
    if argument in parameters or all(p.kind is not Parameter.VAR_KEYWORD for p in parameters.values()):
        return argument in parameters
    made = get_type_hints(design).get("return")
    return isinstance(made, type) and argument in signature(made).parameters


def argument_error(what: str, design: Any, error: ValidationError) -> UserError:
    """Which argument ``what`` does not take, or not with that value, and which it does; for policies too."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        known = [p.name for p in signature(design).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        close = get_close_matches(where, known, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}" if known else "leave it out"
        return UserError(f"{what}: unknown argument {where!r}", remedy=remedy)
    if fault["type"] == "missing":
        return UserError(f"{what}: the argument {where!r} is missing", remedy="give it")
    # What a validator of ours says needs no word of Pydantic's before it.
    text = str(fault["ctx"]["error"]) if fault["type"] == "value_error" else str(fault["msg"])
    return UserError(f"{what}: {f'{where}: ' if where else ''}{text}", remedy="mend the value, or leave it out")


def parse_memory(text: str) -> dict[str, Any] | list[dict[str, Any]]:
    """``NAME,argument=value,…`` as a mapping with ``kind``, such as ``intrinsic,mode=patch,source=heard``.

    Several, joined by ``+``, are a list of such mappings: ``intrinsic+lifelong,topology=shared``.
    """
    parts = [_parse_one(part) for part in text.split("+")]
    return parts if len(parts) > 1 else parts[0]


def _parse_one(text: str) -> dict[str, Any]:
    kind, *pairs = (part.strip() for part in text.split(","))
    arguments: dict[str, Any] = {"kind": kind}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise UserError(
                f"memory {text!r}: {pair!r} is not argument=value",
                remedy=f"write {kind},argument=value,… or {kind} alone",
            )
        arguments[key.strip()] = value.strip()
    return arguments
