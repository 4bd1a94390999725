"""From a reply to a validated object: schemas, repair, validation.

Who asks again when a reply is invalid, and how, is in ``generator``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic

from pydantic import BaseModel, RootModel, ValidationError, model_validator

from memeplex.errors import UserError
from memeplex.messages import clean_text, one_line
from memeplex.models.base import Output

__all__ = [
    "Mode",
    "Verdict",
    "json_schema",
    "judge",
    "parse_reply",
    "response_format",
    "schema_model",
]


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


_SCHEMA_REMEDY = "json-schema.org/draft/2020-12 says what a schema may hold"


def schema_model(name: str, schema: Mapping[str, object]) -> type[RootModel[Any]]:
    """A model class that accepts what a JSON Schema accepts; ``.root`` is the plain value.

    Raises:
        UserError: it is not a JSON Schema, or it refers to something outside itself.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        document = deepcopy(dict(schema))
        kind = validator_for(document, default=Draft202012Validator)
        kind.check_schema(document)
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(document))
        for reference in _references(document):
            # Anything else would be fetched from the network while a reply is validated.
            if not reference.startswith("#"):
                raise UserError(f"the schema {name!r} refers to {reference!r}", remedy="put it into $defs")
            resolver.lookup(reference)
    except SchemaError as error:
        fault = f"is not a JSON Schema: {one_line(error.message)}"
        raise UserError(f"the schema {name!r} {fault}", remedy=_SCHEMA_REMEDY) from error
    except Unresolvable as error:
        raise UserError(f"the schema {name!r} has nothing at {error.ref!r}", remedy="put it into $defs") from error
    except (AttributeError, TypeError) as error:
        # A $schema or $id that is no text.
        raise UserError(f"the schema {name!r} is not a JSON Schema", remedy=_SCHEMA_REMEDY) from error
    except RecursionError as error:
        raise UserError(f"the schema {name!r} is nested too deeply", remedy="use $defs and $ref") from error
    validator = kind(document)

    class Document(RootModel[Any]):
        @model_validator(mode="before")
        @classmethod
        def _accept(cls, value: Any) -> Any:
            if error := best_match(validator.iter_errors(value)):
                raise ValueError(f"{error.json_path}: {one_line(error.message)}")
            return value

        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return deepcopy(document)

    Document.__name__ = Document.__qualname__ = name
    Document.__doc__ = f"A value that satisfies the schema {name!r}."
    return Document


_OPENERS = {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "if"}
"""Keywords that decide for themselves which properties an object may have."""


def _inline(node: Any, table: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(item, table, path) for item in node]
    if not isinstance(node, dict):
        return node
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in table and name not in path:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _inline({**table[name], **rest}, table, (*path, name))
    inlined = {key: _inline(value, table, path) for key, value in node.items()}
    if inlined.get("type") == "object" and "properties" in inlined and not _OPENERS & inlined.keys():
        inlined["additionalProperties"] = False
    return inlined


def json_schema(output: type[BaseModel]) -> dict[str, Any]:
    """The schema of ``output`` without ``$defs``, which weak engines mishandle; recursive ones stay.

    Bounds such as ``maxLength`` and ``maxItems`` are kept, and an object that says nothing of further properties is
    closed: a weak model would otherwise run on, or invent properties until its tokens are spent.
    """
    schema = output.model_json_schema()
    body = {key: value for key, value in schema.items() if key != "$defs"}
    flat: dict[str, Any] = _inline(body, schema.get("$defs", {}), ())
    return schema if any(_references(flat)) else flat


def _strict(node: object) -> bool:
    """Whether OpenAI's strict mode takes the schema: objects closed, and every property required."""
    if isinstance(node, list):
        return all(map(_strict, node))
    if not isinstance(node, dict):
        return True
    if node.get("type") == "object":
        closed = node.get("additionalProperties") is False
        if not closed or set(node.get("properties", ())) != set(node.get("required", ())):
            return False
    return all(map(_strict, node.values()))


_START = re.compile(r"""\{\s*(?:["'}]|\w+\s*:)|\[\s*(?:["'\[{\]]|-?\d|true|false|null)""")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)


def _clean(value: Any) -> Any:
    """Escapes such as ``\\ud800`` bring back what ``clean_text`` removed from the reply."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    return value


def _hollow(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_hollow, value.values()))
    if isinstance(value, list):
        return all(map(_hollow, value))
    return value is None or value == ""


_OBJECTS = 500
"""In a broken reply at most: repairing takes time by the square of them, a second for so many."""


def _repair(text: str) -> Any:
    from json_repair import repair_json

    if text.count("{") > _OBJECTS:
        return None
    try:
        value = json.loads(repair_json(text.rstrip("`\n "), skip_json_loads=True), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if text.startswith("{") and isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, dict if text.startswith("{") else list) else None


def parse_reply(text: str) -> list[tuple[Any, bool]]:
    """JSON values found in a reply, the likeliest first, each with whether it had to be repaired.

    Fences and prose around the JSON are ignored. What is broken (truncated, badly escaped) is repaired,
    unless nothing but emptiness comes out: an empty list means that the reply holds no JSON.
    """
    try:
        return [(_clean(_decoder.decode(text.strip())), False)]
    except (ValueError, RecursionError):
        pass
    found: list[tuple[int, Any, bool]] = []
    position = 0
    while match := _START.search(text, position):
        try:
            value, position = _decoder.raw_decode(text, match.start())
            found.append((position - match.start(), value, False))
        except (ValueError, RecursionError):
            # Whatever parses further in is a part of this broken value, not the answer: repair and stop.
            value = _repair(text[match.start() :])
            if not _hollow(value):
                found.append((len(text) - match.start(), value, True))
            break
    found.sort(key=lambda item: -item[0])
    return [(_clean(value), repaired) for _, value, repaired in found]


def _explain(error: ValidationError) -> str:
    faults = [f"{'.'.join(map(str, e['loc'])) or 'reply'}: {e['msg']}" for e in error.errors(include_url=False)]
    return one_line("; ".join(faults[:3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Generic[Output]):
    """What a reply is worth: a validated ``value``, or an ``error``; ``blank`` when it holds no JSON."""

    value: Output | None = None
    repaired: bool = False
    error: str = "it holds no JSON"
    blank: bool = False


def judge(text: str, output: type[Output]) -> Verdict[Output]:
    """Parse, if need be repair, and validate a reply. Never raises."""
    errors: list[str] = []
    for value, repaired in parse_reply(text):
        try:
            # Through JSON, so that models declared strict take dates and enums as strings.
            made = output.model_validate_json(json.dumps(value))
            return Verdict(value=made, repaired=repaired)
        except ValidationError as error:
            errors.append(_explain(error))
        except RecursionError:
            errors.append("it is nested too deeply")
    return Verdict(error=errors[0]) if errors else Verdict(blank=True)


class Mode(StrEnum):
    """How an endpoint is told the schema, the surest way first."""

    SCHEMA = "json_schema"
    JSON = "json_object"
    PROMPT = "prompt"


def response_format(mode: Mode, name: str, schema: dict[str, Any]) -> dict[str, object] | None:
    """The wire's ``response_format``; ``None`` where the prompt alone has to do."""
    if mode is Mode.PROMPT:
        return None
    if mode is Mode.JSON:
        return {"type": "json_object"}
    label = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "reply"
    return {
        "type": "json_schema",
        "json_schema": {"name": label, "strict": _strict(schema), "schema": schema},
    }
