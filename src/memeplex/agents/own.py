"""The prompts that are an agent's own: what it is, how it thinks, how it votes, and the page that they stand on.

Source: Memetic Agents, "Evolution of the Architecture": an editable identity and way of reasoning, a list of what the
agent is able to do, made anew each time, and a form that stays.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memeplex.autonoms.cast_vote import PROMPT as VOTE
from memeplex.memory.topology import joined
from memeplex.messages import Conversation, TurnKind
from memeplex.prompts import Chosen, Library, Prompt, first_version
from memeplex.prompts.library import Prompts
from memeplex.storage import Store

__all__ = ["LAYOUTS", "REASONING", "SYSTEM", "Layout", "Own", "first_prompts", "prompts_of"]

Layout = Literal["paper", "cached"]
LAYOUTS = {name: Prompt.load("memeplex.agents", name) for name in ("paper", "cached")}
"""The pages that an agent reads, by the order of their printing. Nothing on them is editable."""

SYSTEM, REASONING = "system", "reasoning"
"""The names of an agent's own prompts: its role, and how it is to think and answer."""

_LABEL = re.compile(r"(\S+)@(\d+)\+[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Own:
    """An agent's own prompts, at the versions that it works with."""

    page: Prompt
    system: Prompt
    reasoning: Prompt
    vote: Prompt

    @classmethod
    def first(cls, prompts: Mapping[str, Prompt], layout: Layout) -> "Own":
        """Version 1 of each, those of ``prompts`` by their names."""
        return cls(LAYOUTS[layout], prompts[SYSTEM], prompts[REASONING], VOTE)

    async def chosen(self, prompts: Prompts) -> "Own":
        """The versions in use, in the place of the first ones."""
        system, reasoning = await prompts(self.system), await prompts(self.reasoning)
        return Own(self.page, system, reasoning, await prompts(self.vote))

    @property
    def role(self) -> str:
        """What the agent is."""
        return next(iter(self.system.editable.values()))

    @property
    def thinking(self) -> str:
        """How it is to think and answer; empty where nobody has said."""
        return next(iter(self.reasoning.editable.values()))

    def label(self, kind: TurnKind) -> str:
        """Which versions a turn of that kind was asked with."""
        if kind is TurnKind.VOTE:
            return f"{self.vote.label} {self.system.label}"
        # An empty one too: a run that goes on must not find another in its place.
        return " ".join(prompt.label for prompt in (self.page, self.system, self.reasoning))


def first_prompts(role: str, reasoning: str) -> dict[str, Prompt]:
    """Version 1 of an agent's own prompts: what its team file, or its maker, says."""
    return {SYSTEM: Prompt.of(SYSTEM, "role", role), REASONING: Prompt.of(REASONING, "reasoning", reasoning)}


def prompts_of(
    agent: str, team: str = "", store: Store | None = None, conversation: Conversation | None = None
) -> Prompts:
    """What an agent's prompts have become, and stay for one run: a resumed run goes on with those that it had."""
    if store is None:
        return first_version
    labels = [turn.prompt for turn in conversation.turns if turn.speaker == agent] if conversation else []
    numbers = {name: int(number) for label in labels for name, number in _LABEL.findall(label)}
    return Chosen(Library(store.records, joined(team, agent)), numbers)
