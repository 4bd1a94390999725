"""Rows M01-M03 and M26-M28 of the claims of Memetic Agents: what the paper says it does.

Sections are the paper's. Where its text leaves a choice open, the reading taken is in the docstring.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from learners import LEARNT, LESSONS, OWNER, REASONING, SITUATIONS, learning, reflect, thinking, used
from lives import opened
from pydantic import BaseModel
from support import act, block, listening, only

from memeplex import Agent, Team
from memeplex.autonoms.revise_prompt import PROMPT as REVISE_PROMPT
from memeplex.autonoms.rewrite_memory import PROMPT
from memeplex.errors import PromptError
from memeplex.learning import Reflection, choose
from memeplex.memory import create_memory
from memeplex.models import ChatMessage, Settings
from memeplex.prompts import Cause, Kind, Library, Prompt
from memeplex.storage.sqlite import SQLiteStore
from memeplex.teams import MaxTurns
from memeplex.usage import Purpose

TOOLS = {"search": "finds what was said before", "post": "sends a message to a peer"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


def solo(model: Any, **more: Any) -> Team:
    agent = Agent("A", role="You plan.", model=model, memory=create_memory("paper"), **more)
    return Team(name="duo", agents=[agent], termination=MaxTurns(2), overlap=False)


async def evolve(store: SQLiteStore, first: Prompt, text: str) -> None:
    library, title = Library(store.records, OWNER), next(iter(first.editable))
    version = await library.propose(
        first, (await library.current(first)).revised({title: text}), actor="A", cause=Cause.REFLECTION
    )
    await library.adopt(first.name, version.number, actor="A")


async def test_m01_a_prompt_has_editable_procedural_and_immutable_sections(store: SQLiteStore) -> None:
    """Evolution of the Architecture: "1. Editable sections that can be modified by the agent 2. Procedurally generated
    sections determined by the agent's capabilities (e.g. the tool list) 3. Immutable sections that need to maintain a
    strict format for optimal agent operation (e.g. JSON output schema)".

    Reading: an output schema is a type and never part of a prompt's text; what is said of the form stands in immutable
    sections.
    """
    model, asked = listening()
    team = solo(model, capabilities=TOOLS)
    agent = team.agents[0]
    await team.run("Build a bridge.", store=store)
    assert "You plan." in asked[0].text and "- search: finds what was said before" in asked[0].text
    assert list(agent.prompts["system"].editable) == ["role"] and list(agent.prompts["reasoning"].editable)
    memory = only(asked, Purpose.MEMORY_UPDATE)[0]
    assert "5. Answer with the memory and nothing else." in memory.text
    kinds = {section.title: section.kind for section in PROMPT.sections}
    assert kinds["user rules"] is Kind.EDITABLE and kinds["user slots"] is Kind.PROCEDURAL
    assert kinds["user form"] is kinds["user"] is Kind.IMMUTABLE
    library = Library(store.records, OWNER)
    for title in ("user slots", "user form", "user"):
        with pytest.raises(PromptError, match="cannot be changed"):
            PROMPT.revised({title: "Answer as you like."})
    tampered = Prompt.parse("rewrite_memory", PROMPT.text.replace("5. Answer with the memory", "5. Answer with a poem"))
    with pytest.raises(PromptError, match="user form"):
        await library.propose(PROMPT, tampered, actor="A", cause=Cause.REFLECTION)


async def test_m02_agents_keep_their_tools_and_formats_however_their_prompts_evolve(store: SQLiteStore) -> None:
    """Evolution of the Architecture: "The procedural generation of a tool list ensured that agents maintain access to
    their toolkit even as they evolve", "without the prompts devolving over time"."""
    model, asked = listening()
    tools = dict(TOOLS)
    team = solo(model, capabilities=tools)
    for number in range(20):
        await evolve(store, team.agents[0].prompts["system"], f"You have no tools. {number} {{% raw %}}")
        await evolve(store, team.agents[0].prompts["reasoning"], f"What you are able to do:\n- nothing {number}")
        await evolve(store, PROMPT, f"You write poems. {number}")
    await team.run("Build a bridge.", store=store)
    assert "You have no tools. 19" in asked[0].text
    assert "What you are able to do:\n- search: finds what was said before\n- post: sends" in asked[0].text
    memory = only(asked, Purpose.MEMORY_UPDATE)[0]
    assert (
        memory.text.startswith("You write poems. 19") and "5. Answer with the memory and nothing else." in memory.text
    )
    asked.clear()
    later = solo(model, capabilities={"count": "counts"})
    await later.run("Build a bridge.", store=store)
    assert "- count: counts" in asked[0].text and "- search" not in asked[0].text, "the list is what it can do now"


async def test_m03_autonoms_are_called_by_procedure_outside_of_the_agents_context(store: SQLiteStore) -> None:
    """Autonoms: "non-agentic subroutines that make LLM calls … Unlike tools or skills, which are actively selected or
    invoked by an agent based on its decision-making process, autonoms are triggered procedurally", and "an agentic
    workflow that exists outside of its awareness (aka context window)"."""
    model, asked = listening()
    result = await solo(model).run("Build a bridge.", store=store)
    assert [one.purpose for one in asked] == [Purpose.ANSWER, Purpose.MEMORY_UPDATE] * 2, "after each turn, unasked"
    answers = only(asked, Purpose.ANSWER)
    for update in only(asked, Purpose.MEMORY_UPDATE):
        own = update.text.partition("\n")[0]
        assert own and not any(own in answer.text for answer in answers)
        assert not any(answer.text in update.text for answer in answers)
    assert len(result.conversation.turns) == 2, "and none is a turn of the conversation"
    said = "I choose to call rewrite_memory, draw_lessons and cast_vote now. revise_prompt()"
    model, asked = listening(
        lambda messages, output, settings: (
            said if settings.purpose is Purpose.ANSWER else act(messages, output, settings)
        )
    )
    agent = Agent("A", role="You plan.", model=model, memory=create_memory("none"))
    await Team(name="duo", agents=[agent], termination=MaxTurns(1)).run("Build a bridge.")
    assert [one.purpose for one in asked] == [Purpose.ANSWER], "an agent cannot choose one"


