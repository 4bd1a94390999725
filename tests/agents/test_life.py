"""Agents that live: their states, their messages, and what an end in the middle leaves behind."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from days import kinds
from hypothesis import given
from hypothesis import strategies as st
from lives import opened
from living import NOON, life, message

from memeplex.agents import routines
from memeplex.agents.lifecycle import TAKES, TRANSITIONS, Standings, State, state_named
from memeplex.agents.rhythm import SimulatedClock, circadian
from memeplex.errors import ModelUnavailableError, RunLockedError, StateError, UnknownNameError
from memeplex.messages import FeedbackMessage, MessageKind, SocialMessage
from memeplex.models.testing import FunctionModel
from memeplex.storage.sqlite import SQLiteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


def test_from_each_state_but_the_last_an_agent_can_come_back_or_shut_down() -> None:
    for state in State:
        if state is State.AVAILABLE:
            assert TRANSITIONS[state] == set(State) - {State.AVAILABLE}
        elif state is State.SHUTTING_DOWN:
            assert TRANSITIONS[state] == set()
        else:
            assert TRANSITIONS[state] == {State.AVAILABLE, State.SHUTTING_DOWN}


def test_every_kind_of_message_is_taken_in_some_state_and_none_by_a_sleeper() -> None:
    assert set().union(*TAKES.values()) == set(MessageKind)
    assert not TAKES[State.SLEEPING]
    assert not TAKES[State.SHUTTING_DOWN]


@pytest.mark.parametrize("text", ["shutting-down", "SHUTTING_DOWN", " shutting down "])
def test_a_state_is_known_however_it_is_written(text: str) -> None:
    assert state_named(text) is State.SHUTTING_DOWN


def test_an_unknown_state_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(UnknownNameError) as caught:
        state_named("sleping")
    assert "sleeping" in str(caught.value.remedy)


@given(steps=st.lists(st.sampled_from(list(State)), max_size=12))
def test_a_standing_only_goes_where_the_table_lets_it(steps: list[State]) -> None:
    async def walked() -> None:
        async with opened(None) as store:
            standings = Standings(store.records)
            now = await standings.begin("desk/seller", actor="t", at=NOON, cause="born")
            for step in steps:
                if step in TRANSITIONS[now.state]:
                    before = now
                    now = await standings.change("desk/seller", step, actor="t", at=NOON, cause="walk")
                    assert (now.state, now.number) == (step, before.number + 1)
                else:
                    with pytest.raises(StateError) as caught:
                        await standings.change("desk/seller", step, actor="t", at=NOON, cause="walk")
                    assert set(caught.value.possible) == TRANSITIONS[now.state]
                assert (await standings.all())["desk/seller"] == now

    asyncio.run(walked())


async def test_a_message_is_answered_once_however_often_it_is_sent(store: SQLiteStore) -> None:
    async with life(store) as seller:
        first = await seller.ask(message("What does the bridge cost?"))
        again = await seller.ask(message("What does the bridge cost?"))
        talk = await seller.tiers.open("talk")
        assert first is not None
        assert first == again
        assert [one.role for one in talk.messages if one.new] == ["user", "assistant"]


async def test_what_waits_is_answered_by_the_next_process(store: SQLiteStore) -> None:
    async with life(store) as seller:
        await seller.receive(message("One?", 1))
        await seller.receive(message("Two?", 2))
    async with life(store) as seller:
        answers = await seller.attend()
    assert [one.reply_to for one in answers] == ["m1", "m2"]


async def test_a_conversation_outlives_its_process_before_it_is_slept_over(store: SQLiteStore) -> None:
    async with life(store) as seller:
        await seller.ask(message("The budget of the bridge is small."))
        before = [one.content for one in (await seller.tiers.open("talk")).messages]
    async with life(store) as seller:
        assert [one.content for one in (await seller.tiers.open("talk")).messages] == before
        await seller.enter(State.SLEEPING)
        assert not await seller.queue.all()
    assert (await kinds(store, "desk/seller"))["short_term"] == 1


async def test_two_processes_do_not_live_one_agent(store: SQLiteStore) -> None:
    async with life(store):
        with pytest.raises(RunLockedError, match="lives desk/seller"):
            async with life(store):
                pass


async def test_a_failing_routine_leaves_the_agent_available(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: Any) -> str:
        raise ModelUnavailableError("nobody there")

    monkeypatch.setitem(routines.ROUTINES, State.LEARNING, broken)  # type: ignore[misc]
    async with life(store) as seller:
        await seller.enter(State.LEARNING)
        assert seller.state is State.AVAILABLE


async def test_a_routine_that_was_broken_off_is_finished_by_the_next_process(store: SQLiteStore) -> None:
    async with life(store) as seller:
        await seller.ask(message("The budget of the bridge is small."))
        await seller.enter(State.SLEEPING)
        # As a process leaves it that is killed as soon as it has entered.
        await Standings(store.records).change(seller.owner, State.MEMORISING, actor="t", at=NOON, cause="killed")
    async with life(store) as seller:
        assert seller.state is State.AVAILABLE
    found = await kinds(store, "desk/seller")
    assert found["atomic"] == 1
    assert "short_term" not in found


async def test_where_the_model_is_out_of_reach_a_message_waits(store: SQLiteStore) -> None:
    def nobody(*_: Any) -> str:
        raise ModelUnavailableError("nobody there")

    async with life(store, model=FunctionModel(nobody)) as seller:
        with pytest.raises(ModelUnavailableError):
            await seller.ask(message("What does it cost?"))
        assert [one.message.id for one in await seller.queue.waiting()] == ["m1"]
    async with life(store) as seller:
        assert [one.reply_to for one in await seller.attend()] == ["m1"]


async def test_feedback_outside_of_its_scale_is_refused_before_it_is_kept(store: SQLiteStore) -> None:
    async with life(store) as seller:
        with pytest.raises(Exception, match="11"):
            await seller.receive(
                FeedbackMessage(sender="bob", recipient="seller", conversation="talk", score=11, comment="!")
            )
        assert not await seller.queue.all()


async def test_social_messages_wait_until_the_agent_socialises(store: SQLiteStore) -> None:
    async with life(store) as seller:
        await seller.receive(SocialMessage(sender="bob", recipient="seller", conversation="s", content="See mine."))
        await seller.attend()
        assert len(await seller.queue.waiting()) == 1
        await seller.enter(State.SOCIALISING)
        assert seller.state is State.AVAILABLE
        assert not await seller.queue.waiting()


async def test_a_hundred_days_of_five_agents_leave_nobody_stuck_and_every_night_kept(store: SQLiteStore) -> None:
    clock, names = SimulatedClock(NOON), ["a", "b", "c", "d", "e"]
    entered: dict[str, list[State]] = {name: [] for name in names}
    for name in names:
        clock.now = NOON
        async with life(store, name, clock=clock) as agent:
            for day in range(100):
                if day % 10 == 0:
                    asked = message(f"The price of bridge {day} is {day} dollars.", day, recipient=name)
                    await agent.ask(asked.model_copy(update={"conversation": f"talk {day}"}))
                clock.advance(14)
                entered[name] += await agent.follow(circadian(seed=1))
                assert agent.state is State.AVAILABLE
                clock.advance(10)
    for name in names:
        assert entered[name] == [State.SLEEPING, State.LEARNING, State.MEMORISING] * 100
        found = await kinds(store, f"desk/{name}")
        assert found["atomic"] == 10
        assert not {"short_term", "message"} & set(found)
