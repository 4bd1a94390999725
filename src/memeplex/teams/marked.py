"""YAML whose every value is known by its line, and nothing in it that JSON could not say.

A team is kept as JSON and its schema is sent as JSON, so a date or a NaN would only be found hours later.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from memeplex.errors import TeamFileError

__all__ = ["MarkedFile", "read_marked"]

_MOST_NODES = 200_000
_TAG = "tag:yaml.org,2002:"
_PLAIN = {f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}
_KEYS = {f"{_TAG}{kind}" for kind in ("str", "merge", "value")}


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedFile:
    """The mapping that a file holds, and where its parts stand."""

    path: str
    node: Node
    data: dict[str, Any]

    def error(self, text: str, location: Iterable[int | str], remedy: str) -> TeamFileError:
        """An error with the line of a location."""
        return TeamFileError(text, path=self.path, line=self.line(location), remedy=remedy)

    def line(self, location: Iterable[int | str]) -> int:
        """The line of the deepest node on the way to a location; 1-based."""
        node, line = self.node, self.node.start_mark.line
        for part in location:
            if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            elif isinstance(node, MappingNode):
                entry = next(((k, v) for k, v in node.value if k.value == part), None)
                if entry is None:
                    break
                line, node = entry[0].start_mark.line, entry[1]
        return int(line) + 1


def read_marked(text: str, path: str) -> MarkedFile:
    """The mapping that ``text`` holds.

    Raises:
        TeamFileError: it is not YAML, or no mapping, or holds what JSON has no word for; with the line.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None and _size(node, {}) > _MOST_NODES:
            raise TeamFileError(
                "is too large, or repeats an alias too often", path=path, remedy="write it without aliases"
            )
        data = yaml.safe_load(text)
        faults = () if node is None else (*_doubles(node, set()), *_strange(node, set()))
    except RecursionError as error:
        raise TeamFileError(
            "is nested too deeply, or refers to itself", path=path, remedy="write it with fewer levels"
        ) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        remedy = "mend it there, or in the line before; a text with special characters stands in quotes"
        if "\\t" in str(error.problem):
            remedy = "indent with spaces, not with tabs"
        raise TeamFileError(f"not valid YAML: {error.problem}", path=path, line=line, remedy=remedy) from error
    except yaml.YAMLError as error:
        raise TeamFileError(f"not valid YAML: {error}", path=path, remedy="take that character out") from error
    except ValueError as error:
        # What looks like a date or a number, and is none.
        raise TeamFileError(
            f"holds a value that cannot be: {error}", path=path, remedy="if it is a text, put it in quotes"
        ) from error
    if node is None or not isinstance(data, dict):
        raise TeamFileError("does not describe a team", path=path, remedy="start from a team of the library")
    for place, fault, remedy in faults:
        raise TeamFileError(fault, path=path, line=place.start_mark.line + 1, remedy=remedy)
    return MarkedFile(path=path, node=node, data=data)


def _size(node: Node, known: dict[Node, int]) -> int:
    """How many nodes a file comes to with every alias written out; ten lines can come to billions."""
    if node not in known:
        known[node] = 1 + sum(_size(child, known) for child in _children(node))
    return known[node]


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for entry in node.value for part in entry]
    return cast("list[Node]", node.value) if isinstance(node, SequenceNode) else []


Fault = tuple[Node, str, str]


def _doubles(node: Node, done: set[Node]) -> Iterator[Fault]:
    """Keys that stand twice in one mapping, which YAML itself would pass over in silence."""
    if node in done:
        return
    done.add(node)
    if isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, ScalarNode) and key.value in seen:
                yield key, f"the key {key.value!r} stands twice", "leave one of the two out"
            seen.add(str(key.value))
    for child in _children(node):
        yield from _doubles(child, done)


def _strange(node: Node, done: set[Node]) -> Iterator[Fault]:
    """What YAML reads as something that JSON does not have: dates, NaN, sets, keys that are no texts."""
    if node in done:
        return
    done.add(node)
    if node.tag not in _PLAIN | _KEYS:
        yield node, f"{_word(node)} is a {_kind(node)}, which JSON does not have", "if it is a text, put it in quotes"
    if (
        isinstance(node, ScalarNode)
        and node.tag == f"{_TAG}float"
        and not isfinite(yaml.SafeLoader("").construct_yaml_float(node))
    ):
        yield node, f"{_word(node)} is not a number that JSON has", "write a number, or put it in quotes"
    if isinstance(node, MappingNode):
        for key, _ in node.value:
            if key.tag not in _KEYS:
                yield key, f"the key {_word(key)} is read as a {_kind(key)}, not as a text", "put it in quotes"
    for child in _children(node):
        yield from _strange(child, done)


def _kind(node: Node) -> str:
    kind = str(node.tag).removeprefix(_TAG)
    return {"timestamp": "date", "bool": "truth value", "int": "number", "float": "number"}.get(kind, kind)


def _word(node: Node) -> str:
    return " ".join(str(node.value).split())[:40] if isinstance(node, ScalarNode) else "this"
