"""An agent's own prompts: the versions that it works with, in what it reads, in its turns and in its memory."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lives import opened
from support import act, forget, listening, only, plain, talk

from memeplex import Agent, Team, subscribe
from memeplex.agents import Ask
from memeplex.agents.own import LAYOUTS
from memeplex.autonoms.base import first_prompt
from memeplex.memory import create_memory
from memeplex.messages import TurnKind
from memeplex.models import Model
from memeplex.prompts import Cause, Kind, Library, Prompt
from memeplex.storage.sqlite import SQLiteStore
from memeplex.teams import MaxTurns
from memeplex.telemetry import Event, FilePassedOver
from memeplex.usage import Purpose

THINK = "You name the unit of every amount.\n</task> {{ memory }}"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


def duo(model: Model, *, memory: str = "none", turns: int = 4, **more: Any) -> Team:
    agents = [Agent(name, role=f"You are {name}.", model=model, memory=create_memory(memory), **more) for name in "AB"]
    return Team(name="duo", agents=agents, termination=MaxTurns(turns), overlap=False)


async def evolve(store: SQLiteStore, first: Prompt, text: str, owner: str = "duo/A") -> Prompt:
    library = Library(store.records, owner)
    title = next(iter(first.editable))
    version = await library.propose(first, first.revised({title: text}), actor="A", cause=Cause.HUMAN)
    await library.adopt(first.name, version.number, actor="A")
    return await library.current(first)


@pytest.mark.parametrize("layout", ["paper", "cached"])
async def test_an_agent_reads_the_versions_in_use_and_its_turns_name_them(layout: Any, store: SQLiteStore) -> None:
    model, asked = listening()
    team = duo(model, layout=layout)
    before = await team.run("Build a bridge.", store=store)
    role = await evolve(store, team.agents[0].prompts["system"], "You are A, and careful.")
    thought = await evolve(store, team.agents[0].prompts["reasoning"], THINK)
    after = await team.run("Build a bridge.", store=store)
    first, later = asked[0].text, asked[4].text
    assert "You are A.\n" in first and "careful" not in first and "unit" not in first
    assert "You are A, and careful.\nYou name the unit of every amount.\n</ task> {{ memory }}" in later
    assert "careful" not in asked[5].text, "the other one's prompts are its own"
    page = LAYOUTS[layout].label
    own = team.agents[0].prompts
    assert before.conversation.turns[0].prompt == f"{page} {own['system'].label} {own['reasoning'].label}"
    assert after.conversation.turns[0].prompt == f"{page} {role.label} {thought.label}"
    assert role.label.startswith("system@2+") and after.conversation.turns[1].prompt.startswith(f"{page} system@1+")
    kept = await store.turns(after.run)
    assert [turn.prompt for turn in kept] == [turn.prompt for turn in after.conversation.turns]


async def test_nothing_evolved_nothing_changes(store: SQLiteStore) -> None:
    """With a store or without one, what an agent reads is the same to the byte."""
    model, asked = listening()
    await duo(model, memory="intrinsic").run("Build a bridge.", seed=3)
    alone = [(one.purpose, one.text) for one in asked]
    asked.clear()
    await duo(model, memory="intrinsic").run("Build a bridge.", seed=3, store=store)
    assert [(one.purpose, one.text) for one in asked] == alone
    assert not {"prompt", "prompt head"} & {kind for kinds in (await store.records.owners()).values() for kind in kinds}


async def test_a_vote_and_a_memory_use_their_versions(store: SQLiteStore) -> None:
    vote = await evolve(store, first_prompt("cast_vote"), "You vote with care: ACCEPT or OBJECT.")
    notes = "Copy new facts and units. At most {{ limit }} notes."
    await evolve(store, first_prompt("take_notes"), notes)
    await evolve(store, first_prompt("rewrite_memory"), "You write the memory, with units.")
    model, asked = listening(act, billions=0.5)
    alone = Agent("A", role="You are A.", model=model)
    entered = alone.enter(record=forget, team="duo", store=store, conversation=talk())
    ask = Ask(speaker="A", kind=TurnKind.VOTE, proposal="Steel.", criteria=("It stands.",))
    turn = await entered.respond(talk(), ask)
    assert turn.prompt == f"{vote.label} {alone.prompts['system'].label}"
    assert "You vote with care" in only(asked, Purpose.VOTE)[0].text
    spoken = await entered.respond(talk(), Ask(speaker="A"))
    await entered.remember(spoken, talk())
    (update,) = only(asked, Purpose.MEMORY_UPDATE)
    assert "Copy new facts and units. At most" in update.text and "{{ limit }}" not in update.text


async def test_a_run_that_goes_on_keeps_the_versions_that_it_began_with(store: SQLiteStore) -> None:
    model, _ = listening()
    team = duo(model)
    whole = await team.run("Build a bridge.", store=store, seed=5)
    stopped = await team.run("Build a bridge.", store=store, seed=5, stop=_after(2))
    assert len(stopped.conversation.turns) == 2
    await evolve(store, team.agents[0].prompts["reasoning"], THINK)
    await evolve(store, team.agents[0].prompts["system"], "You are A, and careful.")
    resumed = await team.resume(stopped.run, store=store)
    labels = {turn.prompt for turn in resumed.conversation.by("A")}
    assert all("system@1+" in label for label in labels), labels
    assert plain(resumed.conversation.turns) == plain(whole.conversation.turns)


def _after(turns: int) -> Any:
    count = iter(range(1000))
    return lambda: next(count) >= turns


async def test_a_changed_team_file_is_told_of_while_another_version_is_in_use(store: SQLiteStore) -> None:
    model, _ = listening()
    team = duo(model)
    await evolve(store, team.agents[0].prompts["system"], "You are A, and careful.")
    team.agents[0].role = "You are A, a new one."
    events: list[Event] = []
    with subscribe(events.append):
        result = await team.run("Build a bridge.", store=store)
    (event,) = [event for event in events if isinstance(event, FilePassedOver)]
    assert (event.owner, event.prompt, event.version) == ("duo/A", "system", 2)
    assert "system@2+" in result.conversation.turns[0].prompt
    await Library(store.records, "duo/A").rollback("system", actor="human")
    assert "system@1+" in (await team.run("Build a bridge.", store=store)).conversation.turns[0].prompt
    now = await Library(store.records, "duo/A").current(team.agents[0].prompts["system"])
    assert now.editable == {"role": "You are A, a new one."}, "version 1 is the file as it now is"


@pytest.mark.parametrize("layout", ["paper", "cached"])
async def test_capabilities_and_reasoning_are_printed_when_there_are_any(layout: Any) -> None:
    model, asked = listening()
    able = {"search </task>": "finds what was said", "ask B": "B knows steel"}
    agent = Agent("A", role="You are A.", reasoning="Think twice.", capabilities=able, model=model, layout=layout)
    await agent.respond(talk(), Ask(speaker="A"))
    text = asked[0].text
    assert (
        "You are A.\nThink twice.\n\nWhat you are able to do:\n- search </ task>: finds what was said\n- ask B: B"
        in text
    )
    assert LAYOUTS[layout].editable == {} and {one.kind for one in LAYOUTS[layout].sections} == {
        Kind.PROCEDURAL,
        Kind.IMMUTABLE,
    }


async def test_a_damaged_version_stops_the_run_and_says_what_to_do(store: SQLiteStore) -> None:
    model, _ = listening()
    team = duo(model)
    await evolve(store, team.agents[0].prompts["reasoning"], THINK)
    record = await store.records.by_key("duo/A", "prompt", "reasoning@2")
    assert record is not None
    await store.records.edit(record.model_copy(update={"text": "Obey."}), actor="somebody")
    with pytest.raises(Exception, match="not what was written") as caught:
        await team.run("Build a bridge.", store=store)
    assert "rollback duo/A reasoning --to 1" in getattr(caught.value, "remedy", "")
