"""Who knows what: reckoned from experience, with counts, and without counting anything twice."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lives import archive, opened

from memeplex.errors import UserError
from memeplex.memory import transactive
from memeplex.memory.archive import Archive
from memeplex.memory.tallies import Tally
from memeplex.storage.sqlite import SQLiteStore

OWNERS = ["duo"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


async def did(store: SQLiteStore, run: str, members: str, success: bool = True, **more: Any) -> None:
    """One run of a team of agents with names of one letter each."""
    for name in members:
        record = transactive.experience(
            **{
                "owner": "duo",
                "run": run,
                "agent": name,
                "team": list(members),
                "task": "Fix the parser of the compiler.",
                "kind": "coding",
                "success": success,
                "performance": float(success),
                "overhead": 4.0,
                **more,
            }
        )
        await archive(store).keep([record], actor=name)


async def test_a_run_taken_in_twice_counts_once(store: SQLiteStore) -> None:
    for _ in range(3):
        await did(store, "r1", "AB")
    shown = await transactive.profiles(archive(store), OWNERS)
    assert shown["A"].types["coding"].count == 1 and shown["A"].partners["B"].count == 1
    assert (await transactive.patterns(archive(store), OWNERS))["A", "B"].count == 1


async def test_what_is_forgotten_counts_no_longer(store: SQLiteStore) -> None:
    await did(store, "r1", "AB")
    await did(store, "r2", "AB", False)
    page = await store.records.page("duo")
    await store.records.forget("duo", [one.id for one in page if one.provenance.run == "r2"], actor="test")
    shown = await transactive.profiles(archive(store), OWNERS)
    assert str(shown["A"].types["coding"]) == "1 of 1" and shown["A"].specialisations == ["coding"]


async def test_a_team_is_a_set_of_agents(store: SQLiteStore) -> None:
    await did(store, "r1", "AB")
    await did(store, "r2", "BA", False, overhead=8.0)
    await did(store, "r3", "ABC")
    seen = await transactive.patterns(archive(store), OWNERS)
    assert set(seen) == {("A", "B"), ("A", "B", "C")}
    assert (seen["A", "B"].count, seen["A", "B"].performance, seen["A", "B"].overhead) == (2, 0.5, 6.0)


async def test_local_memories_of_all_members_give_the_same_as_one_shared(store: SQLiteStore) -> None:
    for name in "AB":
        await did(store, "r1", name, team=["A", "B"], owner=f"duo/{name}")
        await did(store, "r1", name, team=["A", "B"], owner="duo")
    local = await transactive.patterns(archive(store), ["duo/A", "duo/B"])
    assert local == await transactive.patterns(archive(store), OWNERS) and local["A", "B"].count == 1


async def test_old_experience_counts_less_and_rest_forgets_nothing(store: SQLiteStore) -> None:
    """Aged by tasks: half after ``half_life`` of them, however long ago they were."""
    for n in range(4):
        await did(store, f"r{n}", "A", success=n < 2)
    (tally,) = (await transactive.profiles(archive(store), OWNERS, half_life=1))["A"].types.values()
    assert tally.weight == pytest.approx(1 + 1 / 2 + 1 / 4 + 1 / 8) and tally.won == pytest.approx(1 / 4 + 1 / 8)
    assert (tally.successes, tally.failures) == (2, 2), "the counts are what they are"


@given(st.lists(st.booleans(), max_size=30))
def test_reliability_is_a_chance_and_moves_with_evidence(outcomes: list[bool]) -> None:
    tally = Tally()
    assert tally.reliability == 0.5
    for success in outcomes:
        before = tally.reliability
        tally.add(success, 1.0)
        assert 0 < tally.reliability < 1 and (tally.reliability > before) == success
    assert tally.count == len(outcomes) and str(tally) == f"{sum(outcomes)} of {len(outcomes)}"


async def test_who_knows_is_asked_of_tasks_like_it_alone(store: SQLiteStore) -> None:
    await did(store, "r1", "A")
    await did(store, "r2", "A")
    await did(store, "r3", "B", task="Bake bread with rye.", kind="kitchen")
    found = await transactive.experts(archive(store), OWNERS, "Fix the parser.")
    assert found[0].agent == "A" and (found[0].successes, found[0].failures) == (2, 0) and found[0].score > 0.6
    page = {one.id for one in await store.records.page("duo") if one.provenance.author == "A"}
    assert set(found[0].evidence) == page, "the experiences behind it"
    assert [one.agent for one in await transactive.experts(archive(store), OWNERS, "x", kind="kitchen")] in ([], ["B"])


async def test_without_an_embedder_a_word_in_common_makes_no_expert_of_everybody(store: SQLiteStore) -> None:
    """The best hit's score is 1 among the hits of a search, however bad it is."""
    words = Archive(store.records)
    for run, task in (
        ("r1", "Fix the parser of the compiler."),
        ("r2", "Bake bread with rye, salt, water and a parser."),
    ):
        name = "A" if run == "r1" else "B"
        record = transactive.experience(
            owner="duo", run=run, agent=name, team=[name], task=task, kind="", success=True, performance=1, overhead=1
        )
        await words.keep([record], actor=name)
    a, b = await transactive.experts(words, OWNERS, "Fix the parser of the compiler.")
    assert (a.agent, b.agent) == ("A", "B") and a.score == pytest.approx(2 / 3, abs=0.01) and b.score < 0.56


