"""Team files: a checked ``TeamSpec`` out of one, and a team out of that. What is wrong is refused with its line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from memeplex.agents import Agent
from memeplex.embeddings import Embedder
from memeplex.errors import MemeplexError, TeamFileError, UnknownNameError, UserError
from memeplex.memory import argument_error, combine_memories, create_memory, takes
from memeplex.memory.archive import shared_embedder
from memeplex.memory.template import Slot
from memeplex.models import Model, schema_model
from memeplex.models.testing import ScriptedModel
from memeplex.registry import Registry
from memeplex.teams.keys import AgentSpec, Kind, Kinds, TeamSpec, TerminationSpec
from memeplex.teams.marked import MarkedFile, read_marked
from memeplex.teams.speakers import Cast, SpeakerPolicy
from memeplex.teams.team import Team

__all__ = ["AgentSpec", "TeamSpec", "TerminationSpec", "build_team", "library_teams", "policies", "read_team"]

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

_PARTS: dict[tuple[str, ...], type[BaseModel]] = {
    (): TeamSpec,
    ("agents",): AgentSpec,
    ("agents", "slots"): Slot,
    ("termination",): TerminationSpec,
}
"""What the keys of a team file are checked against, by where they stand."""


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
        raise TeamFileError("is not UTF-8 text", path=name, remedy="save it as UTF-8") from error
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


def _suggest(name: str) -> str:
    close = get_close_matches(name, library_teams(), n=1)
    known = ", ".join(library_teams())
    return f"did you mean {close[0]!r}?" if close else f"give the path of a team file, or one of: {known}"


def _parse(text: str, path: str) -> TeamSpec:
    file = read_marked(text, path)
    try:
        spec = TeamSpec.model_validate(file.data)
    except ValidationError as error:
        raise _key_error(file, error) from error
    _check_parts(spec, file)
    return spec


def _key_error(file: MarkedFile, error: ValidationError) -> TeamFileError:
    faults = error.errors(include_url=False)
    # A key that is missing has often been misspelt, and then the misspelling says more.
    fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    location = fault["loc"]
    where = ".".join(map(str, location))
    if fault["type"] == "extra_forbidden":
        known = list(_PARTS[tuple(part for part in location[:-1] if isinstance(part, str))].model_fields)
        close = get_close_matches(str(location[-1]), known, n=1)
        text = f"unknown key {location[-1]!r}"
        remedy = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    elif fault["type"] == "missing":
        text, remedy = f"{where}: is missing", f"write {location[-1]}: there"
    else:
        # What a validator of ours says needs no word of Pydantic's before it.
        told = fault["ctx"]["error"] if fault["type"] == "value_error" else fault["msg"]
        text, remedy = f"{where}: {told}", "mend the value, or leave the key out if it has a default"
    return file.error(text, location, remedy)


def _check_parts(spec: TeamSpec, file: MarkedFile) -> None:
    """All that is only known when the parts are made, tried here so that its errors carry a line as well."""
    with _placed(file, "speakers"):
        roles = {agent.name: agent.role for agent in spec.agents}
        _policy(spec.speakers).check(Cast(roles=roles, model=ScriptedModel(())))
    for index, agent in enumerate(spec.agents):
        _check_memory(spec, index, agent, file)
    if spec.output is not None:
        with _placed(file, "output"):
            schema_model("Document", spec.output)


def _check_memory(spec: TeamSpec, index: int, agent: AgentSpec, file: MarkedFile) -> None:
    where: tuple[int | str, ...] = ("agents", index, "memory") if agent.memory is not None else ("memory",)
    kinds = spec.memory if agent.memory is None else agent.memory
    templated = False
    for place, kind in enumerate(_listed(kinds)):
        part = (*where, place) if isinstance(kinds, list) else where
        with _placed(file, *part):
            templated |= takes(_named(kind)[0], "template")
        with _placed(file, "agents", index):
            name, arguments = _memory(spec, agent, kind)
        with _placed(file, *part):
            create_memory(name, arguments)
    with _placed(file, *where):
        combine_memories(_memories(spec, agent))
    if agent.slots and not templated:
        names = ", ".join(name for name, _ in _memories(spec, agent))
        raise file.error(
            f"{agent.name} has slots, but memory {names} has no use for them",
            ("agents", index, "slots"),
            "leave them out, or give it a memory such as intrinsic",
        )


@contextmanager
def _placed(file: MarkedFile, *where: int | str) -> Iterator[None]:
    """Gives an error the line of the part that it is in, or of what its cause points at within."""
    try:
        yield
    except RecursionError as error:
        raise file.error("is nested too deeply", where, "write it with fewer levels") from error
    except MemeplexError as error:
        cause = error.__cause__
        within = cause.errors()[0]["loc"] if isinstance(cause, ValidationError) else getattr(cause, "path", ())
        remedy = error.remedy or f"mend {where[0]}"
        raise file.error(str(error), (*where, *within), remedy) from error


def build_team(
    spec: TeamSpec,
    models: Callable[[str], Model],
    embedders: Callable[[str], Embedder | None] = shared_embedder,
) -> Team:
    """The team of a spec; ``models`` and ``embedders`` give what a name stands for, the same each time.

    Raises:
        UnknownNameError: an unknown memory, speaker policy or embedder.
        UserError: an argument that a memory or a policy does not take, or a policy that does not suit the agents.
    """
    agents = [
        Agent(
            agent.name,
            role=agent.role,
            reasoning=agent.reasoning,
            model=models(agent.model or spec.model),
            memory=combine_memories([_equipped(*memory, embedders) for memory in _memories(spec, agent)]),
            max_tokens=agent.max_tokens or spec.max_tokens,
            temperature=spec.temperature if agent.temperature is None else agent.temperature,
            context_tokens=spec.context_tokens,
            layout=spec.layout,
        )
        for agent in spec.agents
    ]
    return Team(
        name=spec.name,
        agents=agents,
        speakers=_policy(spec.speakers),
        termination=spec.termination.build(),
        output=None if spec.output is None else schema_model("Document", spec.output),
        overlap=spec.overlap,
        spec=spec.model_dump(mode="json"),
    )


def _policy(kind: Kind) -> SpeakerPolicy:
    """The speaker policy of a name with its arguments.

    Raises:
        UnknownNameError: there is no such policy.
        UserError: it has no such argument, or not with that value.
    """
    name, arguments = _named(kind)
    policy = policies.load(name)
    try:
        made: SpeakerPolicy = policy(**arguments)
    except ValidationError as error:
        raise argument_error(f"speakers {name}", policy, error) from error
    return made


def _listed(kinds: Kinds) -> Sequence[Kind]:
    return kinds if isinstance(kinds, list) else [kinds]


def _memories(spec: TeamSpec, agent: AgentSpec) -> list[tuple[str, dict[str, Any]]]:
    """The names of the designs that an agent's memory is made of, and their arguments."""
    return [_memory(spec, agent, kind) for kind in _listed(spec.memory if agent.memory is None else agent.memory)]


