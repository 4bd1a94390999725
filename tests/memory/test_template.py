"""Templates: slots, schemas, and how content is printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memeplex.autonoms.make_template import ProposedSlot, ProposedTemplate
from memeplex.errors import UserError
from memeplex.memory import create_memory
from memeplex.memory.template import GENERIC, Mode, Slot, Template
from memeplex.models.structured import json_schema

TWO = Template(slots=(Slot(name="piers", type="list", max_chars=200), Slot(name="budget", max_chars=50)))


def proposed(*names: str) -> Template:
    return Template.proposed(ProposedTemplate(slots=[ProposedSlot(name=n, description=f"about {n}") for n in names]))


def test_proposed_names_are_put_in_order_and_doubles_dropped() -> None:
    made = proposed("Key Decisions!", "key decisions", "2nd_risks", "open-points")
    assert [slot.name for slot in made.slots] == ["key_decisions", "nd_risks", "open_points"]
    assert made.slots[0].description == "about Key Decisions!" and made.named


@given(st.lists(st.text(min_size=2, max_size=32), min_size=2, max_size=5))
def test_any_proposal_gives_a_template(names: list[str]) -> None:
    made = proposed(*names)
    assert made.slots
    assert Template.model_validate(made.model_dump()) == made, "which holds to its own rules"


def test_a_proposal_without_a_usable_name_is_the_generic_template() -> None:
    made = proposed("橋梁", "桥墩")
    assert (made.slots, made.named) == (GENERIC.slots, False)


@pytest.mark.parametrize("name", ["", "Piers", "two words", "1st", "x" * 33, "a-b"])
def test_slot_names_are_plain(name: str) -> None:
    with pytest.raises(ValidationError):
        Slot(name=name)


def test_a_manual_template_names_no_slot_twice() -> None:
    with pytest.raises(UserError, match="same name"):
        create_memory("intrinsic", {"template": "manual", "slots": [{"name": "a"}, {"name": "a"}]})


def test_schemas_are_typed_and_capped() -> None:
    rewrite, patch, notes = (TWO.output(mode) for mode in ("rewrite", "patch", "notes"))
    assert rewrite and patch and notes
    shape = json_schema(rewrite)
    assert shape["required"] == ["piers", "budget"] and shape["additionalProperties"] is False
    assert shape["properties"]["budget"]["maxLength"] == 50
    assert shape["properties"]["piers"]["maxItems"] == 4
    assert shape["properties"]["piers"]["items"]["maxLength"] == 100
    assert "required" not in json_schema(patch)
    assert patch().model_dump() == {"piers": [], "budget": ""}
    for name in ("piers", "budget"):
        slot = json_schema(notes)["properties"][name]
        assert (slot["type"], slot["maxItems"], slot["items"]["maxLength"]) == ("array", 5, 100)


def test_the_generic_template_has_a_schema_only_where_notes_are_taken() -> None:
    assert GENERIC.output("rewrite") is None
    notes = GENERIC.output("notes")
    assert notes and json_schema(notes)["properties"]["notes"]["minItems"] == 1


def test_content_is_printed_slot_by_slot_in_the_templates_order() -> None:
    content = {"budget": ["9 USD"], "piers": ["steel", "12 m"]}
    assert TWO.blocks(content) == ("piers: steel; 12 m", "budget: 9 USD")
    assert TWO.blocks({"piers": [], "gone": ["x"]}) == ()
    assert GENERIC.blocks({"notes": ["- a\n\n- b", "c"]}) == ("- a", "- b", "c")


def test_empty_parts_of_an_update_are_left_out() -> None:
    output = TWO.output("rewrite")
    assert output
    assert TWO.read(output(piers=[" steel ", ""], budget=" ")) == {"piers": ["steel"]}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["rewrite", "patch", "notes"])
def test_a_slot_may_be_called_as_a_method_of_pydantic_is(mode: Mode) -> None:
    names = ["schema", "model_dump", "model_fields", "copy", "piers"]
    output = Template(slots=tuple(Slot(name=name, type="list") for name in names)).output(mode)
    assert output is not None and list(json_schema(output)["properties"]) == names
    held = {name: [f"about {name}"] for name in names}
    assert TWO.read(output.model_validate(held)) == held
