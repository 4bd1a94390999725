"""What an agent keeps: one protocol, one file for each design."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from memeplex.errors import UserError
from memeplex.memory.base import Memory, MemoryScope, MemorySettings, Recollection
from memeplex.memory.notes import condense
from memeplex.registry import Registry

__all__ = [
    "Memory",
    "MemoryScope",
    "MemorySettings",
    "Recollection",
    "condense",
    "create_memory",
    "memories",
    "parse_memory",
]

memories = Registry(
    "memory",
    "memeplex.memory",
    {
        "intrinsic": "memeplex.memory.intrinsic:IntrinsicSettings",
        "none": "memeplex.memory.baselines.none:NoMemorySettings",
        "paper": "memeplex.memory.intrinsic:paper",
    },
)
"""Settings of memory designs by name: called with a design's arguments, they give a ``MemorySettings``."""


def create_memory(name: str, arguments: Mapping[str, Any] | None = None) -> MemorySettings:
    """The memory design of that name, with its arguments.

    Raises:
        UnknownNameError: there is no such design.
        UserError: it has no such argument, or not with that value.
    """
    try:
        settings: MemorySettings = memories.load(name)(**(arguments or {}))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise UserError(f"memory {name}: {where}: {fault['msg']}") from error
    except TypeError as error:
        raise UserError(f"memory {name} does not take these arguments: {sorted(arguments or {})}") from error
    return settings


def parse_memory(text: str) -> dict[str, Any]:
    """``NAME,argument=value,…`` as a mapping with ``kind``, such as ``intrinsic,mode=patch,source=heard``."""
    kind, *pairs = (part.strip() for part in text.split(","))
    arguments: dict[str, Any] = {"kind": kind}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise UserError(f"memory {text!r}: {pair!r} is not argument=value")
        arguments[key.strip()] = value.strip()
    return arguments