def _memory(spec: TeamSpec, agent: AgentSpec, kind: Kind) -> tuple[str, dict[str, Any]]:
    """The name of a part of an agent's memory, and its arguments. Slots are the template, unless another is named.

    Raises:
        UnknownNameError: there is no such memory.
        UserError: the template is manual, and the agent has no slots.
    """
    name, arguments = _named(kind)
    if takes(name, "embedder"):
        arguments.setdefault("embedder", spec.embedder)
    if not takes(name, "template"):
        return name, arguments
    slots = agent.slots or arguments.get("slots")
    if spec.template is not None:
        arguments["template"] = spec.template
    elif slots:
        arguments.setdefault("template", "manual")
    if arguments.get("template") == "manual":
        if not slots:
            raise UserError(
                f"the template of {agent.name} is manual, but it has no slots",
                remedy="write slots for the agent, or choose the template generic or generated",
            )
        arguments["slots"] = slots
    return name, arguments


def _equipped(
    name: str, arguments: dict[str, Any], embedders: Callable[[str], Embedder | None]
) -> tuple[str, dict[str, Any]]:
    """A part of a memory that has an embedder by name, with the embedder itself."""
    named = arguments.get("embedder")
    return name, {**arguments, "embedder": embedders(named)} if isinstance(named, str) else arguments


def _named(kind: Kind) -> tuple[str, dict[str, Any]]:
    """A name, and the arguments that go with it."""
    if isinstance(kind, str):
        return kind, {}
    return kind["kind"], {key: value for key, value in kind.items() if key != "kind"}
