"""The feedback that an agent gives: a job for each answer that it got, and a message that says what it thinks of it.

Source: Memetic Agents, "Feedback Messages": "Automatically generated after standard message exchanges".
"""

from collections.abc import Awaitable, Callable

from memeplex.agents.agent import Agent
from memeplex.agents.own import SYSTEM
from memeplex.autonoms.give_feedback import PROMPT, give_feedback
from memeplex.memory.topology import joined
from memeplex.memory.work import Costs, Work
from memeplex.messages import FeedbackMessage, Message
from memeplex.models import Settings, derive_seed
from memeplex.prompts.library import Prompts
from memeplex.storage import Job, Jobs
from memeplex.usage import Ledger, Purpose

__all__ = ["FEEDBACK_JOB", "GivingFeedback"]

FEEDBACK_JOB = "give feedback"
"""The kind of these jobs."""
_READ = 2000
"""Characters of what was asked and answered that are kept with a job."""

Post = Callable[[Message], Awaitable[None]]
"""Hands a message over to whom it is for."""


class GivingFeedback:
    """One agent's feedback on the answers of others. What the model fails on is tried again later."""

    def __init__(self, agent: Agent, jobs: Jobs, *, owner: str, prompts: Prompts, post: Post, seed: int = 0) -> None:
        self._agent = agent
        self._owner = owner
        self._prompts = prompts
        self._post = post
        self._seed = seed
        self._work = Work(jobs, [FEEDBACK_JOB], owner=owner, name=f"{owner} {FEEDBACK_JOB}", agent=agent.name)

    async def enqueue(
        self, *, conversation: str, about: int | None, source: str, by: str, asked: str, answer: str
    ) -> None:
        """Ask for feedback on an answer ``by`` another agent; ``source`` is the answer, which is scored once."""
        payload = {"conversation": conversation, "about": about, "by": by}
        payload |= {"asked": asked[:_READ], "answer": answer[:_READ]}
        key = joined(conversation, source)
        await self._work.jobs.enqueue(Job(kind=FEEDBACK_JOB, owner=self._owner, key=key, payload=payload))

    async def drain(self, *, stop: Callable[[], bool] = lambda: False) -> Ledger:
        """Give the feedback that was asked for and not given; gives what it cost."""
        return await self._work.drain(self._give, again=True, stop=stop)

    async def _give(self, job: Job, costs: Costs) -> str:
        told = job.payload
        settings = Settings(
            purpose=Purpose.FEEDBACK, max_tokens=200, temperature=0.0, seed=derive_seed(self._seed, job.key)
        )
        role = next(iter((await self._prompts(self._agent.prompts[SYSTEM])).editable.values()))
        call = give_feedback(
            self._agent.model,
            settings,
            name=self._agent.name,
            role=role,
            asked=told["asked"],
            answer=told["answer"],
            by=told["by"],
            prompt=await self._prompts(PROMPT),
        )
        given = (await costs.of(Purpose.FEEDBACK, call)).output
        message = FeedbackMessage(
            # Sent again after a sudden end, it is the same message.
            id=f"feedback-{job.id}",
            sender=self._agent.name,
            recipient=told["by"],
            conversation=told["conversation"],
            score=given.score,
            comment=given.comment,
            about=told["about"],
        )
        await self._post(message)
        return f"{given.score:g} for {told['by']}"
