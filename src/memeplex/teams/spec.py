"""Team files: YAML in, a checked ``TeamSpec`` out; unknown keys are refused with the line they stand on."""

from collections.abc import Callable
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from yaml.nodes import MappingNode, Node, SequenceNode

from memeplex.agents import Agent, Layout
from memeplex.errors import MemeplexError, TeamFileError, UnknownNameError
from memeplex.memory import MemorySettings, create_memory
from memeplex.memory.template import Slot
from memeplex.models import Model, schema_model
from memeplex.registry import Registry
from memeplex.teams.speakers import SpeakerPolicy
from memeplex.teams.team import Team
from memeplex.teams.termination import Flagged, MaxTokens, MaxTurns, Stalled, Termination

__all__ = ["AgentSpec", "TeamSpec", "build_team", "library_teams", "policies", "read_team"]

policies = Registry(
    "speaker policy",
    "memeplex.speakers",
    {
        "chain": "memeplex.teams.speakers:Chain",
        "graph": "memeplex.teams.speakers:Graph",
        "model": "memeplex.teams.speakers:ModelChosen",
        "moderated": "memeplex.teams.moderated:Moderated",
        "random": "memeplex.teams.speakers:Random",
        "round_robin": "memeplex.teams.speakers:RoundRobin",
        "star": "memeplex.teams.speakers:Star",
        "tree": "memeplex.teams.speakers:Tree",
    },
)
"""Speaker policies by the name that a team file gives."""

Kind = dict[str, Any] | str
"""A name, or a mapping whose ``kind`` is the name and whose other keys are arguments."""

