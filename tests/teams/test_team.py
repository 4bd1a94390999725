"""The loop: overlap, errors, stopping and going on, ends, and isolation."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import act, agent, block, listening, only, plain, plain_versions, speaker_of

from memeplex import Team, open_store, subscribe
from memeplex.agents import Agent
from memeplex.errors import ModelUnavailableError, RunLockedError, StorageError, UnknownNameError, UserError
from memeplex.memory import create_memory
from memeplex.messages import Conversation, TurnKind
from memeplex.models.testing import FunctionModel
from memeplex.storage import Store
from memeplex.teams import MaxTurns, Moderated, Stalled, run_sync
from memeplex.telemetry import Event, MemoryUpdated, RunFinished, RunStarted, TurnFinished
from memeplex.usage import Ledger, Purpose

ALWAYS = create_memory("intrinsic", {"mode": "rewrite", "policy": "always"})


def team(*agents: Agent, turns: int = 4, **more: Any) -> Team:
    return Team(name="t", agents=agents, **{"termination": MaxTurns(turns), **more})


def pair(model: Any, turns: int = 4, **more: Any) -> Team:
    return team(agent("A", model, ALWAYS), agent("B", model, ALWAYS), turns=turns, **more)


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    opened = open_store(str(tmp_path / "runs.db"))
    yield opened
    await opened.aclose()


# ---- overlap


async def test_an_update_runs_while_the_next_agent_speaks_and_is_awaited_before_its_own_next_turn() -> None:
    log: list[str] = []
    a_updates, b_speaks = asyncio.Event(), asyncio.Event()

    async def reply(messages: Sequence[Any], output: Any, given: Any) -> Any:
        text = messages[-1]["content"]
        name = speaker_of(text) or ("A" if "of A." in text else "B")
        if given.purpose is Purpose.ANSWER:
            log.append(f"{name} speaks")
            if name == "B":
                b_speaks.set()
                await asyncio.wait_for(a_updates.wait(), 5)
            return f"{name} says {len(log)}."
        log.append(f"{name} updates")
        if name == "A":
            a_updates.set()
            await asyncio.wait_for(b_speaks.wait(), 5)
            for _ in range(50):
                await asyncio.sleep(0)
        log.append(f"{name} updated")
        return f"{name} keeps {len(log)}"

    result = await pair(FunctionModel(reply), turns=3).run("x")
    assert {"A updates", "B speaks"} <= set(log[: log.index("A updated")])
    assert log.index("A updated") < len(log) - log[::-1].index("A speaks") - 1
    assert len(result.versions) == 3, "the last updates are awaited before the run ends"


async def test_without_overlap_an_update_is_over_before_the_next_turn() -> None:
    model, asked = listening()
    await pair(model, turns=4, overlap=False).run("x")
    assert [one.purpose for one in asked] == [Purpose.ANSWER, Purpose.MEMORY_UPDATE] * 4


async def test_overlap_changes_nothing_in_the_result() -> None:
    one = await pair(FunctionModel(act), turns=12, overlap=True).run("x", seed=3)
    other = await pair(FunctionModel(act), turns=12, overlap=False).run("x", seed=3)
    assert plain(one.conversation.turns) == plain(other.conversation.turns)
    assert plain_versions(one.versions) == plain_versions(other.versions)


# ---- errors


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("failing", ["answer", "update"])
async def test_an_error_ends_the_run_with_all_turns_kept_and_the_run_can_go_on(
    store: Store, overlap: bool, failing: str
) -> None:
    down = True

    def reply(messages: Sequence[Any], output: Any, given: Any) -> Any:
        third = "Turn three" in messages[-1]["content"]
        if down and third and (given.purpose is Purpose.MEMORY_UPDATE) is (failing == "update"):
            raise ModelUnavailableError("down")
        if given.purpose is Purpose.MEMORY_UPDATE:
            return act(messages, output, given)
        return ["Turn one.", "Turn two.", "Turn three.", "Turn four.", "Turn five."][
            messages[-1]["content"].count("] Turn")
        ]

    made = pair(FunctionModel(reply), turns=5, overlap=overlap)
    with pytest.raises(ModelUnavailableError):
        await made.run("x", store=store, run_id="r")
    run = await store.run("r")
    assert (run.status, run.outcome) == ("failed", None)
    turns = await store.turns("r")
    assert len(turns) >= 3 and {v.turn for v in await store.versions("r")} <= {0, 1, 2, 3}
    down = False
    result = await made.resume("r", store=store)
    assert [t.content for t in result.conversation.turns][-1] == "Turn five."
    assert sorted(v.turn for v in result.versions) == [0, 1, 2, 3, 4]
    whole = await pair(FunctionModel(reply), turns=5).run("x")
    assert plain(result.conversation.turns) == plain(whole.conversation.turns)
    assert plain_versions(await store.versions("r")) == plain_versions(whole.versions)
    assert (await store.run("r")).status == "finished"


async def test_a_cancelled_run_is_marked_interrupted_and_leaves_nothing_running(store: Store) -> None:
    speaking = asyncio.Event()

    async def reply(messages: Sequence[Any], output: Any, given: Any) -> Any:
        if given.purpose is Purpose.ANSWER and speaker_of(messages[-1]["content"]) == "A":
            return "A says."
        speaking.set()
        return await asyncio.Event().wait()

    before = asyncio.all_tasks()
    task = asyncio.create_task(pair(FunctionModel(reply)).run("x", store=store, run_id="r"))
    await asyncio.wait_for(speaking.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await store.run("r")).status == "interrupted"
    assert len(await store.turns("r")) == 1
    assert asyncio.all_tasks() == before


# ---- stop and resume


@pytest.mark.parametrize("after", [0, 1, 4])
async def test_a_run_stops_between_turns_and_goes_on_as_if_it_had_not(store: Store, after: int) -> None:
    def made() -> Team:
        return pair(FunctionModel(act), turns=6)

    asked_to_stop = iter([False] * after + [True])
    stopped = await made().run("x", store=store, run_id="r", seed=4, stop=lambda: next(asked_to_stop))
    assert stopped.outcome is None and len(stopped.conversation.turns) == after
    assert len(stopped.versions) == after, "updates under way are finished first"
    assert (await store.run("r")).status == "interrupted"
    seen: list[Event] = []
    with subscribe(seen.append):
        resumed = await made().resume("r", store=store)
    assert [e.turns for e in seen if isinstance(e, RunStarted)] == [after]
    whole = await made().run("x", seed=4)
    assert plain(resumed.conversation.turns) == plain(whole.conversation.turns)
    assert plain_versions(resumed.versions) == plain_versions(whole.versions)
    assert resumed.outcome == whole.outcome


async def test_a_finished_run_is_returned_as_it_is(store: Store) -> None:
    model, asked = listening()
    first = await pair(model).run("x", store=store, run_id="r")
    calls = len(asked)
    again = await pair(model).resume("r", store=store)
    assert len(asked) == calls and again.outcome == first.outcome
    assert again.conversation.turns == first.conversation.turns
    assert plain_versions(again.versions) == plain_versions(first.versions)
    assert dict(again.usage) == dict(first.usage)
    with pytest.raises(UnknownNameError):
        await pair(model).resume("zzz", store=store)


async def test_a_run_is_worked_on_by_one_at_a_time(store: Store) -> None:
    await pair(FunctionModel(act)).run("x", store=store, run_id="r", stop=lambda: True)
    with store.lock("r"), pytest.raises(RunLockedError, match="run r"):
        await pair(FunctionModel(act)).resume("r", store=store)


async def test_a_turn_is_durable_before_it_is_told_of_and_before_the_next_begins(store: Store) -> None:
    kept: list[list[int]] = []

    async def reply(messages: Sequence[Any], output: Any, given: Any) -> Any:
        if given.purpose is Purpose.ANSWER:
            kept.append([t.index for t in await store.turns("r")])
        return act(messages, output, given)

    told: list[tuple[int, int]] = []

    def listen(event: Event) -> None:
        if isinstance(event, TurnFinished):
            # Another connection sees what has been committed, and nothing else.
            rows = sqlite3.connect(store.url.removeprefix("sqlite:///")).execute("select count(*) from turns")
            told.append((event.turn.index + 1, rows.fetchone()[0]))

    with subscribe(listen):
        await pair(FunctionModel(reply)).run("x", store=store, run_id="r")
    assert kept == [[], [0], [0, 1], [0, 1, 2]]
    assert told == [(1, 1), (2, 2), (3, 3), (4, 4)]


# ---- ends


async def test_a_team_that_turns_in_circles_is_stalled() -> None:
    model = FunctionModel(lambda m, o, s: f"{speaker_of(m[-1]['content'])} says the same.")
    seen: list[Event] = []
    with subscribe(seen.append):
        result = await team(agent("A", model), agent("B", model), termination=MaxTurns(50) | Stalled(3)).run("x")
    assert result.outcome and result.outcome.status == "stalled"
    assert len(result.conversation.turns) == 5
    assert [e.outcome for e in seen if isinstance(e, RunFinished)] == [result.outcome]


PARTS = Moderated(
    delegation="C", workers=("W",), integration="I", evaluation="E", documentation="D", discussion=3, proposals=4
)


@pytest.mark.parametrize("limit", [1, 5, 7])
async def test_no_agreement_at_the_turn_limit_still_hands_out_the_last_proposal(limit: int) -> None:
    def reply(messages: Sequence[Any], output: Any, given: Any) -> Any:
        said = act(messages, output, given)
        return {**said, "vote": "OBJECT"} if given.purpose is Purpose.VOTE else said

    made = team(*(agent(n, FunctionModel(reply)) for n in "CWIED"), speakers=PARTS, termination=MaxTurns(limit))
    result = await made.run("x")
    assert result.outcome
    assert (result.outcome.status, result.outcome.success) == ("no_consensus", False)
    assert result.outcome.details["reason"] == "max_turns"
    own = [t.content for t in result.conversation.turns if t.speaker == "I" and t.kind is TurnKind.MESSAGE]
    messages = [t.content for t in result.conversation.turns if t.kind is TurnKind.MESSAGE]
    assert result.outcome.details["proposal"] == (own or messages)[-1]
    assert result.outcome.details["document"] is None and result.outcome.details["agreed"] is False


async def test_nobody_left_to_speak_completes_a_run() -> None:
    class Once(type(pair(FunctionModel(act)).speakers)):  # type: ignore[misc]
        async def select(self, conversation: Conversation, cast: Any) -> Any:
            return None if conversation.turns else await super().select(conversation, cast)

    result = await pair(FunctionModel(act), speakers=Once()).run("x")
    assert result.outcome and result.outcome.status == "completed"
    assert result.outcome.details == {"reason": "", "answer": result.conversation.turns[0].content}


# ---- isolation, identity, usage


async def test_two_teams_with_agents_of_the_same_names_do_not_see_each_other(store: Store) -> None:
    """Report 34: agents with the same label share one memory by accident across crews."""
    model, asked = listening()
    one, other = pair(model), pair(model)
    await asyncio.sleep(0)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(one.run("Build a bridge.", store=store, run_id="r1"))
        second = tasks.create_task(other.run("Sail a boat.", store=store, run_id="r2"))
    again = await one.run("Dig a tunnel.", store=store, run_id="r3")
    said = {run.run: {t.content for t in run.conversation.turns} for run in (first.result(), second.result(), again)}
    for run, task in (("r1", "Build a bridge."), ("r2", "Sail a boat."), ("r3", "Dig a tunnel.")):
        versions = await store.versions(run)
        assert {v.agent for v in versions} == {"A", "B"} and len(versions) == 4
        foreign = set().union(*(said[name] for name in said if name != run))
        mine = [one.text for one in only(asked, Purpose.ANSWER) if block(one.text, "task") == task]
        assert len(mine) == 4
        assert not any(text in prompt for prompt in mine for text in foreign - said[run])
        assert not any(text in str(v.content) for v in versions for text in foreign - said[run])
    assert "<memory>" not in next(one.text for one in asked if "Dig a tunnel." in one.text), "a new run, a new memory"


async def test_events_and_store_tell_the_same_story(store: Store) -> None:
    seen: list[Event] = []
    with subscribe(seen.append):
        result = await pair(FunctionModel(act), turns=5).run("x", store=store, run_id="r")
    assert [e.turn for e in seen if isinstance(e, TurnFinished)] == list(await store.turns("r"))
    told = {(e.agent, e.turn, e.version, e.status) for e in seen if isinstance(e, MemoryUpdated)}
    assert told == {(v.agent, v.turn, v.version, v.status) for v in await store.versions("r")}
    assert dict(result.usage) == dict(
        sum([t.usage for t in result.conversation.turns] + [v.usage for v in result.versions], Ledger())
    )
    assert result.usage[Purpose.ANSWER].calls == result.usage[Purpose.MEMORY_UPDATE].calls == 5


async def test_the_seed_reaches_every_call_and_a_run_can_be_repeated() -> None:
    def made() -> Team:
        return pair(FunctionModel(act))

    one, same, other = await made().run("x", seed=1), await made().run("x", seed=1), await made().run("x", seed=2)
    assert plain(one.conversation.turns) == plain(same.conversation.turns)
    assert plain(one.conversation.turns) != plain(other.conversation.turns)


def test_a_team_needs_agents_with_names_of_their_own() -> None:
    model = FunctionModel(act)
    for agents in ([], [agent("A", model), agent("A", model)]):
        with pytest.raises(UserError, match="name of its own"):
            team(*agents)


def test_a_team_runs_from_code_that_is_not_asynchronous() -> None:
    assert len(run_sync(pair(FunctionModel(act)).run("x")).conversation.turns) == 4


async def test_a_run_of_another_team_is_left_alone(store: Store) -> None:
    asked = iter([False, False, True])
    await pair(FunctionModel(act)).run("x", store=store, run_id="r", stop=lambda: next(asked))
    other = team(agent("C", FunctionModel(act), ALWAYS), agent("D", FunctionModel(act), ALWAYS))
    with pytest.raises(UserError, match="A, B spoke in it"):
        await other.resume("r", store=store)
    assert (await store.run("r")).status == "interrupted"


async def test_however_often_it_is_cancelled_a_run_says_how_it_stands(store: Store) -> None:
    speaking = asyncio.Event()

    async def reply(messages: Sequence[Any], output: Any, given: Any) -> Any:
        speaking.set()
        try:
            return await asyncio.Event().wait()
        finally:
            # Takes its time to end, so that a second cancel finds it still there.
            for _ in range(20):
                await asyncio.sleep(0)

    task = asyncio.create_task(pair(FunctionModel(reply)).run("x", store=store, run_id="r"))
    await asyncio.wait_for(speaking.wait(), 5)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await store.run("r")).status == "interrupted"


async def test_a_sink_that_fails_at_the_start_leaves_the_run_marked(store: Store) -> None:
    def broken(event: Event) -> None:
        raise ZeroDivisionError

    with subscribe(broken), pytest.raises(ZeroDivisionError):
        await pair(FunctionModel(act)).run("x", store=store, run_id="r")
    assert (await store.run("r")).status == "failed"


async def test_updates_are_made_up_side_by_side_and_can_be_stopped(store: Store) -> None:
    never = pair(FunctionModel(lambda m, o, s: "x" if s.purpose is Purpose.ANSWER else _broken()), turns=4)
    with pytest.raises(ModelUnavailableError):
        await never.run("x", store=store, run_id="r")
    spoken = len(await store.turns("r"))
    both = asyncio.Barrier(2)

    async def reply(messages: Sequence[Any], output: Any, given: Any) -> Any:
        if given.purpose is Purpose.MEMORY_UPDATE and len(await store.versions("r")) == 0:
            await asyncio.wait_for(both.wait(), 5)
        return act(messages, output, given)

    stopped = await pair(FunctionModel(reply)).resume("r", store=store, stop=lambda: True)
    assert stopped.outcome is None and len(stopped.versions) == 0 and len(stopped.conversation.turns) == spoken
    assert spoken >= 2
    resumed = await pair(FunctionModel(reply)).resume("r", store=store)
    assert len(resumed.versions) == 4


def _broken() -> str:
    raise ModelUnavailableError("no route")


async def test_a_seed_or_an_id_that_no_store_takes_is_refused(store: Store) -> None:
    with pytest.raises(UserError, match="too large"):
        await pair(FunctionModel(act)).run("x", store=store, seed=2**70)
    with pytest.raises(StorageError):
        await pair(FunctionModel(act)).run("x", store=store, run_id="\ud800")
    await store.aclose()
    with pytest.raises(StorageError, match="closed"):
        await pair(FunctionModel(act)).run("x", store=store)


async def test_run_sync_in_a_running_loop_is_one_clear_error() -> None:
    with pytest.raises(RuntimeError, match="await the coroutine"):
        run_sync(pair(FunctionModel(act)).run("x"))
