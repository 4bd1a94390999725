"""Who speaks next: the agent selection function of section 3.1 of Intrinsic Memory Agents.

A policy is a plain value, and what it selects depends on the conversation, the cast and the seed alone. So a run
that was broken off goes on as if it had not been.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from memeplex.agents import Ask
from memeplex.autonoms import choose_speaker
from memeplex.errors import UserError
from memeplex.messages import Conversation, Outcome, Turn
from memeplex.models import Model, Settings, derive_seed
from memeplex.usage import Ledger, Purpose

__all__ = ["Cast", "Chain", "Graph", "ModelChosen", "Random", "RoundRobin", "SpeakerPolicy", "Star", "Tree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The team as a policy sees it: names with roles, in order; a model of the team's own; the document's schema."""

    roles: Mapping[str, str]
    model: Model
    seed: int = 0
    output: type[BaseModel] | None = None

    @property
    def names(self) -> list[str]:
        """The agents, in the order of the team."""
        return list(self.roles)


class SpeakerPolicy(BaseModel):
    """Base of all policies. Its fields are the arguments that a team file may give it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def check(self, cast: Cast) -> None:
        """Raise ``UserError`` when the policy does not suit the team."""

    async def select(self, conversation: Conversation, cast: Cast) -> Ask | None:
        """Who speaks next, and what for; ``None`` when nobody is left to speak."""
        raise NotImplementedError

    def outcome(self, conversation: Conversation, reason: str) -> Outcome:
        """How the task ended; ``reason`` is the termination's word, empty when nobody was left to speak."""
        status = "stalled" if reason == "stalled" else "completed"
        heard = conversation.heard
        return Outcome(status=status, details={"reason": reason, "answer": heard[-1].content if heard else ""})


class RoundRobin(SpeakerPolicy):
    """One after the other, in the order of the team."""

    async def select(self, conversation: Conversation, cast: Cast) -> Ask:
        """The next in the order."""
        return Ask(speaker=cast.names[len(conversation.turns) % len(cast.names)])


class Random(SpeakerPolicy):
    """Anyone but the last speaker, by the run's seed."""

    async def select(self, conversation: Conversation, cast: Cast) -> Ask:
        """A seeded draw for this turn."""
        last = conversation.turns[-1].speaker if conversation.turns else ""
        names = [name for name in cast.names if name != last] or cast.names
        draw = random.Random(derive_seed(cast.seed, "speaker", len(conversation.turns)))  # noqa: S311
        return Ask(speaker=draw.choice(names))


class ModelChosen(SpeakerPolicy):
    """A model reads the newest ``window`` turns and names the next speaker."""

    window: int = Field(default=6, ge=1)

    async def select(self, conversation: Conversation, cast: Cast) -> Ask:
        """The model's choice; its cost goes to the turn that follows."""
        seed = derive_seed(cast.seed, "speaker", len(conversation.turns))
        settings = Settings(purpose=Purpose.SELECTION, max_tokens=40, temperature=0.0, seed=seed)
        choice = await choose_speaker(
            cast.model,
            settings,
            task=conversation.task.text,
            team=cast.roles,
            turns=[_brief(turn) for turn in conversation.heard[-self.window :]],
        )
        return Ask(speaker=choice.output.speaker, usage=Ledger({Purpose.SELECTION: choice.usage}))


def _brief(turn: Turn) -> Turn:
    """The beginning of a turn, which is enough to choose who answers it."""
    return turn.model_copy(update={"content": turn.content[:400]})


class _Linked(SpeakerPolicy):
    """Along links: the neighbour of the last speaker who has been silent longest."""

    def links(self, cast: Cast) -> tuple[tuple[str, str], ...]:
        """The links between the agents of this team, in either direction."""
        raise NotImplementedError

    def check(self, cast: Cast) -> None:
        """Every end of an edge is an agent, and every agent has an edge."""
        ends = {name for edge in self.links(cast) for name in edge}
        if strange := sorted(ends ^ set(cast.names)):
            raise UserError(
                f"speakers: {', '.join(strange)}: not both in the team and on an edge",
                remedy="connect every agent, and only agents of the team",
            )
        if loops := sorted({a for a, b in self.links(cast) if a == b}):
            raise UserError(f"speakers: an edge leads from {loops[0]} to itself", remedy="leave it out")
        if lonely := sorted(set(cast.names) - self._reached(cast)):
            raise UserError(
                f"speakers: the word never gets from {cast.names[0]} to {', '.join(lonely)}",
                remedy="add an edge between the parts",
            )

    def _reached(self, cast: Cast) -> set[str]:
        """Who may come to speak, from the first agent on."""
        both, reached, before = self._both(cast), {cast.names[0]}, 0
        while len(reached) > before:
            before = len(reached)
            reached |= {b for a, b in both if a in reached}
        return reached

    async def select(self, conversation: Conversation, cast: Cast) -> Ask:
        """Starts with the first agent of the team."""
        if not conversation.turns:
            return Ask(speaker=cast.names[0])
        last = conversation.turns[-1].speaker
        near = [name for name in cast.names if (last, name) in self._both(cast)]
        spoke = {turn.speaker: turn.index for turn in conversation.turns}
        return Ask(speaker=min(near, key=lambda name: spoke.get(name, -1)))

    def _both(self, cast: Cast) -> set[tuple[str, str]]:
        return {pair for a, b in self.links(cast) for pair in ((a, b), (b, a))}


class Graph(_Linked):
    """Along the edges that are given."""

    edges: tuple[tuple[str, str], ...] = ()

    def links(self, cast: Cast) -> tuple[tuple[str, str], ...]:
        """All edges."""
        return self.edges


class Star(_Linked):
    """A hub speaks after every other agent; by default the first of the team."""

    hub: str = ""

    def links(self, cast: Cast) -> tuple[tuple[str, str], ...]:
        """From the hub to each of the others."""
        hub = self.hub or cast.names[0]
        return tuple((hub, name) for name in cast.names if name != hub)


class Chain(_Linked):
    """From the first agent to the last, and back."""

    def links(self, cast: Cast) -> tuple[tuple[str, str], ...]:
        """Between neighbours in the order of the team."""
        return tuple(zip(cast.names, cast.names[1:], strict=False))


class Tree(Graph):
    """From a root to its branches and back; with no ``edges``, a binary tree in the order of the team."""

    def check(self, cast: Cast) -> None:
        """As for every graph; and a tree has no circle."""
        super().check(cast)
        if len({frozenset(edge) for edge in self.links(cast)}) >= len(cast.names):
            raise UserError("speakers: the edges of the tree make a circle", remedy="leave one out, or use graph")

    def links(self, cast: Cast) -> tuple[tuple[str, str], ...]:
        """From each parent to its children."""
        names = cast.names
        return self.edges or tuple((names[(i - 1) // 2], names[i]) for i in range(1, len(names)))
