"""Trying one of an agent's own prompts out: the agent answers with it, and a judge says how well."""

from memeplex.agents.agent import Agent
from memeplex.agents.ask import Ask
from memeplex.agents.conversing import Recalling
from memeplex.autonoms.judge import PROMPT as JUDGE
from memeplex.autonoms.judge import judge
from memeplex.learning import Judge, Score, Situation
from memeplex.messages import Conversation, Task
from memeplex.models import Settings, derive_seed
from memeplex.prompts import Prompt
from memeplex.prompts.library import Prompts
from memeplex.usage import Ledger, Purpose

__all__ = ["Rehearsal"]

_RESULT = 4000
"""Characters of an answer that the judge reads."""


class Rehearsal:
    """A scorer for learning. A prompt that is not one the agent answers with is only read, and judged by that."""

    def __init__(self, agent: Agent, *, prompts: Prompts, seed: int = 0) -> None:
        self._agent = agent
        self._prompts = prompts
        self._seed = seed
        self._reader = Judge(agent.model, prompts=prompts, seed=seed)

    async def __call__(self, prompt: Prompt, situation: Situation) -> Score:
        """The judge's score of the answer."""
        if prompt.name not in self._agent.prompts:
            return await self._reader(prompt, situation)

        async def chosen(first: Prompt) -> Prompt:
            return prompt if first.name == prompt.name else await self._prompts(first)

        # The same seed for both prompts, so that only they make a difference.
        seed = derive_seed(self._seed, situation.id)
        speaker = self._agent.with_memory(Recalling(), prompts=chosen, seed=seed)
        turn = await speaker.respond(Conversation(Task(text=situation.text)), Ask(speaker=self._agent.name))
        verdict = await judge(
            self._agent.model,
            Settings(purpose=Purpose.JUDGE, max_tokens=200, temperature=0.0, seed=seed),
            task=situation.text,
            result=turn.content[:_RESULT],
            prompt=await self._prompts(JUDGE),
        )
        return Score(verdict.output.score, turn.usage + Ledger({Purpose.JUDGE: verdict.usage}))
