"""One agent's vote on a proposal, apart from the conversation.

Source: Intrinsic Memory Agents, appendix A, Algorithm 2: each agent is asked whether it agrees with the proposed
solution. The reason comes before the vote, and the criteria are explicit, because small models then tell at least
crude differences.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from memeplex.autonoms.base import ask, first_prompt
from memeplex.models import Completion, Model, Settings
from memeplex.prompts import Prompt

__all__ = ["PROMPT", "Vote", "cast_vote"]

PROMPT = first_prompt("cast_vote")


class Vote(BaseModel):
    """ACCEPT or an objection, with its reason."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, StringConstraints(max_length=160)]
    vote: Literal["ACCEPT", "OBJECT"]


async def cast_vote(
    model: Model,
    settings: Settings,
    *,
    proposal: str,
    criteria: Sequence[str],
    name: str,
    role: str,
    prompt: Prompt = PROMPT,
) -> Completion[Vote]:
    """Ask whether the proposal is acceptable by the criteria."""
    return await ask(model, prompt, Vote, settings, proposal=proposal, criteria=criteria, name=name, role=role)