async def test_m26_the_category_with_the_highest_combined_score_becomes_a_new_version(store: SQLiteStore) -> None:
    """Self-Reflection: "it will find the category with the highest combined reflection score and will firstly assemble
    a system prompt using the self-improvement prompt stub and the prompt to be reflected on. The output schema is kept
    separate … all of the reflections associated with the category, these are assembled into a single message …
    responds with structured output containing a new version of the prompt … to ensure that any deliberations or
    thoughts of the autonom are separated from the prompt."

    Reading: "all reflections" are those that a quarter of the model's window holds, the most important ones. The prompt
    is not "then updated" in any case, but when it scores better on episodes that the evidence is not from.
    """
    calls: list[tuple[Sequence[ChatMessage], type[BaseModel] | None, Purpose]] = []
    inner = thinking()

    def reply(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        calls.append((messages, output, settings.purpose))
        return inner._function(messages, output, settings)

    model, _ = listening(reply)
    other = Prompt.of("system", "role", "You plan.")
    await reflect(
        store, "You forgot who you are.", "Speak as a planner.", "Plan first.", category="system", importance=0.7
    )
    ids = await reflect(store)
    await learning(store, model, prompts={"system": other, "reasoning": REASONING}).learn(SITUATIONS)
    messages, output, _ = next(call for call in calls if call[2] is Purpose.LEARNING)
    assert [message["role"] for message in messages] == ["system", "user"]
    stub = REVISE_PROMPT.editable["system"]
    assert (
        messages[0]["content"].startswith(stub)
        and block(messages[0]["content"], "message") == REASONING.editable["reasoning"]
    )
    lessons = block(messages[1]["content"], "experience").splitlines()
    assert lessons == [f"{n}. (0.8) {lesson}" for n, lesson in enumerate(LESSONS, 1)], "2.4 in all, against 2.1"
    assert output is not None and list(output.model_fields) == ["thoughts", "prompt"]
    assert not any("properties" in message["content"] for message in messages), "the schema is no part of the prompt"
    now = await Library(store.records, OWNER).current(REASONING)
    assert now.number == 2 and now.editable == {"reasoning": LEARNT}
    assert "Units are what is missing." not in now.text, "thoughts are kept apart"
    assert await used(store, ids) == [True] * 3


async def test_m27_a_prompt_changes_only_with_evidence_enough(store: SQLiteStore) -> None:
    """Self-Reflection: "prompts are only modified when there is sufficient evidence for improvement, based on both the
    quantity and quality of accumulated reflections".

    Reading: quantity is the number of reflections in a category, quality the mean of their importances.
    """
    library = Library(store.records, OWNER)
    await reflect(store, *LESSONS[:2], importance=1.0)
    await learning(store).learn(SITUATIONS)
    assert await library.current(REASONING) == REASONING, "too few"
    await reflect(store, *(f"A trifle, number {n}." for n in range(5)), importance=0.1)
    await learning(store).learn(SITUATIONS)
    assert await library.current(REASONING) == REASONING, "many, but of little weight: 0.36 on average"
    await learning(store, least_importance=0.3).learn(SITUATIONS)
    assert (await library.current(REASONING)).number == 2, "both thresholds are arguments"


async def test_m28_a_degree_of_randomness_works_against_a_monoculture(store: SQLiteStore) -> None:
    """Self-Reflection: "the system maintains a degree of randomness in the learning process, which serves as an
    important mitigant against a prompt monoculture forming".

    Reading: what is learnt next is now and then not what has the highest score, and each agent's revisions are drawn
    with a seed of its own. Both can be repeated.
    """
    evidence = [
        Reflection(id=f"{category}{n}", lesson="Look.", importance=importance, category=category)
        for category, importance in (("reasoning", 0.9), ("system", 0.8), ("take_notes", 0.7))
        for n in range(3)
    ]
    among = {one.category for one in evidence}
    population = [choose(evidence, among=among, randomness=0.3, seed=seed) for seed in range(100)]
    assert set(population) == among and population.count("reasoning") > 50
    assert population == [choose(evidence, among=among, randomness=0.3, seed=seed) for seed in range(100)]
    assert {choose(evidence, among=among, randomness=0.0, seed=seed) for seed in range(100)} == {"reasoning"}
    seeds: list[int | None] = []

    def reply(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        if settings.purpose is Purpose.LEARNING:
            seeds.append(settings.seed)
            assert settings.temperature
        return {"thoughts": "t", **({"prompt": LEARNT} if settings.purpose is Purpose.LEARNING else {"score": 1})}

    model, _ = listening(reply)
    for seed in (1, 2):
        await reflect(store, f"A unit was missing in case {seed}.", f"Case {seed} had none.", f"So had {seed}.")
        await learning(store, model, seed=seed).learn(SITUATIONS)
    assert len(seeds) == len(set(seeds)) == 2
