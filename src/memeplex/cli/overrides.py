"""What the command line and the settings change about a team."""

from dataclasses import dataclass
from typing import Any, Literal

from memeplex.cli.config import Settings
from memeplex.errors import UserError
from memeplex.memory import parse_memory, takes
from memeplex.teams import TeamSpec

__all__ = ["Overrides"]


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What the command line sets in place of the team file."""

    model: str | None = None
    embedder: str | None = None
    memory: str | None = None
    template: Literal["generic", "generated", "manual"] | None = None
    topology: Literal["local", "shared", "hybrid"] | None = None
    max_turns: int | None = None
    layout: Literal["paper", "cached"] | None = None
    sequential: bool = False

    def applied(self, spec: TeamSpec, settings: Settings) -> TeamSpec:
        """The team as it will run. What the settings say is for teams that leave it open."""
        changes = self._of_team(spec)
        if self.model is None and "model" not in spec.model_fields_set and settings.model:
            changes["model"] = settings.model
        if self.embedder is None and "embedder" not in spec.model_fields_set and settings.embedder:
            changes["embedder"] = settings.embedder
        agents: dict[str, Any] = {}
        if self.model is not None:
            agents["model"] = None
        if changes.get("memory") == {"kind": "none"}:
            agents["memory"] = None
        changes["agents"] = [agent.model_copy(update=agents) for agent in spec.agents]
        made = _tempered(spec.model_copy(update=changes), settings)
        return made if self.embedder is None else _embedding(made, self.embedder)

    def _of_team(self, spec: TeamSpec) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if self.model is not None:
            changes["model"] = self.model
        if self.memory is not None:
            changes["memory"] = parse_memory(self.memory)
            if any("template" in part for part in _parts(changes["memory"])):
                # A memory asked for with its template is meant so, whatever the team says of templates.
                changes["template"] = None
        if self.topology is not None:
            changes["memory"] = _shared(changes.get("memory", spec.memory), self.topology)
        if self.template is not None:
            changes["template"] = self.template
        if self.max_turns is not None:
            changes["termination"] = spec.termination.model_copy(update={"max_turns": self.max_turns})
        if self.layout is not None:
            changes["layout"] = self.layout
        if self.sequential:
            changes["overlap"] = False
        return changes


def _parts(memory: Any) -> list[dict[str, Any]]:
    """A memory as the list of the designs that it is made of."""
    listed = memory if isinstance(memory, list) else [memory]
    return [{"kind": part} if isinstance(part, str) else dict(part) for part in listed]


def _shared(memory: Any, topology: str) -> list[dict[str, Any]]:
    """A memory with its topology."""
    parts = _parts(memory)
    if not any(takes(part["kind"], "topology") for part in parts):
        raise UserError(
            f"memory {'+'.join(part['kind'] for part in parts)} has no topology", remedy="--memory lifelong"
        )
    return [{**part, "topology": topology} if takes(part["kind"], "topology") else part for part in parts]


def _embedding(spec: TeamSpec, embedder: str) -> TeamSpec:
    """The team with this embedder for all memories that have one, whatever they name themselves."""
    held = [memory for memory in (spec.memory, *(agent.memory for agent in spec.agents)) if memory is not None]
    if not any(takes(part["kind"], "embedder") for memory in held for part in _parts(memory)):
        raise UserError("no memory of the team has an embedder", remedy="--memory lifelong")

    def unnamed(memory: Any) -> Any:
        if memory is None:
            return None
        return [{key: value for key, value in part.items() if key != "embedder"} for part in _parts(memory)]

    agents = [agent.model_copy(update={"memory": unnamed(agent.memory)}) for agent in spec.agents]
    return spec.model_copy(update={"embedder": embedder, "memory": unnamed(spec.memory), "agents": agents})


def _tempered(spec: TeamSpec, settings: Settings) -> TeamSpec:
    """The team with what the settings say of its models' temperatures: after the team file, before its default.

    It becomes a part of the team, so that a resumed run has it too, whatever the settings say by then.
    """
    if "temperature" in spec.model_fields_set:
        return spec
    said = {name: table.temperature for name, table in settings.config.models.items()}
    agents = [
        agent.model_copy(update={"temperature": said.get(agent.model or spec.model)})
        if agent.temperature is None
        else agent
        for agent in spec.agents
    ]
    return spec.model_copy(update={"agents": agents})
