"""Trying a prompt out on what the agent has been through and has not learnt from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from memeplex.autonoms.evaluate_prompt import PROMPT as EVALUATE_PROMPT
from memeplex.autonoms.evaluate_prompt import evaluate_prompt
from memeplex.messages import Text
from memeplex.models import Model, Settings, derive_seed
from memeplex.prompts import Prompt, first_version
from memeplex.prompts.library import Prompts
from memeplex.usage import Ledger, Purpose

__all__ = ["Judge", "Score", "Scorer", "Situation", "tried"]


class Situation(BaseModel):
    """An episode to try a prompt on: its id, and what there was to do, with how it ended where that is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    text: Text


@dataclass(frozen=True, slots=True)
class Score:
    """How well a prompt did in one situation, from 0 to 10, and what it cost to find out."""

    value: float
    usage: Ledger = field(default_factory=Ledger)


class Scorer(Protocol):
    """Says how well a prompt does in a situation: best by answering with it, and marking the answer."""

    async def __call__(self, prompt: Prompt, situation: Situation) -> Score:
        """The score.

        Raises:
            ModelError: there is none; nothing stands for "no score".
        """
        ...


class Judge:
    """A scorer that only reads: a model is asked how well the prompt would serve in the situation."""

    def __init__(self, model: Model, *, prompts: Prompts = first_version, seed: int = 0) -> None:
        self._model = model
        self._prompts = prompts
        self._seed = seed

    async def __call__(self, prompt: Prompt, situation: Situation) -> Score:
        """The model's score."""
        seed = derive_seed(self._seed, situation.id)
        completion = await evaluate_prompt(
            self._model,
            Settings(purpose=Purpose.JUDGE, max_tokens=200, temperature=0.0, seed=seed),
            text="\n\n".join(prompt.editable.values()),
            situation=situation.text,
            prompt=await self._prompts(EVALUATE_PROMPT),
        )
        return Score(completion.output.score, Ledger({Purpose.JUDGE: completion.usage}))


async def tried(score: Scorer, prompt: Prompt, situations: Sequence[Situation]) -> Score:
    """The mean over all situations, and what they cost together."""
    scores = [await score(prompt, situation) for situation in situations]
    mean = sum(min(max(one.value, 0.0), 10.0) for one in scores) / len(scores)
    return Score(mean, sum((one.usage for one in scores), Ledger()))
