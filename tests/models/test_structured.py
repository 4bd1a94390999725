import json
import socket
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memeplex.errors import UserError
from memeplex.models.structured import Mode, json_schema, judge, parse_reply, response_format, schema_model

SURROGATES = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(SURROGATES, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(SURROGATES, max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(SURROGATES, min_size=1, max_size=5), JSON, max_size=4)
PROSE = st.text(st.characters(exclude_characters='{}[]"0123456789'), max_size=20).filter(
    lambda text: text.strip() not in ("true", "false", "null")
)


class Note(BaseModel):
    model_config = ConfigDict(strict=True)
    text: str = Field(max_length=80)
    day: date | None = None


class Notes(BaseModel):
    notes: list[Note] = Field(max_length=3)


class Optional(BaseModel):
    text: str = ""


def only(text: str) -> Any:
    return parse_reply(text)[0][0]


@given(OBJECTS, PROSE, PROSE, st.booleans(), st.sampled_from([None, 2]))
def test_objects_are_found_within_prose_and_fences(
    value: dict[str, Any], before: str, after: str, fenced: bool, indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = f"{before}\n```json\n{text}\n```\n{after}" if fenced else f"{before} {text} {after}"
    assert parse_reply(text)[0] == (value, False)


@given(OBJECTS, st.data())
def test_truncated_objects_are_repaired_or_refused_never_emptied(value: dict[str, Any], data: st.DataObject) -> None:
    whole = json.dumps(value, ensure_ascii=False)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for found, repaired in parse_reply(cut):
        assert repaired
        assert isinstance(found, dict)
        assert set(found) and found not in ({}, {"": ""})


@given(PROSE)
def test_prose_is_a_failure_not_an_empty_object(text: str) -> None:
    assert parse_reply(text) == []
    assert judge(text, Optional).value is None


@given(st.text())
def test_no_text_makes_parsing_raise(text: str) -> None:
    for value, _ in parse_reply(text):
        json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize("text", ["", "  \n", "{", "[", '{"text": "', "Sure! Here it is: {", "null and void"])
def test_nothing_is_not_repaired_into_an_object(text: str) -> None:
    verdict = judge(text, Optional)
    assert verdict.value is None
    assert verdict.error


def test_an_object_meant_to_be_empty_is_taken() -> None:
    assert judge("{}", Optional).value == Optional()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "x\\q"}', {"a": "x\\q"}),
        ("{'a': 'b',}", {"a": "b"}),
        ('{"a": "he said "no" twice"}', {"a": 'he said "no" twice'}),
        ('```json\n{"a": "b"', {"a": "b"}),
        ('Use {braces} here. {"a": 1}', {"a": 1}),
        ('See [1] and [2]. {"a": {"b": 2}}', {"a": {"b": 2}}),
    ],
)
def test_common_faults_are_repaired(text: str, expected: object) -> None:
    assert only(text) == expected


def test_the_inside_of_a_broken_object_is_not_taken_for_the_answer() -> None:
    text = '{"outer": {"text": "inner"}, "rest": "cut of'
    assert all("outer" in value for value, _ in parse_reply(text))


def test_escaped_nul_and_lone_surrogates_do_not_come_back() -> None:
    assert only('{"a\\u0000": "x\\ud800y\\u0000"}') == {"a": "x\ufffdy"}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "NaN", '{"a": NaN}'])
def test_hostile_replies_do_not_raise(text: str) -> None:
    judge(text, Notes)


def test_strict_models_take_dates_as_strings() -> None:
    verdict = judge('{"notes": [{"text": "t", "day": "2026-11-30"}]}', Notes)
    assert verdict.value == Notes(notes=[Note(text="t", day=date(2026, 11, 30))])


def test_a_fault_is_named_shortly() -> None:
    verdict = judge('{"notes": [{"text": 3}]}', Notes)
    assert verdict.value is None
    assert "notes.0.text" in verdict.error
    assert "\n" not in verdict.error and len(verdict.error) <= 300


def test_sent_schemas_are_self_contained_and_keep_their_bounds() -> None:
    text = json.dumps(json_schema(Notes))
    assert "$ref" not in text and "$defs" not in text
    assert '"maxLength": 80' in text and '"maxItems": 3' in text


def test_objects_that_say_nothing_of_further_properties_are_closed_all_the_way_down() -> None:
    sent = json_schema(Notes)
    inner = sent["properties"]["notes"]["items"]
    assert sent["additionalProperties"] is False and inner["additionalProperties"] is False


@pytest.mark.parametrize("open_by", [{"additionalProperties": True}, {"patternProperties": {"x": {}}}, {"anyOf": [{}]}])
def test_objects_that_decide_for_themselves_stay_as_they_are(open_by: dict[str, Any]) -> None:
    given = {"type": "object", "properties": {"a": {"type": "string"}}, **open_by}
    assert json_schema(schema_model("Given", given)) == given


class Tree(BaseModel):
    children: "list[Tree]" = []


def test_recursive_schemas_keep_their_definitions() -> None:
    assert "Tree" in json_schema(Tree)["$defs"]


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
    ],
)
def test_strict_only_where_openai_takes_it(schema: dict[str, Any], strict: bool) -> None:
    sent: Any = response_format(Mode.SCHEMA, "My schema!", schema)
    assert sent["json_schema"] == {"name": "My_schema_", "strict": strict, "schema": schema}


PERSON = {
    "type": "object",
    "properties": {"name": {"$ref": "#/$defs/name"}},
    "required": ["name"],
    "$defs": {"name": {"type": "string", "maxLength": 5}},
}


def test_a_users_schema_validates_as_json_schema_does() -> None:
    model = schema_model("person", PERSON)
    assert model.model_validate({"name": "Ada"}).root == {"name": "Ada"}
    assert model.model_json_schema() == PERSON
    assert model.__name__ == "person"
    with pytest.raises(ValidationError, match=r"\$\.name"):
        model.model_validate({"name": "Adalberta"})


def test_a_users_schema_is_inlined_when_sent() -> None:
    sent = json_schema(schema_model("person", PERSON))
    assert sent["properties"]["name"] == {"type": "string", "maxLength": 5}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strnig"},
        {"type": "object", "properties": 3},
        {"$ref": "#/$defs/missing"},
        {"type": "string", "pattern": "("},
        {"$schema": 3},
        {"$id": 3, "type": "string"},
        nested(5000),
    ],
)
def test_a_bad_schema_is_the_users_fault(schema: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="broken") as caught:
        schema_model("broken", schema)
    assert caught.value.remedy


def test_a_schema_elsewhere_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sockets(*args: object, **kwargs: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", no_sockets)
    with pytest.raises(UserError, match=r"example\.org"):
        schema_model("remote", {"properties": {"a": {"$ref": "https://example.org/s.json"}}})


def test_a_broken_reply_of_too_many_objects_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repairing takes time by the square of them: a reply of 130,000 characters held up everything for minutes."""
    assert parse_reply('{"a": [' + '{"b": 1}, ' * 400)[0][1]
    monkeypatch.setattr("json_repair.repair_json", lambda *about, **more: pytest.fail("it was to be repaired"))
    for unit in ('{ "', "{]1", "a,}{", '{"b": 1} '):
        assert parse_reply('{ "' + unit * 600) == []
    assert len(parse_reply(json.dumps([{"a": 1}] * 5000))[0][0]) == 5000, "a whole one may have any number"
