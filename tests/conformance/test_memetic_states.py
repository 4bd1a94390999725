"""Rows M04, M08-M12 and M33 of the claims of Memetic Agents: what the paper says of states, and of thinking on.

Sections are the paper's. Where its text leaves a choice open, the reading taken is in the docstring. What travels by
HTTP comes with the network: here states change from Python.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from days import kinds
from lives import opened
from living import NOON, converse, life, message
from pydantic import BaseModel
from support import listening, only

from memeplex.agents.lifecycle import ACTIVE, TAKES, Standings, State
from memeplex.agents.rhythm import After, Load, SimulatedClock, Whenever, circadian
from memeplex.autonoms.thought_loop import PROMPT as THOUGHT_LOOP
from memeplex.errors import StateError
from memeplex.models import ChatMessage, Settings
from memeplex.storage.sqlite import SQLiteStore
from memeplex.usage import Purpose

BUDGET = "The budget of the bridge is small."


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


async def test_m04_a_thought_loop_decides_whether_to_go_on(store: SQLiteStore) -> None:
    """Autonoms: "Thought Loop: Decides when to exit the reasoning loop and when to continue."

    Reading: it may be asked again and again, and a bound in code ends the loop whatever it says.
    """

    def restless(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        if settings.purpose is Purpose.THOUGHT:
            return {"missing": "the price", "decision": "CONTINUE"}
        return converse(messages, output, settings)

    content, calm = listening(converse)
    async with life(store, model=content) as seller:
        await seller.ask(message("What does it cost?"))
    assert (len(only(calm, Purpose.ANSWER)), len(only(calm, Purpose.THOUGHT))) == (1, 1)

    model, asked = listening(restless)
    async with life(store, model=model) as seller:
        await seller.ask(message("And in winter?", 2))
        most = seller.settings.thoughts
    assert (len(only(asked, Purpose.ANSWER)), len(only(asked, Purpose.THOUGHT))) == (most, most - 1)
    assert "the price" in only(asked, Purpose.ANSWER)[-1].text


async def test_m08_the_state_sets_the_active_prompts_and_the_permitted_interactions(store: SQLiteStore) -> None:
    """State Management: "The state determines which system prompts are active and what types of interactions are
    permitted."
    """
    assert set(ACTIVE) == set(TAKES) == set(State)
    assert len(set(ACTIVE.values())) > 3
    async with life(store) as seller:
        assert (await seller.prompts(THOUGHT_LOOP)).name == "thought_loop"
        seller._standing = await Standings(store.records).change(
            seller.owner, State.SLEEPING, actor="t", at=NOON, cause="night"
        )
        with pytest.raises(StateError, match="sleeping"):
            await seller.prompts(THOUGHT_LOOP)
        with pytest.raises(StateError, match="sleeping"):
            await seller.tell("buyer", "Are you there?")
        assert await seller.ask(message("Are you there?")) is None


async def test_m09_entering_a_state_triggers_its_routine_and_ends_in_available(store: SQLiteStore) -> None:
    """State Management: "transitioning to a new state will trigger the autonomic subroutine associated with the new
    state", and of Available: "Agents return to this state after completing other tasks."
    """
    model, asked = listening(converse)
    async with life(store, model=model) as seller:
        await seller.ask(message(BUDGET))
        await seller.enter(State.SLEEPING)
        assert not only(asked, Purpose.EXTRACTION)
        for state in (State.MEMORISING, State.LEARNING, State.SOCIALISING):
            await seller.enter(state)
            assert seller.state is State.AVAILABLE
            assert seller.standing.entered[state] == NOON
    assert only(asked, Purpose.EXTRACTION)
    assert (await kinds(store, "desk/seller"))["atomic"] == 1


async def test_m10_asleep_working_memory_becomes_short_term_memory_and_nothing_is_lost(store: SQLiteStore) -> None:
    """State table: "Inactive state where the agent is unavailable for communication. The agent will also transfer its
    working memory to short term memory and reset its message queue."

    Reading: the queue lets go of what is in short-term memory; what waits is kept, and answered afterwards.
    """
    async with life(store) as seller:
        await seller.ask(message(BUDGET))
        await seller.receive(message("And the height?", 2))
        await seller.enter(State.SLEEPING)
        assert (await kinds(store, "desk/seller"))["short_term"] == 1
        (letter,) = await seller.queue.all()
        assert letter.message.id == "m2"
        assert letter.reply is not None


async def test_m11_before_it_goes_offline_working_memory_becomes_short_term_memory(store: SQLiteStore) -> None:
    """State table, Shutting Down: "Transitional state where the agent converts working memory to short-term memory
    before going offline."
    """
    async with life(store) as seller:
        await seller.ask(message(BUDGET))
        await seller.enter(State.SHUTTING_DOWN)
        assert seller.state is State.SHUTTING_DOWN
        assert (await kinds(store, "desk/seller"))["short_term"] == 1
        assert await seller.ask(message("Still there?", 2)) is None
        with pytest.raises(StateError):
            await seller.enter(State.LEARNING)
        await seller.start()
        assert [one.reply_to for one in await seller.attend()] == ["m2"]


async def test_m12_others_can_see_an_agents_state(store: SQLiteStore) -> None:
    """State Management: "making each agent's current status accessible to others in the network"; "State transitions
    can be triggered by API calls".

    Reading: whoever has the store sees how each agent stands, since when, and why.
    """
    async with life(store) as seller:
        await seller.enter(State.SHUTTING_DOWN, cause="the shop closes")
    async with life(store, "buyer"):
        seen = await Standings(store.records).all()
    assert {owner: standing.state for owner, standing in seen.items()} == {
        "desk/seller": State.SHUTTING_DOWN,
        "desk/buyer": State.AVAILABLE,
    }
    assert seen["desk/seller"].cause == "the shop closes"
    history = [row.cause for row in await store.records.audit("desk/seller")]
    assert "the shop closes" in history


async def test_m33_an_algorithm_rules_the_states_by_time_by_load_and_by_seed(store: SQLiteStore) -> None:
    """Future Research: "Artificial Circadian Rhythm"; State Management: "In a future release this will be handled by
    an autonom or centralised algorithm that will regulate these states".
    """
    clock = SimulatedClock(NOON)
    async with life(store, clock=clock) as seller:
        assert await seller.follow(circadian(seed=3)) == []
        clock.advance(13)
        assert await seller.follow(circadian(seed=3)) == [State.SLEEPING, State.LEARNING, State.MEMORISING]
        assert await seller.follow(circadian(seed=3)) == []
        busy = Whenever(State.SLEEPING, Load(conversations=1)) | After(State.SOCIALISING, hours=48)
        assert await seller.follow(busy) == []
        await seller.ask(message(BUDGET))
        assert await seller.follow(busy) == [State.SLEEPING]
        clock.advance(48)
        await seller.enter(State.MEMORISING)
        assert await seller.follow(busy) == [State.SOCIALISING]
    drawn = {circadian(22, spread=8, seed=seed).wants(await _evening(store, clock, seed)) for seed in range(8)}
    assert drawn == {State.SLEEPING, None}


async def _evening(store: SQLiteStore, clock: SimulatedClock, seed: int) -> Any:
    """The condition of an agent that has not slept yet, some hours into the night."""
    clock.now = NOON.replace(hour=23, minute=59)
    async with life(store, f"fresh{seed}", clock=clock) as agent:
        clock.advance(2)
        return await agent.condition(weigh=False)
