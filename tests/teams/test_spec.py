"""Team files: what is refused, on which line, with which word."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support import act

from memeplex import load_team
from memeplex.errors import MemeplexError, TeamFileError, UnknownNameError
from memeplex.models.testing import FunctionModel
from memeplex.teams import Moderated, TeamSpec, build_team, library_teams, read_team

GOOD = """\
name: t
memory: intrinsic
speakers: round_robin
agents:
  - name: A
    role: You are one.
  - name: B
    role: You are the other.
    memory: none
termination:
  max_turns: 4
"""


def refused(tmp_path: Path, text: str) -> TeamFileError:
    path = tmp_path / "team.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(TeamFileError) as caught:
        read_team(str(path))
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    return caught.value


MODERATED = """\
  kind: moderated
  delegation: A
  workers: [B]
  integration: I
  evaluation: E
  documentation: D
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("name: t", "name: t\ncolour: red", 2, "unknown key 'colour'"),
        ("    role: You are one.", "    role: You are one.\n    rolle: x", 7, "unknown key 'rolle'"),
        ("  max_turns: 4", "  max_turns: 4\n  max_turn: 5", 12, "unknown key 'max_turn'"),
        ("name: t", "name: t\nname: u", 2, "'name' stands twice"),
        ("    role: You are one.", "    role: You are one.\n    role: x", 7, "'role' stands twice"),
        ("  max_turns: 4", "  max_turns: many", 11, "valid integer"),
        ("  max_turns: 4", "  max_turns: 0", 11, "greater than or equal to 1"),
        ("  - name: A", "  - name: [A]", 5, "agents.0.name"),
        ("  - name: A", "  - name: A A", 5, "agents.0.name"),
        ("  - name: B", "  - name: A", 1, "two agents are named 'A'"),
        ("memory: intrinsic", "memory: extrinsic", 2, "no memory named 'extrinsic'"),
        ("    memory: none", "    memory: {kind: intrinsic, mode: rewrote}", 9, "mode"),
        ("    memory: none", "    memory: {mode: rewrite}", 9, "has no kind"),
        ("speakers: round_robin", "speakers: round_robbin", 3, "no speaker policy named 'round_robbin'"),
        ("speakers: round_robin", "speakers: {kind: star, spokes: 3}", 3, "unknown key 'spokes'"),
        ("    memory: none", "    slots: [{name: a, sort: list}]", 9, "unknown key 'sort'"),
        ("    memory: none", "    slots: [{name: Not plain}]", 9, "agents.1.slots.0.name"),
        ("name: t", "name: {t", 2, "not valid YAML"),
        ("name: t", "name: \t\n\t- x", 1, "not valid YAML"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert GOOD.count(old) == 1
    error = refused(tmp_path, GOOD.replace(old, new))
    assert words in str(error)
    assert error.line == line


@pytest.mark.parametrize("text", ["", "just words", "- a\n- list", "42"])
def test_what_does_not_describe_a_team_says_so(tmp_path: Path, text: str) -> None:
    assert "does not describe a team" in str(refused(tmp_path, text))


def test_a_name_that_was_nearly_right_is_suggested(tmp_path: Path) -> None:
    assert refused(tmp_path, GOOD.replace("round_robin", "roundrobin")).remedy == "did you mean 'round_robin'?"
    with pytest.raises(UnknownNameError) as caught:
        read_team("data-pipelin")
    assert caught.value.remedy == "did you mean 'data-pipeline'?"
    with pytest.raises(UnknownNameError, match="no team named 'zzz'") as caught:
        read_team("zzz")
    assert "panel" in caught.value.remedy


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), (b"\xff\xfe\x00", "not UTF-8")])
def test_a_file_that_cannot_be_read_says_so(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "team.yaml"
    if content:
        path.write_bytes(content)
    with pytest.raises(TeamFileError, match=words):
        read_team(str(path))
    with pytest.raises(TeamFileError, match="cannot be read"):
        read_team(str(tmp_path))


@pytest.mark.parametrize("agents", [["A", "B", "I", "E"], ["A", "B", "I", "E", "D", "X"]])
def test_agents_that_do_not_match_the_parts_are_refused_with_a_remedy(tmp_path: Path, agents: list[str]) -> None:
    listed = "\n".join(f"  - {{name: {name}, role: x}}" for name in agents)
    path = tmp_path / "team.yaml"
    path.write_text(f"name: t\nspeakers:\n{MODERATED}agents:\n{listed}\n")
    with pytest.raises(MemeplexError, match="the parts A, B, D, E, I are not the agents") as caught:
        load_team(str(path), model=FunctionModel(act))
    assert caught.value.remedy


@pytest.mark.parametrize("name", library_teams())
@pytest.mark.parametrize("template", [None, "generic", "generated", "manual"])
def test_every_team_of_the_library_loads_with_every_template(name: str, template: Any) -> None:
    spec = read_team(name).model_copy(update={"template": template})
    for memory in ("intrinsic", "paper", "none"):
        team = build_team(spec.model_copy(update={"memory": memory}), lambda wanted: FunctionModel(act))
        assert [agent.name for agent in team.agents] == [agent.name for agent in spec.agents]
    assert spec.task and spec.description


def test_a_spec_survives_the_store() -> None:
    for name in library_teams():
        spec = read_team(name)
        assert TeamSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_what_an_agent_leaves_out_is_the_teams(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "t",
                "model": "m1",
                "max_tokens": 99,
                "temperature": 0.5,
                "context_tokens": 999,
                "layout": "paper",
                "agents": [
                    {"name": "A", "role": "x"},
                    {"name": "B", "role": "y", "model": "m2", "max_tokens": 11, "temperature": 0, "memory": "none"},
                ],
            }
        )
    )
    made: list[str] = []

    def models(name: str) -> FunctionModel:
        made.append(name)
        return FunctionModel(act, name=name)

    a, b = build_team(read_team(str(path)), models).agents
    assert made == ["m1", "m2"]
    assert (a.max_tokens, a.temperature, a.context_tokens, a.layout) == (99, 0.5, 999, "paper")
    assert (b.max_tokens, b.temperature, b.context_tokens) == (11, 0, 999)
    assert type(a.settings).__name__ == "IntrinsicSettings" and type(b.settings).__name__ == "NoMemorySettings"


def test_the_case_study_is_moderated_with_its_slots() -> None:
    spec = read_team("data-pipeline")
    team = build_team(spec, lambda name: FunctionModel(act))
    assert isinstance(team.speakers, Moderated) and team.output is not None
    for agent in spec.agents:
        assert bool(agent.slots) == (agent.memory != "none")
        assert all(slot.description for slot in agent.slots)
