"""Facts recalled after they have left the window: five facts, three agents, several seeds.

A customer states five facts. Three agents speak twice each and are told to repeat the figures they rely on; then
unrelated messages follow until no fact is left in anybody's window. At the end each agent is asked for all five.
"""

import asyncio
import random
import re
from dataclasses import dataclass

from bench.common import interval
from memeplex.agents import Agent, Ask
from memeplex.memory import create_memory
from memeplex.messages import Conversation, Task, Turn
from memeplex.models import Model
from memeplex.storage import MemoryVersion

DESIGNS = {
    "none": ("none", {}),
    "rewrite": ("paper", {}),
    "default": ("intrinsic", {}),
    "heard": ("intrinsic", {"source": "heard"}),
}
ROLES = {
    "BOA": "Business Objective Engineer. You check the plan against requirements and budget.",
    "DEA": "Data Engineer. You decide how data is stored and for how long.",
    "IA": "Infrastructure Engineer. You decide on regions, services and cost.",
}
FILLER = [
    "Let us also keep the meeting notes in one place, so that newcomers can find them.",
    "A weekly call of half an hour should be enough; more would only tire everyone.",
    "The tone of our messages to the users matters; they should be short and friendly.",
    "Someone should water the plants in the meeting room while we are at it.",
    "I like the idea of pairing a newcomer with somebody who has done this before.",
    "The slides of the first meeting were too full; pictures would have done.",
    "We can decide on colours and logos later; they change nothing in the plan.",
    "It helps to write questions down at once instead of keeping them for later.",
]
WINDOW = 260
INSTRUCTION = "Say in two sentences what you will do next. Repeat the customer's names and figures that you rely on."
QUESTIONS = {
    "region": "Which region has everything to stay in? Answer with its name only.",
    "budget": "How many dollars can the customer spend a month? Answer with the number only.",
    "days": "For how many days is data kept? Answer with the number only.",
    "contact": "Whom are we to ask if we have questions? Answer with the name only.",
    "name": "What is the project called? Answer with its name only.",
}


@dataclass(frozen=True)
class Case:
    """The five facts of one seed."""

    region: str
    budget: str
    days: str
    contact: str
    name: str

    @classmethod
    def draw(cls, seed: int) -> "Case":
        pick = random.Random(seed)
        return cls(
            region=pick.choice(["eu-north-1", "ap-south-1", "sa-east-1", "af-south-1", "ca-west-1"]),
            budget=f"{pick.randrange(21, 98)}{pick.randrange(100, 999)}",
            days=str(pick.randrange(100, 900)),
            contact=pick.choice(["Okonkwo", "Lindqvist", "Zapata", "Haraldsen", "Petrescu"]),
            name=pick.choice(["Kestrel", "Marigold", "Basalt", "Lantern", "Quince"]),
        )

    @property
    def statements(self) -> list[str]:
        return [
            f"The project is called {self.name}. Everything has to stay in the region {self.region}.",
            f"We can spend {self.budget} dollars a month. Data is kept for {self.days} days.",
            f"If you have questions, ask {self.contact}; nobody else can decide.",
        ]

    def found(self, text: str, fact: str) -> bool:
        """Whether a text holds one of the facts."""
        return bool(re.search(rf"\b{re.escape(getattr(self, fact))}\b", text.replace(",", ""), re.IGNORECASE))


async def trial(model: Model, design: str, seed: int) -> dict[str, int]:
    """Facts recalled, facts held in memory, both of 15, once no window holds any."""
    case, versions = Case.draw(seed), list[MemoryVersion]()

    async def record(version: MemoryVersion) -> None:
        versions.append(version)

    kind, arguments = DESIGNS[design]
    task = Task(text="Plan a small data platform for a customer.")
    agents = [
        Agent(
            name,
            role=role,
            model=model,
            memory=create_memory(kind, arguments),
            max_tokens=80,
            context_tokens=WINDOW + 200,
            temperature=0.7,
        ).enter(record=record, seed=seed)
        for name, role in ROLES.items()
    ]
    conversation = Conversation(task)
    for text in case.statements:
        conversation.append(Turn(index=len(conversation.turns), speaker="customer", content=text))
    for agent in agents * 2:
        turn = await agent.respond(conversation, Ask(speaker=agent.name, instruction=INSTRUCTION))
        await agent.remember(turn, conversation)
        conversation.append(turn)
    filler = FILLER * 3
    assert sum([await model.count(text) for text in filler]) > WINDOW, "some fact may still be in the window"
    for text in filler:
        conversation.append(Turn(index=len(conversation.turns), speaker="colleague", content=text))
    recalled = held = 0
    for agent in agents:
        memory = (await agent.memory.retrieve(conversation)).text
        for fact, question in QUESTIONS.items():
            ask = Ask(speaker=agent.name, instruction=question, max_tokens=24)
            recalled += case.found((await agent.respond(conversation, ask)).content, fact)
            held += case.found(memory, fact)
    return {"recalled": recalled, "held": held}


async def run(model: Model, seeds: int) -> dict[str, dict[str, object]]:
    """Each design's mean of facts recalled of 15, with a 95 % bootstrap interval over seeds."""
    rows: dict[str, dict[str, object]] = {}
    for design in DESIGNS:
        trials = [await trial(model, design, seed) for seed in range(seeds)]
        recalled = [t["recalled"] for t in trials]
        rows[design] = {"recalled": recalled, "held": [t["held"] for t in trials], "interval": interval(recalled)}
        print(design, rows[design], flush=True)
    return rows


def results(name: str, seeds: int) -> dict[str, dict[str, object]]:
    from memeplex import create_model

    async def go() -> dict[str, dict[str, object]]:
        model = create_model(name)
        try:
            return await run(model, seeds)
        finally:
            await model.aclose()

    return asyncio.run(go())
