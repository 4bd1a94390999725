"""Team files: what is refused, on which line, with which word."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support import act

from memeplex import load_team
from memeplex.errors import TeamFileError, UnknownNameError, UserError
from memeplex.memory import takes
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
        ("  - name: B", "  - name: A", 4, "two agents are named 'A'"),
        ("memory: intrinsic", "memory: extrinsic", 2, "no memory named 'extrinsic'"),
        ("    memory: none", "    memory: {kind: intrinsic, mode: rewrote}", 9, "mode"),
        ("    memory: none", "    memory: {mode: rewrite}", 9, "has no kind"),
        ("speakers: round_robin", "speakers: round_robbin", 3, "no speaker policy named 'round_robbin'"),
        ("speakers: round_robin", "speakers: {kind: star, spokes: 3}", 3, "unknown argument 'spokes'"),
        ("speakers: round_robin", "speakers: null", 3, "speakers: is neither a name nor a mapping with a kind"),
        ("speakers: round_robin", "speakers:\n  kind: chain\n  edges: [[A, B]]", 5, "chain: unknown argument 'edges'"),
        ("speakers: round_robin", "speakers:\n  kind: star\n  edges: [[A, B]]", 5, "star: unknown argument 'edges'"),
        ("speakers: round_robin", "speakers:\n  kind: tree\n  hub: A", 5, "tree: unknown argument 'hub'"),
        ("speakers: round_robin", "speakers:\n  kind: graph\n  hub: A", 5, "graph: unknown argument 'hub'"),
        ("speakers: round_robin", "speakers:\n  kind: random\n  window: 3", 5, "random: unknown argument 'window'"),
        ("speakers: round_robin", "speakers: {kind: star, hub: C}", 3, "C: not both in the team and on an edge"),
        ("speakers: round_robin", "speakers: {kind: moderated}", 3, "'delegation' is missing"),
        ("memory: intrinsic", "memory: [[intrinsic]]", 2, "memory: is neither a name nor a mapping with a kind"),
        ("memory: intrinsic", "memory: []", 2, "memory: names nothing"),
        ("memory: intrinsic", "memory: [intrinsic, paper]", 2, "one agent has each design once"),
        ("memory: intrinsic", "memory: [intrinsic, lifelang]", 2, "no memory named 'lifelang'"),
        ("memory: intrinsic", "memory:\n  - intrinsic\n  - {kind: lifelong, evry: 3}", 4, "unknown argument 'evry'"),
        ("memory: intrinsic", "memory:\n  kind: intrinsic\n  every: 0", 4, "memory intrinsic: every: Input"),
        ("memory: intrinsic", "memory:\n  kind: intrinsic\n  modus: patch", 4, "unknown argument 'modus'"),
        ("memory: intrinsic", "memory:\n  kind: paper\n  mode: patch", 2, "memory paper does not take mode"),
        (
            "memory: intrinsic",
            "memory: {kind: intrinsic, slots: [{name: a}, {name: a}]}",
            2,
            "memory intrinsic: two slots have the same name",
        ),
        ("memory: intrinsic", "memory: intrinsic\ntemplate: manual", 6, "template of A is manual, but it has no slots"),
        ("memory: intrinsic", "memory: {kind: intrinsic, template: manual}", 5, "template of A is manual"),
        ("    memory: none", "    memory: none\n    slots: [{name: a}]", 10, "B has slots, but memory none"),
        ("    memory: none", "    slots: [{name: a}, {name: a}]", 9, "two slots are named 'a'"),
        ("name: t", "name: 2020-01-01", 1, "2020-01-01 is a date"),
        ("name: t", "name: t\noutput:\n  type: objekt", 3, "'objekt' is not valid"),
        ("name: t", "name: t\noutput:\n  properties:\n    a: {type: 3}\n    b: {}", 4, "3 is not valid"),
        ("name: t", "name: t\noutput: {$ref: http://x/y}", 2, "refers to 'http://x/y'"),
        ("name: t", "name: t\noutput: {$ref: '#/x'}", 2, "nothing at '/x'"),
        ("name: t", "name: t\noutput: {pattern: '['}", 2, "'[' is not a 'regex'"),
        ("name: t", "name: t\noutput:\n  $schema: 3", 2, "is not a JSON Schema"),
        ("name: t", "name: t\noutput: {$id: 3}", 2, "is not a JSON Schema"),
        ("name: t", f"name: t\noutput: {'{items: ' * 150}{'}' * 150}", 2, "nested too deeply"),
        ("name: t", "name: t\noutput:\n  enum:\n    - 2020-01-01", 4, "2020-01-01 is a date"),
        ("name: t", "name: t\noutput:\n  maximum: .nan", 3, ".nan is not a number"),
        ("name: t", "name: t\noutput:\n  maximum: -.inf", 3, "-.inf is not a number"),
        ("name: t", "name: t\noutput:\n  const: !!set {a, b}", 3, "this is a set"),
        ("name: t", "name: t\noutput:\n  properties:\n    on: {}", 4, "the key on is read as a truth value"),
        ("name: t", "name: t\noutput:\n  properties:\n    1: {}", 4, "the key 1 is read as a number"),
        ("    role: You are one.", "    rule: You are one.", 6, "unknown key 'rule'"),
        ("    role: You are one.\n", "", 5, "agents.0.role: is missing"),
        ("    memory: none", "    slots: [{name: a, sort: list}]", 9, "unknown key 'sort'"),
        ("    memory: none", "    slots: [{name: Not plain}]", 9, "agents.1.slots.0.name"),
        ("name: t", "name: {t", 2, "not valid YAML"),
        ("name: t", "name: \t\n\t- x", 1, "not valid YAML"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert GOOD.count(old) == 1
    error = refused(tmp_path, GOOD.replace(old, new))
    assert words in str(error) and "Value error" not in str(error)
    assert error.line == line
    assert error.remedy


@pytest.mark.parametrize("text", ["", "just words", "- a\n- list", "42"])
def test_what_does_not_describe_a_team_says_so(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)
    assert "does not describe a team" in str(error) and error.remedy


def test_a_name_that_was_nearly_right_is_suggested(tmp_path: Path) -> None:
    for old, new, remedy in [
        ("round_robin", "roundrobin", "did you mean 'round_robin'?"),
        ("role: You are one.", "rolle: You are one.", "did you mean 'role'?"),
        ("intrinsic", "{kind: intrinsic, modes: patch}", "did you mean 'mode'?"),
        ("round_robin", "{kind: star, edges: []}", "known: hub"),
        ("round_robin", "{kind: chain, edges: []}", "leave it out"),
        ("name: t", "name: t\nzzz: 1", "known: name, description, task"),
    ]:
        assert refused(tmp_path, GOOD.replace(old, new)).remedy.startswith(remedy)
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
    with pytest.raises(TeamFileError, match=words) as caught:
        read_team(str(path))
    assert caught.value.remedy
    with pytest.raises(TeamFileError, match="cannot be read"):
        read_team(str(tmp_path))


@pytest.mark.parametrize("agents", [["A", "B", "I", "E"], ["A", "B", "I", "E", "D", "X"]])
def test_agents_that_do_not_match_the_parts_are_refused_with_a_remedy(tmp_path: Path, agents: list[str]) -> None:
    listed = "\n".join(f"  - {{name: {name}, role: x}}" for name in agents)
    path = tmp_path / "team.yaml"
    path.write_text(f"name: t\nspeakers:\n{MODERATED}agents:\n{listed}\n")
    with pytest.raises(TeamFileError, match="the parts A, B, D, E, I are not the agents") as caught:
        load_team(str(path), model=FunctionModel(act))
    assert caught.value.remedy and caught.value.line == 2


@pytest.mark.parametrize("name", library_teams())
@pytest.mark.parametrize("template", [None, "generic", "generated", "manual"])
def test_every_team_of_the_library_loads_with_every_template(name: str, template: Any) -> None:
    spec = read_team(name).model_copy(update={"template": template})
    for memory in ("intrinsic", "paper", "none"):
        if template == "manual" and memory != "none" and not spec.agents[0].slots:
            continue
        team = build_team(spec.model_copy(update={"memory": memory}), lambda wanted: FunctionModel(act))
        assert [agent.name for agent in team.agents] == [agent.name for agent in spec.agents]
    assert spec.task and spec.description


def templates(spec: TeamSpec, **changes: Any) -> list[tuple[str, int]]:
    team = build_team(spec.model_copy(update=changes), lambda name: FunctionModel(act))
    memories: list[Any] = [agent.settings for agent in team.agents if hasattr(agent.settings, "template")]
    return [(memory.template, len(memory.slots)) for memory in memories]


@pytest.mark.parametrize(
    ("team", "agent", "wanted"),
    [
        ("memory: intrinsic", "", ("manual", 1)),
        ("memory: {kind: paper}", "", ("manual", 1)),
        ("memory: {kind: intrinsic, mode: patch, template: manual}", "", ("manual", 1)),
        ("memory: intrinsic\ntemplate: manual", "", ("manual", 1)),
        ("memory: none", "\n    memory: intrinsic", ("manual", 1)),
        ("memory: intrinsic\ntemplate: generic", "", ("generic", 0)),
        ("memory: {kind: intrinsic, template: generated}", "", ("generated", 0)),
    ],
)
def test_slots_are_the_template_unless_another_is_named(
    tmp_path: Path, team: str, agent: str, wanted: tuple[str, int]
) -> None:
    path = tmp_path / "team.yaml"
    text = GOOD.replace("memory: intrinsic", team)
    path.write_text(text.replace("role: You are one.", f"role: You are one.\n    slots: [{{name: a}}]{agent}"))
    assert templates(read_team(str(path))) == [wanted]


def test_a_manual_template_without_slots_is_refused_wherever_it_comes_from() -> None:
    with pytest.raises(UserError, match="the template of advocate is manual, but it has no slots") as caught:
        templates(read_team("panel"), template="manual")
    assert "generated" in caught.value.remedy
    assert templates(read_team("panel"), template="manual", memory="none") == []


def test_the_slots_of_the_case_study_are_for_those_who_ask() -> None:
    spec = read_team("data-pipeline")
    assert templates(spec) == [("generic", 0)] * 6
    assert (
        templates(spec, template="manual")
        == templates(spec, template=None)
        == [("manual", len(agent.slots)) for agent in spec.agents if agent.slots]
    )


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


@pytest.mark.parametrize(
    ("memory", "argument", "taken"),
    [
        ("paper", "template", True),
        ("paper", "embedder", False),
        ("intrinsic", "topology", False),
        ("lifelong", "embedder", True),
        ("none", "template", False),
    ],
)
def test_what_a_memory_takes(memory: str, argument: str, taken: bool) -> None:
    assert takes(memory, argument) is taken