_MOST_NODES = 200_000


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentSpec(_Spec):
    """One agent. What is left out is taken from the team. ``slots`` are the manual template of its memory."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[^\s\[\]]+$")
    role: str = Field(min_length=1)
    model: str | None = None
    memory: Kind | None = None
    slots: list[Slot] = Field(default_factory=list)
    max_tokens: int | None = Field(default=None, ge=8)
    temperature: float | None = Field(default=None, ge=0, le=2)


class TerminationSpec(_Spec):
    """The conversation is over when any of these is reached."""

    max_turns: int = Field(default=40, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    flag: str | None = None
    stalled: int = Field(default=6, ge=1)

    def build(self) -> Termination:
        """All conditions, joined by "or"."""
        whole: Termination = MaxTurns(self.max_turns) | Stalled(self.stalled)
        if self.max_tokens is not None:
            whole = whole | MaxTokens(self.max_tokens)
        return whole if self.flag is None else whole | Flagged(self.flag)


class TeamSpec(_Spec):
    """A whole team, as a team file describes it. ``output`` is the JSON Schema of the final document."""

    name: str = Field(min_length=1)
    description: str = ""
    task: str = ""
    model: str = "local:qwen2.5-coder-0.5b"
    memory: Kind = "intrinsic"
    template: Literal["generic", "generated", "manual"] | None = None
    agents: list[AgentSpec] = Field(min_length=1)
    speakers: Kind = "round_robin"
    termination: TerminationSpec = TerminationSpec()
    output: dict[str, Any] | None = None
    layout: Layout = "cached"
    context_tokens: int | None = Field(default=None, ge=64)
    max_tokens: int = Field(default=256, ge=8)
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    overlap: bool = True

    @model_validator(mode="after")
    def _distinct(self) -> "TeamSpec":
        names = [agent.name for agent in self.agents]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two agents are named {doubled[0]!r}")
        return self


def library_teams() -> list[str]:
    """Names of the teams that come with the package."""
    folder = files("memeplex.teams").joinpath("library").iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in folder if entry.name.endswith(".yaml"))


def read_team(name: str) -> TeamSpec:
    """The team of a file, or of the library.

    Raises:
        TeamFileError: the file cannot be read, is not YAML, or does not describe a team; with its line.
        UnknownNameError: there is neither a file nor a library team of that name.
    """
    path = Path(name)
    if name in library_teams():
        return _parse(files("memeplex.teams").joinpath("library", f"{name}.yaml").read_text("utf-8"), name)
    if not _there(path) and path.suffix not in (".yaml", ".yml"):
        raise UnknownNameError("team", name, library_teams(), remedy=_suggest(name))
    try:
        return _parse(path.read_text("utf-8"), name)
    except UnicodeDecodeError as error:
        raise TeamFileError("is not UTF-8 text", path=name) from error
    except OSError as error:
        raise TeamFileError(
            f"cannot be read ({error.strerror})",
            path=name,
            remedy="give the path of a team file, or the name of a team",
        ) from error


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # No file has so long a name: a task given in the place of the team, most likely.
        return False


def build_team(spec: TeamSpec, models: Callable[[str], Model]) -> Team:
    """The team of a spec; ``models`` gives the model of a name, the same one each time.

    Raises:
        UnknownNameError: an unknown memory or speaker policy.
        UserError: an argument that a memory or a policy does not take.
    """
    agents = [
        Agent(
            agent.name,
            role=agent.role,
            model=models(agent.model or spec.model),
            memory=_memory(spec, agent),
            max_tokens=agent.max_tokens or spec.max_tokens,
            temperature=spec.temperature if agent.temperature is None else agent.temperature,
            context_tokens=spec.context_tokens,
            layout=spec.layout,
        )
        for agent in spec.agents
    ]
    name, arguments = _kind(spec.speakers)
    try:
        speakers: SpeakerPolicy = policies.load(name)(**arguments)
    except ValidationError as error:
        raise TeamFileError(f"speakers {name}: {_fault(error)[1]}") from error
    return Team(
        name=spec.name,
        agents=agents,
        speakers=speakers,
        termination=spec.termination.build(),
        output=None if spec.output is None else schema_model("Document", spec.output),
        overlap=spec.overlap,
        spec=spec.model_dump(mode="json"),
    )


def _memory(spec: TeamSpec, agent: AgentSpec) -> MemorySettings:
    name, arguments = _kind(spec.memory if agent.memory is None else agent.memory)
    if spec.template is not None and name != "none":
        arguments["template"] = spec.template
    if arguments.get("template") == "manual" and agent.slots:
        arguments["slots"] = agent.slots
    return create_memory(name, arguments)


def _kind(value: Kind) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    arguments = dict(value)
    name = arguments.pop("kind", None)
    if not isinstance(name, str):
        raise TeamFileError(f"{value}: has no kind", remedy="write a name, or a mapping with the key kind")
    return name, arguments


def _parse(text: str, path: str) -> TeamSpec:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None and _size(node, {}) > _MOST_NODES:
            raise TeamFileError("is too large, or repeats an alias too often", path=path)
        data = yaml.safe_load(text)
        double = None if node is None else _double(node)
    except RecursionError as error:
        raise TeamFileError("is nested too deeply, or refers to itself", path=path) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise TeamFileError(f"not valid YAML: {error.problem}", path=path, line=line) from error
    except yaml.YAMLError as error:
        raise TeamFileError(f"not valid YAML: {error}", path=path) from error
    except ValueError as error:
        # What looks like a date or a number, and is none.
        raise TeamFileError(f"holds a value that cannot be: {error}", path=path) from error
    if node is None or not isinstance(data, dict):
        raise TeamFileError("does not describe a team", path=path, remedy="start from a team of the library")
    if double is not None:
        raise TeamFileError(f"the key {double.value!r} stands twice", path=path, line=double.start_mark.line + 1)
    try:
        spec = TeamSpec.model_validate(data)
    except ValidationError as error:
        location, text = _fault(error)
        raise TeamFileError(text, path=path, line=_line(node, location)) from error
    _check_parts(spec, node, path)
    return spec


def _check_parts(spec: TeamSpec, node: Node, path: str) -> None:
    """Names and arguments of memories and policies, checked here so that their errors carry a line as well."""
    try:
        part = "speakers"
        name, arguments = _kind(spec.speakers)
        policies.load(name)(**arguments)
        for index, agent in enumerate(spec.agents):
            part = f"agents.{index}.memory" if agent.memory is not None else "memory"
            _memory(spec, agent)
    except (ValidationError, MemeplexError) as error:
        text = _fault(error)[1] if isinstance(error, ValidationError) else str(error)
        remedy = error.remedy if isinstance(error, MemeplexError) else ""
        location = tuple(int(p) if p.isdigit() else p for p in part.split("."))
        line = _line(node, location)
        raise TeamFileError(f"{part}: {text}", path=path, line=line, remedy=remedy) from error


def _fault(error: ValidationError) -> tuple[tuple[int | str, ...], str]:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return fault["loc"], f"unknown key {fault['loc'][-1]!r}"
    return fault["loc"], f"{where}: {fault['msg']}" if where else str(fault["msg"])


def _line(node: Node, location: tuple[int | str, ...]) -> int:
    """The line of the deepest node on the way to a location; 1-based."""
    line = node.start_mark.line
    for part in location:
        if isinstance(node, SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line
        elif isinstance(node, MappingNode):
            entry = next(((k, v) for k, v in node.value if k.value == part), None)
            if entry is None:
                break
            line, node = entry[0].start_mark.line, entry[1]
    return line + 1


def _size(node: Node, known: dict[Node, int]) -> int:
    """How many nodes a file comes to with every alias written out; ten lines can come to billions."""
    if node not in known:
        children = node.value if isinstance(node, MappingNode | SequenceNode) else ()
        flat = [child for entry in children for child in (entry if isinstance(entry, tuple) else (entry,))]
        known[node] = 1 + sum(_size(child, known) for child in flat)
    return known[node]


def _double(node: Node) -> Node | None:
    """The first key that stands twice in one mapping, which YAML itself would pass over in silence."""
    children: list[Node] = []
    if isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                return cast(Node, key)
            seen.add(key.value)
            children.append(value)
    elif isinstance(node, SequenceNode):
        children = node.value
    return next((found for child in children if (found := _double(child)) is not None), None)


def _suggest(name: str) -> str:
    close = get_close_matches(name, library_teams(), n=1)
    known = ", ".join(library_teams())
    return f"did you mean {close[0]!r}?" if close else f"give the path of a team file, or one of: {known}"
