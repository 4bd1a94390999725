"""One contender of the overhead measurement, in a process of its own.

``python bench/contender.py KIND URL`` prints the CPU milliseconds a turn, for five agents and fifty turns, after one
run that does not count. KIND: autogen, memeplex, memeplex-store.
"""

import asyncio
import os
import sys
import tempfile
import time

AGENTS, TURNS = 5, 50
KIND, URL = sys.argv[1], sys.argv[2]


async def autogen() -> None:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    client = OpenAIChatCompletionClient(model="gpt-4o", base_url=URL, api_key="x")
    agents = [AssistantAgent(f"a{i}", client, system_message=f"agent {i}") for i in range(AGENTS)]
    team = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(TURNS + 1))
    result = await team.run(task="task")
    assert len(result.messages) == TURNS + 1


async def memeplex(stored: bool) -> None:
    from memeplex import Agent, Team, create_model, open_store
    from memeplex.memory import create_memory
    from memeplex.teams import MaxTurns

    model = create_model(f"{URL}#m")
    agents = [
        Agent(f"a{i}", role=f"agent {i}", model=model, memory=create_memory("none"), context_tokens=100_000)
        for i in range(AGENTS)
    ]
    team = Team(name="round", agents=agents, termination=MaxTurns(TURNS))
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"{folder}/runs.db") if stored else None
        result = await team.run("task", store=store)
        assert len(result.conversation.turns) == TURNS
        if store is not None:
            await store.aclose()
    await model.aclose()


def once() -> float:
    work = autogen() if KIND == "autogen" else memeplex(KIND == "memeplex-store")
    started = time.process_time()
    loop.run_until_complete(work)
    return (time.process_time() - started) / TURNS * 1000


loop = asyncio.new_event_loop()
once()
print(once(), flush=True)
os._exit(0)
