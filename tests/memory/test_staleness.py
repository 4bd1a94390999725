"""What is old, superseded, failing or said twice: it counts less, is shown no more, or becomes one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import (
    archive,
    episodes,
    finish,
    invoices,
    kept,
    lifelong,
    listening,
    live,
    memory_of,
    opened,
    team,
    unproven,
    work,
)
from support import only

from memeplex.autonoms.write_procedure import Strategy
from memeplex.memory.procedures import Procedure, Trial, _doubled, _says_anew, as_procedure, record_of, tidy
from memeplex.memory.transactive import _weights
from memeplex.messages import Conversation, Outcome, Task
from memeplex.storage import Provenance, Record
from memeplex.storage.sqlite import SQLiteStore
from memeplex.usage import Purpose

OWNER = "duo/A"
DONE = Outcome(status="completed", success=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


# ---- decay


@given(runs=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=20), half_life=st.floats(0.5, 100))
def test_an_experience_weighs_less_with_every_task_and_half_after_its_half_life(
    runs: list[str], half_life: float
) -> None:
    records = [Record(owner="t", kind="experience", text="x", provenance=Provenance(run=run)) for run in runs]
    weights = [(record.provenance.run, weight) for record, weight in _weights(records, half_life)]
    newest = list(dict.fromkeys(reversed(runs)))
    assert len(weights) == len(runs), "none is lost, however old"
    assert all(weight == pytest.approx(0.5 ** (newest.index(run) / half_life)) for run, weight in weights)
    assert max(weight for _, weight in weights) == 1.0


@pytest.mark.parametrize("count", [2, 5, 12])
async def test_of_episodes_that_are_alike_the_newest_are_shown(store: SQLiteStore, count: int) -> None:
    """Also when there are more than are looked at one by one, and however little recency is worth by then."""
    model, _ = listening(work)
    for number in range(count):
        memory = memory_of(store, model, run=f"r{number:02}", inject=False, procedures=False)
        await finish(memory, Task(text="Pay the invoice."), DONE)
    memory = memory_of(store, model, run="q", top=2)
    await memory.retrieve(Conversation(Task(text="Pay the invoice.")))
    ids = [record.id for record in await kept(store, OWNER, "episode")]
    (given_,) = await kept(store, OWNER, "retrieval")
    assert given_.payload["episodes"] == ids[::-1][:2]


async def test_recency_decides_between_equals_and_relevance_between_others(store: SQLiteStore) -> None:
    """An old episode of this very task comes before new ones of others: 0.4 of relevance outweighs 0.2 of recency."""
    model, _ = listening(work)
    for number, text in enumerate(["Pay the invoice.", *["Paint the fence."] * 8]):
        await finish(memory_of(store, model, run=f"r{number}", inject=False, procedures=False), Task(text=text), DONE)
    memory = memory_of(store, model, run="q", top=1)
    shown = (await memory.retrieve(Conversation(Task(text="Pay the invoice.")))).background
    assert "Task: Pay the invoice." in shown


# ---- supersession


async def supersede(store: SQLiteStore, old: Record, text: str) -> None:
    new = Record(owner=old.owner, kind=old.kind, text=text, payload=old.payload, supersedes=old.id)
    await archive(store).keep([new], actor="test")


async def test_what_is_superseded_is_neither_shown_nor_learnt_from(store: SQLiteStore) -> None:
    model, asked = listening(work)
    made = team(model, lifelong(every=2, grouped_from=0), agents="A", turns=1)
    await live(made, store, *invoices(1))
    (old,) = await kept(store, OWNER, "episode")
    await supersede(store, old, "Pay no invoice without an order.")
    memory = memory_of(store, model, run="q")
    shown = (await memory.retrieve(Conversation(invoices(1, 9)[0]))).background
    assert "Pay no invoice" in shown and f"Task: {old.text}" not in shown
    await live(made, store, *invoices(1, 2))
    told = only(asked, Purpose.CONSOLIDATION)[-1].text
    assert "Pay no invoice without an order." in told and f"<task>\n{old.text}" not in told
    assert len(await episodes(store)) == 3, "it is kept all the same"


async def test_a_superseded_procedure_is_not_shown(store: SQLiteStore) -> None:
    model, _ = listening(work)
    await live(team(model, lifelong(every=2), agents="A", turns=1), store, *invoices(2))
    (old,) = await kept(store, OWNER, "procedure")
    await supersede(store, old, "Paying an invoice\nNever pay on a Friday.")
    memory = memory_of(store, model, run="q")
    await memory.retrieve(Conversation(invoices(1, 9)[0]))
    given_ = (await kept(store, OWNER, "retrieval"))[-1]
    assert old.id not in given_.payload["procedures"] and len(given_.payload["procedures"]) == 1


# ---- what keeps failing


@given(
    outcomes=st.lists(st.booleans(), max_size=40),
    past=st.integers(0, 500),
    count=st.integers(1, 12),
    least=st.floats(0, 1),
)
def test_what_keeps_failing_is_told_by_its_newest_applications_alone(
    outcomes: list[bool], past: int, count: int, least: float
) -> None:
    trials = [Trial(use=f"r{n}", success=success, applied=True) for n, success in enumerate(outcomes)]
    sources = [Trial(use=f"s{n}", success=True, episode=f"e{n}") for n in range(3)]
    procedure = Procedure(title="t", strategy="s", trials=(*sources, *trials), successes=past)
    newest = outcomes[-count:]
    assert procedure.failing(count, least) == (len(outcomes) >= count and sum(newest) / count < least)
    assert not procedure.failing(count, 0.0)
    if all(newest):
        assert not procedure.failing(count, least)


@pytest.mark.parametrize(("successes", "shown", "retired"), [(50, 8, True), (0, 3, False)])
async def test_a_procedure_that_stops_working_is_shown_no_more(
    store: SQLiteStore, successes: int, shown: int, retired: bool
) -> None:
    """With the default gates: an old one is retired after eight failures, a young one is held back after three."""
    model, asked = listening(work)
    made = team(model, lifelong(every=2, grouped_from=0.2), agents="A", turns=1)
    await live(made, store, *invoices(2))
    (record,) = await kept(store, OWNER, "procedure")
    before = {**record.payload, "successes": successes}
    await store.records.edit(record.model_copy(update={"payload": before}), actor="test")
    asked.clear()
    await live(made, store, *invoices(12, 3, success=False))
    assert sum("Procedure: " in one.text for one in only(asked, Purpose.ANSWER)) == shown
    (found,) = [as_procedure(one) for one in await kept(store, OWNER, "procedure")]
    assert found.retired is retired and found.success_rate > 0 and len(found.applications) == shown


# ---- what is said twice

_strategies = ["Compare the sums, then pay.", "then PAY; compare the sums", "Ask zed for the ledger.", "Burn it."]
procedures = st.lists(
    st.tuples(
        st.sets(st.sampled_from("abcdef"), max_size=4),
        st.sampled_from(["Pay", "pay!", "Ask"]),
        st.sampled_from(_strategies),
        st.integers(0, 2),
    ),
    max_size=7,
)


def made(found: Sequence[tuple[set[str], str, str, int]]) -> list[Record]:
    """Procedures, each with a few applications of its own."""
    records = []
    for number, (sources, title, strategy, applied) in enumerate(found):
        trials = [Trial(use=f"run {name}", success=name < "d", episode=name) for name in sorted(sources)]
        trials += [Trial(use=f"use {number} {n}", success=n == 0, applied=True) for n in range(applied)]
        record = record_of(Strategy(title=title, strategy=strategy), owner=OWNER, sources=trials, author="A", model="m")
        records.append(record.model_copy(update={"key": str(number)}))
    return records


def doubles(records: Sequence[Record]) -> bool:
    """Whether any two say the same, each compared with each."""
    held = [as_procedure(record) for record in records]
    return any(_says_anew(a, b, b.sources) or _says_anew(b, a, a.sources) for a, b in combinations(held, 2))


@given(found=procedures)
def test_no_double_is_overlooked_and_none_made_up(found: Sequence[tuple[set[str], str, str, int]]) -> None:
    records = made(found)
    assert (_doubled(records) is not None) == doubles(records)


@settings(max_examples=25)
@given(found=procedures)
def test_after_tidying_each_is_there_once_and_every_trial_counts_once(
    found: Sequence[tuple[set[str], str, str, int]],
) -> None:
    async def tidied() -> list[Record]:
        store = SQLiteStore()
        try:
            await store.records.add(made(found), actor="A")
            await tidy(archive(store), OWNER, actor="A")
            before = await kept(store, OWNER, "procedure")
            await tidy(archive(store), OWNER, actor="A")
            assert await kept(store, OWNER, "procedure") == before, "twice is once"
            return before
        finally:
            await store.aclose()

    records = asyncio.run(tidied())
    assert not doubles(records)
    uses = {trial.use for record in made(found) for trial in as_procedure(record).trials}
    assert {trial.use for record in records for trial in as_procedure(record).trials} == uses
    for record in records:
        names = [trial.use for trial in as_procedure(record).trials]
        counted = len(names) - unproven(as_procedure(record).trials)
        assert len(names) == len(set(names)) and as_procedure(record).won + as_procedure(record).lost == counted
