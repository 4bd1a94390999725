"""Names to objects: a table of dotted paths for our own, entry points for everyone else's.

Nothing is imported until it is asked for, and nothing registers itself when imported.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from memeplex.errors import UnknownNameError

__all__ = ["Registry"]


class Registry:
    """One room's names. ``group`` is the entry-point group that plug-ins use, such as ``memeplex.memory``."""

    def __init__(self, kind: str, group: str, table: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self.table = dict(table)

    def names(self) -> list[str]:
        """All names that can be loaded, sorted."""
        return sorted({*self.table, *(point.name for point in entry_points(group=self.group))})

    def __contains__(self, name: str) -> bool:
        return name in self.table or bool(entry_points(group=self.group, name=name))

    def load(self, name: str) -> Any:
        """The object of that name.

        Raises:
            UnknownNameError: with the names that exist, or the one that was probably meant.
        """
        if path := self.table.get(name):
            module, _, attribute = path.partition(":")
            return getattr(import_module(module), attribute)
        for point in entry_points(group=self.group, name=name):
            return point.load()
        close = get_close_matches(name, self.names(), n=1)
        raise UnknownNameError(self.kind, name, self.names(), remedy=f"did you mean {close[0]!r}?" if close else "")
