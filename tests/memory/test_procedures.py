"""Procedures: what they count, how they are merged, and that nothing is lost on the way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lives import archive, kept, opened, procedures, unproven

from memeplex.autonoms.write_procedure import Strategy
from memeplex.memory.procedures import Procedure, Trial, _folded, adopt, applied, as_procedure, known, record_of, tidy
from memeplex.storage import Record
from memeplex.storage.sqlite import SQLiteStore

OWNER = "duo/A"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


def procedure(
    sources: str, title: str = "Pay", strategy: str = "Compare the sums, then pay.", lost: str = ""
) -> Record:
    """One that was made of episodes with names of one letter each; those in ``lost`` failed."""
    trials = [Trial(use=f"run {name}", success=name not in lost, episode=name) for name in sources]
    return record_of(Strategy(title=title, strategy=strategy), owner=OWNER, sources=trials, author="A", model="m")


async def take(store: SQLiteStore, record: Record, seen: str = "abcdefgh") -> Record:
    return await adopt(archive(store), record, seen=set(seen), actor="A")


async def use(store: SQLiteStore, record: Record, name: str, success: bool = True) -> None:
    assert await applied(archive(store), OWNER, record.id, name, success, actor="A") is not None


async def only(store: SQLiteStore) -> Procedure:
    (one,) = await procedures(store, OWNER)
    return one


async def test_an_application_counts_once(store: SQLiteStore) -> None:
    kept_one = await take(store, procedure("ab"))
    for _ in range(3):
        await use(store, kept_one, "r6/A")
        await use(store, kept_one, "r7/A", False)
    found = await only(store)
    assert (found.won, found.lost, len(found.applications)) == (3, 1, 2)
    assert len(await store.records.history(kept_one.id)) == 3, "the same word again is no change"


async def test_a_task_that_it_was_applied_in_and_made_of_counts_once(store: SQLiteStore) -> None:
    first = await take(store, procedure("ab"))
    await use(store, first, "run c")
    await take(store, procedure("abc"))
    found = await only(store)
    assert (found.won, found.lost) == (3, 0) and found.sources == set("abc")
    assert [trial.use for trial in found.applications] == ["run c"]
    await use(store, first, "run c")
    assert (await only(store)).won == 3, "nor when the end of the task is made up for"


async def test_what_says_others_anew_takes_their_place_with_all_that_is_known_of_them(store: SQLiteStore) -> None:
    first, second = await take(store, procedure("ab")), await take(store, procedure("cd", "Settle", "Ask, and wait."))
    await use(store, first, "r6/A", False)
    await use(store, second, "r7/A")
    new = procedure("abcde", "Pay or settle", "Compare, ask, pay.", lost="e")
    merged = await take(store, new)
    found = await only(store)
    assert merged.id == first.id and (found.title, found.strategy) == ("Pay or settle", "Compare, ask, pay.")
    assert found.sources == set("abcde") and (found.won, found.lost) == (5, 2)
    assert {trial.use: trial.success for trial in found.applications} == {"r6/A": False, "r7/A": True}
    assert found.merged == (second.id,)
    texts = [change.record.text for change in await store.records.history(first.id) if change.record]
    assert texts[0] == "Pay\nCompare the sums, then pay." and texts[-1] == "Pay or settle\nCompare, ask, pay."
    gone = (await store.records.history(second.id))[-1]
    assert gone.record is None and gone.origin.cause == f"merged into {first.id}"


async def test_who_had_a_merged_one_before_the_task_counts_for_its_heir(store: SQLiteStore) -> None:
    first, second = await take(store, procedure("ab")), await take(store, procedure("cd", "Settle", "Ask, and wait."))
    await take(store, procedure("abcd", "Both", "Compare, ask, pay."))
    await use(store, second, "r9/A", False)
    assert [trial.use for trial in (await only(store)).applications] == ["r9/A"]
    assert await applied(archive(store), OWNER, "nobody", "r9/A", True, actor="A") is None
    assert (await only(store)).lost == 1 and first.id != second.id


@pytest.mark.parametrize(
    ("title", "strategy", "same"),
    [
        ("pay!", "Compare the sums, then pay.", True),
        ("PAY", "Then pay; compare the SUMS", True),
        ("Pay", "Compare the sums, then burn the ledger and leave.", False),
        ("Pay later", "Compare the sums, then pay.", False),
    ],
)
async def test_the_same_title_and_nearly_the_same_words_are_the_same(
    store: SQLiteStore, title: str, strategy: str, same: bool
) -> None:
    await take(store, procedure("ab"))
    await take(store, procedure("cd", title, strategy))
    found = await procedures(store, OWNER)
    assert len(found) == (1 if same else 2) and sum(one.won for one in found) == 4


async def test_a_retired_one_written_again_stays_retired(store: SQLiteStore) -> None:
    first = await take(store, procedure("ab"))
    retired = as_procedure(first).model_copy(update={"retired": True}).model_dump(mode="json")
    await store.records.edit(first.model_copy(update={"payload": retired}), actor="A")
    await take(store, procedure("cd", "pay"))
    assert (await only(store)).retired


async def test_beyond_the_window_of_episodes_it_is_still_the_same_one(store: SQLiteStore) -> None:
    """Its oldest sources are looked at no longer; that makes it no other procedure."""
    await take(store, procedure("abc"))
    await take(store, procedure("bcd", "Paying", "Look it up first."), seen="bcd")
    assert (await only(store)).sources == set("abcd")
    await take(store, procedure("fg", "Other", "Something else."), seen="efgh")
    assert len(await procedures(store, OWNER)) == 2, "none of its sources was seen"


async def test_a_merge_that_was_broken_off_is_made_up(store: SQLiteStore) -> None:
    first, second = procedure("ab"), procedure("abc", "Paying", "Look it up first.")
    await store.records.add([first, second], actor="A")
    await tidy(archive(store), OWNER, actor="A")
    found = await only(store)
    assert found.title == "Paying" and found.won == 3 and found.merged == (first.id,)
    before = await store.records.audit()
    await tidy(archive(store), OWNER, actor="A")
    assert await store.records.audit() == before


async def test_two_writers_at_once_lose_nothing(store: SQLiteStore) -> None:
    """One applies while the other merges; whoever comes second looks again."""
    first = await take(store, procedure("ab"))
    async with asyncio.TaskGroup() as tasks:
        for n in range(6):
            tasks.create_task(use(store, first, f"r{n}/A", n % 2 == 0))
        tasks.create_task(take(store, procedure("abc", "Paying", "Look it up first.")))
    found = await only(store)
    assert found.title == "Paying" and (found.won, found.lost) == (6, 3) and found.sources == set("abc")


def test_what_failed_before_anybody_knew_the_way_says_nothing_against_it() -> None:
    def one(*outcomes: str) -> Procedure:
        trials = [Trial(use=f"r{n}", success="won" in told, applied="with" in told) for n, told in enumerate(outcomes)]
        return Procedure(title="t", strategy="s", trials=tuple(trials))

    assert (one("lost", "lost", "won").won, one("lost", "lost", "won").lost) == (1, 0)
    assert one("lost", "won", "lost", "won with it", "lost with it").lost == 2
    assert one("lost with it", "won").lost == 1, "it was tried, so the way was known"
    assert one("lost", "lost").success_rate == 0.5, "nothing is known"


async def test_many_applications_are_counted_and_not_all_kept(store: SQLiteStore) -> None:
    record = procedure("ab")
    trials = [Trial(use=f"r{n}/A", success=n % 3 > 0, applied=True) for n in range(450)]
    many = as_procedure(record).model_copy(update={"trials": (*as_procedure(record).trials, *trials)})
    await store.records.add([record.model_copy(update={"payload": many.model_dump(mode="json")})], actor="A")
    await use(store, record, "r450/A", False)
    found = await only(store)
    assert (found.won, found.lost) == (302, 151) and len(found.trials) == 400


trials = st.lists(
    st.builds(Trial, use=st.sampled_from("abcdef"), success=st.booleans(), episode=st.sampled_from(["", "x", "y"])),
    max_size=8,
    unique_by=lambda trial: trial.use,
)


@given(old=trials, new=trials, past=st.integers(0, 5))
def test_folding_twice_is_folding_once(old: list[Trial], new: list[Trial], past: int) -> None:
    one = Procedure(title="t", strategy="s", trials=tuple(old), successes=past)
    other = Procedure(title="u", strategy="v", trials=tuple(new))
    once = _folded(other, one, "one").model_copy(update={"merged": ("one",)})
    assert _folded(once, one, "one") == once
    assert {trial.use for trial in once.trials} == {trial.use for trial in (*old, *new)}
    early = 0 if past else unproven(once.trials)
    assert once.won + once.lost == past + len(once.trials) - early and once.title == "u"


async def test_there_may_be_more_than_one_page_of_them(store: SQLiteStore) -> None:
    made = [
        procedure("ab", f"Title {n}", f"Strategy number {n}.").model_copy(update={"key": str(n)}) for n in range(501)
    ]
    await store.records.add(made, actor="A")
    assert len(await known(archive(store), OWNER)) == 501 == len(await kept(store, OWNER, "procedure"))