async def test_a_suggested_team_rests_on_its_members_and_on_itself(store: SQLiteStore) -> None:
    for n in range(3):
        await did(store, f"ab{n}", "AB")
        await did(store, f"cd{n}", "CD", False)
    for n in range(2):
        await did(store, f"ac{n}", "AC", False)
    found = await transactive.suggest_team(archive(store), OWNERS, "Fix the parser.", size=2, kind="coding")
    assert found[0].agents == ("A", "B") and len(found) == 6
    assert found == sorted(found, key=lambda one: -one.score) and all(0 <= one.score <= 1 for one in found)
    assert found[0].reasons[0] == "A: 3 of 5 tasks like this one"
    assert found[0].reasons[-1] == "together: 3 of 3 coding, performance 1.00, 4 turns a task"
    by_team = {one.agents: one for one in found}
    assert by_team["A", "D"].pattern is None and by_team["A", "C"].pattern is not None
    assert by_team["A", "C"].score < by_team["B", "C"].score, "what that team has shown draws it down"


async def test_a_team_of_strangers_is_an_even_chance(store: SQLiteStore) -> None:
    found = await transactive.suggest_team(archive(store), OWNERS, "Fix it.", size=2, agents=["X", "Y", "Z"])
    assert [one.agents for one in found] == [("X", "Y"), ("X", "Z"), ("Y", "Z")]
    assert {one.score for one in found} == {0.5} and found[0].reasons == (
        "X: 0 of 0 tasks like this one",
        "Y: 0 of 0 tasks like this one",
    )


@pytest.mark.parametrize("size", [0, 3, -1])
async def test_a_team_that_cannot_be_made_is_refused(store: SQLiteStore, size: int) -> None:
    with pytest.raises(UserError, match=f"no team of {size} can be made of 2 agents"):
        await transactive.suggest_team(archive(store), OWNERS, "x", size=size, agents=["X", "Y"])


async def test_of_many_agents_the_likeliest_are_tried(store: SQLiteStore) -> None:
    await did(store, "r1", "Q")
    found = await transactive.suggest_team(
        archive(store), OWNERS, "Fix the parser.", size=2, agents="ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    )
    assert len(found) == 66 and "Q" in found[0].agents


async def test_parts_go_to_who_has_shown_them_and_nobody_gets_two_before_all_have_one(store: SQLiteStore) -> None:
    await did(store, "r1", "A")
    await did(store, "r2", "A", task="Bake bread with rye.")
    await did(store, "r3", "B", task="Bake bread with rye.")
    parts = {"code": "Fix the parser.", "bread": "Bake rye bread."}
    given = await transactive.assign_roles(archive(store), OWNERS, parts)
    assert {part: expert.agent for part, expert in given.items()} == {"code": "A", "bread": "B"}
    alone = await transactive.assign_roles(archive(store), OWNERS, parts, agents=["A"])
    assert {expert.agent for expert in alone.values()} == {"A"} and list(alone) == ["code", "bread"]
    assert await transactive.assign_roles(archive(store), ["nobody"], parts) == {}


async def test_the_planners_text_has_counts_and_says_what_is_not_known(store: SQLiteStore) -> None:
    assert await transactive.planner_text(archive(store), OWNERS, "Fix the parser.") == ""
    await did(store, "r1", "AB")
    await did(store, "r2", "AB", False)
    roles = {"A": "You code.\nIgnore the rest.", "B": "You test.", "C": ""}
    told = await transactive.planner_text(archive(store), OWNERS, "Fix the parser.", kind="coding", roles=roles)
    assert told.splitlines() == [
        "The team, and what its members have done (successes of tasks):",
        "- A: You code. Ignore the rest. 1 of 2 tasks like this one. By type: coding 1 of 2.",
        "- B: You test. 1 of 2 tasks like this one. By type: coding 1 of 2.",
        "- C: nothing known yet",
        "- A, B together: 1 of 2 coding, performance 0.50, 4 turns a task",
    ]
    everybody = await transactive.planner_text(archive(store), OWNERS, "Fix the parser.")
    assert "- A: 1 of 2 tasks like this one." in everybody and "C" not in everybody
