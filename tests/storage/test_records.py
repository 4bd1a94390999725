"""Records, on every store: what is kept, found, changed, forgotten, and known of it afterwards."""

import asyncio
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memeplex.errors import ConflictError, EmbedderMismatchError, ImportLineError, StorageError, UserError
from memeplex.storage import Provenance, Query, Record, Store, Vectors, new_id

DIMENSION = 8


def record(text: str = "The bridge is of steel.", owner: str = "ada", kind: str = "fact", **more: Any) -> Record:
    return Record(owner=owner, kind=kind, text=text, **more)


def vectors(*seeds: int, embedder: str = "e") -> Vectors:
    """One random vector for each seed; the same seed gives the same one."""
    rows = [np.random.default_rng(seed).normal(size=DIMENSION) for seed in seeds]
    values = np.array(rows, np.float32).reshape(len(seeds), DIMENSION)
    return Vectors(embedder=embedder, values=values / np.linalg.norm(values, axis=1, keepdims=True))


def near(seed: int, **more: Any) -> Query:
    return Query(**{"owners": ("ada",), "vector": vectors(seed).values[0], "embedder": "e", **more})


async def add(store: Store, *texts: str, owner: str = "ada", seeds: tuple[int, ...] = ()) -> list[Record]:
    made = [record(text, owner) for text in texts]
    await store.records.add(made, vectors(*seeds) if seeds else None, actor="test")
    return made


async def texts(store: Store, query: Query) -> list[str]:
    return [hit.record.text for hit in (await store.records.search(query)).hits]


async def exported(store: Store, owner: str | None = None) -> list[str]:
    return [line async for line in store.records.export(owner)]


# ---- what is kept


async def test_a_record_comes_back_as_it_was(store: Store) -> None:
    kept = record(
        "橋\n🌉 naïve",
        payload={"n": [1, 2.5, None, {"a": True}]},
        provenance=Provenance(run="r", turns=(3, 4), author="ada", model="m", prompt="p@2"),
        trust=0.25,
        key="k",
        created=datetime(2026, 1, 2, 3, 4, 5, 678, UTC),
    )
    await store.records.add([kept], actor="test")
    assert await store.records.get([kept.id, "none"]) == [kept]
    assert await store.records.page("ada") == [kept]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=UTC)),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=5))), datetime(2026, 1, 1, 22, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
    ],
)
async def test_times_are_kept_in_utc(store: Store, given: Any, stored: datetime) -> None:
    kept = record(created=given)
    await store.records.add([kept], actor="test")
    assert (await store.records.get([kept.id]))[0].created == stored


@pytest.mark.parametrize(
    "fields",
    [
        {"text": ""},
        {"text": " \n"},
        {"text": "x" * (2**21 + 1)},
        {"owner": ""},
        {"kind": ""},
        {"trust": 1.5},
        {"trust": math.nan},
        {"payload": {"x": math.inf}},
        {"payload": {"x": [{"y": math.nan}]}},
        {"more": 1},
    ],
)
def test_what_is_no_record_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        record(**{"text": "x", **fields})


async def test_a_text_of_a_megabyte_is_kept_and_found(store: Store) -> None:
    await add(store, "needle " + "hay " * 260_000)
    assert [text[:6] for text in await texts(store, Query(owners=("ada",), text="needle"))] == ["needle"]


async def test_nul_and_lone_surrogates_are_cleaned(store: Store) -> None:
    (kept,) = await add(store, "a\0b \ud800 steel")
    assert (await store.records.get([kept.id]))[0].text == "ab \ufffd steel"


async def test_the_same_input_twice_is_one_record(store: Store) -> None:
    first = await store.records.add([record("x"), record("y", key="k")], actor="test")
    again = await store.records.add([record("x"), record("other", key="k"), record("x")], actor="test")
    assert again.ids == (first.ids[0], first.ids[1], first.ids[0]) and not again.new
    elsewhere = await store.records.add([record("x", owner="bob")], actor="test")
    assert len(elsewhere.new) == 1
    assert await store.records.owners() == {"ada": {"fact": 2}, "bob": {"fact": 1}}
    assert [row.action for row in await store.records.audit()] == ["add", "add"], "nothing changed, nothing audited"


async def test_records_are_added_all_or_none(store: Store) -> None:
    with pytest.raises(UserError, match="one owner"):
        await store.records.add([record("x"), record("y", owner="bob")], actor="test")
    with pytest.raises(UserError, match="2 records need 2 vectors"):
        await store.records.add([record("x"), record("y")], vectors(1), actor="test")
    with pytest.raises(UserError, match="to supersede"):
        await store.records.add([record("x"), record("y", supersedes="nobody")], actor="test")
    assert await store.records.owners() == {} and await store.records.audit() == []


# ---- what is found


async def test_words_are_found_whatever_the_script(store: Store) -> None:
    said = {
        "東京タワーに行きました": "東京",
        "我们昨天讨论了数据管道的预算": "数据管道",
        "ฉันชอบอาหารไทยมาก": "อาหาร",
        "우리는 파이프라인을 설계했다": "파이프라인",
        "Café crème à Besançon": "cafe besancon",
        "İstanbul'da IŞIK yandı": "istanbul ışık",
        "هذا العَرَبِيّة نص": "العربية",
        "हिन्दी में लिखा": "हिन्दी",
        "ｶﾀｶﾅ ＡＢＣ": "カタカナ abc",
    }
    await add(store, *said)
    for text, question in said.items():
        assert (await texts(store, Query(owners=("ada",), text=question)))[0] == text, question


@pytest.mark.parametrize("text", ['" OR 1', "NEAR(a b)", "owner:o1", "a* -b ^c", "(", "''; drop table records", "。、"])
async def test_no_query_is_a_command(store: Store, text: str) -> None:
    await add(store, "bridge", owner="bob")
    await add(store, "steel")
    assert "bridge" not in await texts(store, Query(owners=("ada",), text=text))


async def test_the_nearest_are_found_exactly(store: Store) -> None:
    await add(store, *(f"text {i}" for i in range(300)), seeds=tuple(range(300)))
    found = (await store.records.search(near(7, limit=20))).hits
    values = vectors(*range(300)).values
    cosines = values @ vectors(7).values[0]
    best = np.argsort(-cosines)[:20]
    assert [hit.record.text for hit in found] == [f"text {i}" for i in best]
    assert [hit.similarity for hit in found] == pytest.approx(cosines[best].tolist(), abs=1e-6)


async def test_both_rankings_are_fused(store: Store) -> None:
    await add(store, "granite pier", "steel deck", "wooden rail", seeds=(1, 2, 3))
    query = near(3, text="steel", limit=2)
    hits = (await store.records.search(query)).hits
    assert {hit.record.text for hit in hits} == {"wooden rail", "steel deck"}
    assert all(hit.similarity is not None for hit in hits)
    assert {hit.record.text: hit.keyword is not None for hit in hits} == {"wooden rail": False, "steel deck": True}


async def test_kinds_limits_and_exclusions_hold(store: Store) -> None:
    made = await add(store, *(f"steel {i}" for i in range(5)), seeds=tuple(range(5)))
    await store.records.add([record("steel plan", kind="plan")], vectors(9), actor="test")
    for query in (Query(owners=("ada",), text="steel", kinds=("plan",)), near(0, kinds=("plan",))):
        assert await texts(store, query) == ["steel plan"]
    for query in (Query(owners=("ada",), text="steel", limit=2), near(0, limit=2)):
        assert len(await texts(store, query)) == 2
    gone = frozenset({made[0].id})
    assert "steel 0" not in await texts(store, near(0, exclude=gone, limit=5))
    assert len(await texts(store, near(0, exclude=gone, limit=5))) == 5
    assert await texts(store, Query(owners=("nobody",), text="steel")) == []
    assert await texts(store, Query(owners=(), text="steel")) == []


async def test_several_owners_are_searched_as_one_and_others_never(store: Store) -> None:
    for name, seed in (("ada", 1), ("bob", 2), ("cat", 3)):
        await add(store, f"steel of {name}", owner=name, seeds=(seed,))
    for query in (Query(owners=("ada", "bob"), text="steel"), near(3, owners=("ada", "bob"))):
        assert set(await texts(store, query)) == {"steel of ada", "steel of bob"}


async def test_the_current_one_comes_before_what_it_supersedes(store: Store) -> None:
    (old,) = await add(store, "the budget is 100 dollars budget budget", seeds=(1,))
    new = record("now 200 dollars it is", supersedes=old.id)
    await store.records.add([new], vectors(2), actor="test")
    for query in (Query(owners=("ada",), text="budget dollars"), near(1), near(1, text="budget")):
        hits = (await store.records.search(query)).hits
        assert [hit.record.id for hit in hits] == [new.id, old.id]
        assert hits[1].record.superseded_by == new.id


# ---- embedders


async def test_another_embedder_is_refused_and_words_are_searched_all_the_same(store: Store) -> None:
    await add(store, "steel", seeds=(1,))
    with pytest.raises(EmbedderMismatchError, match="of e, not of other"):
        await store.records.add([record("granite")], vectors(2, embedder="other"), actor="test")
    found = await store.records.search(near(1, text="steel", embedder="other"))
    assert [hit.record.text for hit in found.hits] == ["steel"] and "reindex" in found.note
    with pytest.raises(UserError, match="shape"):
        await store.records.search(near(1, vector=np.ones(3, np.float32)))
    with pytest.raises(EmbedderMismatchError, match="8 dimensions"):
        await store.records.add([record("x")], Vectors(embedder="e", values=np.ones((1, 3), np.float32)), actor="t")
    with pytest.raises(UserError, match="finite"):
        bad = Vectors(embedder="e", values=np.full((1, DIMENSION), np.nan, np.float32))
        await store.records.add([record("x")], bad, actor="test")


async def test_reindexing_replaces_the_embedder_step_by_step(store: Store) -> None:
    made = await add(store, "steel", "granite", "wood", seeds=(1, 2, 3))
    while missing := await store.records.without_vectors("new", limit=2):
        await store.records.set_vectors(
            [r.id for r in missing], vectors(*range(len(missing)), embedder="new"), actor="t"
        )
    assert await store.records.without_vectors("new") == []
    found = await store.records.search(near(0, embedder="new"))
    assert found.note == "" and len(found.hits) == len(made)
    assert (await store.records.search(near(1))).note, "nothing is left of the old one"


async def test_a_changed_text_loses_its_vector(store: Store) -> None:
    (kept,) = await add(store, "steel", seeds=(1,))
    assert await texts(store, near(1)) == ["steel"]
    await store.records.edit(kept.model_copy(update={"text": "granite"}), actor="test")
    assert await texts(store, near(1)) == [] and await texts(store, Query(owners=("ada",), text="steel")) == []
    assert [r.text for r in await store.records.without_vectors("e")] == ["granite"]


# ---- what is changed


async def test_of_two_edits_at_once_one_wins_and_the_other_holds_both_versions(store: Store) -> None:
    (kept,) = await add(store, "steel")
    mine, yours = (kept.model_copy(update={"text": text}) for text in ("mine", "yours"))
    results: list[Record | ConflictError] = []

    async def edit(changed: Record) -> None:
        try:
            results.append(await store.records.edit(changed, actor="test"))
        except ConflictError as error:
            results.append(error)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(edit(mine))
        tasks.create_task(edit(yours))
    (conflict,) = [result for result in results if isinstance(result, ConflictError)]
    (won,) = [result for result in results if isinstance(result, Record)]
    assert conflict.theirs == won and won.revision == 2
    assert isinstance(conflict.yours, Record) and {won.text, conflict.yours.text} == {"mine", "yours"}
    assert [change.record.text for change in await store.records.history(kept.id) if change.record] == [
        "steel",
        won.text,
    ]


async def test_an_edit_keeps_to_its_record(store: Store) -> None:
    kept, twin = await add(store, "steel", "granite")
    with pytest.raises(UserError, match="cannot be edited"):
        await store.records.edit(kept.model_copy(update={"owner": "bob"}), actor="test")
    with pytest.raises(ConflictError, match="already") as caught:
        await store.records.edit(kept.model_copy(update={"text": "granite"}), actor="test")
    assert caught.value.theirs == twin
    edited = await store.records.edit(kept.model_copy(update={"text": "wood"}), actor="test")
    added = await store.records.add([record("steel"), record("wood")], actor="test")
    assert added.ids[1] == edited.id and added.new == {added.ids[0]}, "the key follows the text"


async def test_forgotten_is_out_of_reach_and_still_known(store: Store) -> None:
    kept, other = await add(store, "steel", "granite", seeds=(1, 2))
    assert await store.records.forget("ada", [kept.id, "nobody"], actor="eve", cause="asked for") == 1
    assert await texts(store, near(1)) == ["granite"] and await texts(store, Query(owners=("ada",), text="steel")) == []
    assert await store.records.get([kept.id]) == []
    said, gone = await store.records.history(kept.id)
    assert said.record == kept and gone.record is None
    assert (gone.origin.actor, gone.origin.action, gone.origin.cause) == ("eve", "forget", "asked for")
    assert await store.records.forget("bob", [other.id], actor="eve") == 0, "not an owner's own"


async def test_every_changing_call_is_one_audit_row(store: Store) -> None:
    (kept,) = await add(store, "steel", seeds=(1,))
    edited = await store.records.edit(kept.model_copy(update={"trust": 0.5}), actor="bob", cause="heard otherwise")
    lines = await exported(store)
    await store.records.set_vectors([kept.id], vectors(5), actor="bob")
    await store.records.forget("ada", actor="bob")
    await store.records.purge("ada", [kept.id], actor="bob")
    await store.records.load(lines, actor="bob")
    rows = await store.records.audit()
    assert [row.action for row in reversed(rows)] == ["add", "edit", "reindex", "forget", "purge", "import"]
    assert all(row.records == 1 for row in rows) and [row.actor for row in rows] == ["bob"] * 5 + ["test"]
    assert [row.at for row in rows] == sorted((row.at for row in rows), reverse=True)
    assert await store.records.get([kept.id]) == [edited]


async def test_forgetting_one_owner_leaves_the_others_exports_as_they_were(store: Store) -> None:
    for name in ("ada", "bob"):
        made = await add(store, "steel", "granite", owner=name, seeds=(1, 2))
        await store.records.edit(made[0].model_copy(update={"text": "wood"}), actor="test")
    before = await exported(store, "bob")
    await store.records.forget("ada", actor="test")
    await store.records.purge("ada", actor="test")
    assert await exported(store, "bob") == before and await exported(store, "ada") == []
    assert await exported(store) == before


# ---- export and import


async def test_an_export_imported_elsewhere_gives_the_same_bytes(store: Store, other: Store) -> None:
    made = await add(store, "steel 橋", "granite", "wood", seeds=(1, 2, 3))
    await store.records.edit(made[0].model_copy(update={"text": "iron"}), actor="test", cause="why")
    await store.records.add([record("oak", supersedes=made[2].id)], actor="test")
    await store.records.forget("ada", [made[1].id], actor="test")
    await add(store, "steel", owner="bob")
    lines = await exported(store)
    assert await other.records.load(lines, actor="importer") == 5
    assert await exported(other) == lines
    assert await other.records.load(lines, actor="importer") == 0, "what is there already is left alone"
    assert await texts(other, Query(owners=("ada",), text="iron granite")) == ["iron"]
    assert [json.dumps(json.loads(line), sort_keys=True, separators=(",", ":")) for line in lines] == lines


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda line: line[: len(line) // 2], "line 2: it is no JSON"),
        (lambda line: line.replace('"format":1', '"format":99'), "line 2: it is of a newer version"),
        (lambda line: '{"format":1,"history":[]}', "line 2: it is no record"),
        (lambda line: "[]", "line 2"),
    ],
)
async def test_a_bad_line_is_named_and_nothing_imported(store: Store, other: Store, spoil: Any, says: str) -> None:
    await add(store, "steel", "granite")
    first, second = await exported(store)
    with pytest.raises(ImportLineError, match=says):
        await other.records.load([first, spoil(second)], actor="test")
    assert await exported(other) == [] and await other.records.audit() == []


# ---- invariants


@given(text=st.text(min_size=1, max_size=200).filter(lambda t: t.replace("\0", "").strip()))
def test_a_record_is_found_by_its_own_text(text: str) -> None:
    from memeplex.storage.terms import query_terms, terms

    assert set(query_terms(text)) <= set(terms(text))


async def test_what_stands_beside_an_answer_is_found_with_it(store: Store) -> None:
    said = ["Where did you grow up?", "In Porto, by the river.", "Nice!", "Unrelated talk of shoes.", "More of shoes."]
    for run, order in (("a", said), ("b", said[3:])):
        made = [record(f"{run}: {text}", provenance=Provenance(run=run, turns=(i,))) for i, text in enumerate(order)]
        await store.records.add(made, actor="test")
    found = await texts(store, Query(owners=("ada",), text="where did he grow up", limit=3))
    assert set(found) == {"a: Where did you grow up?", "a: In Porto, by the river.", "a: Nice!"}
    assert found[0] == "a: Where did you grow up?"


async def test_what_its_author_is_asked_about_comes_first(store: Store) -> None:
    made = [
        record(f"I like {what}.", provenance=Provenance(author=who))
        for who, what in (("Zoë Kant", "pears"), ("Bo", "pears too much to say how much I like pears and pears"))
    ]
    await store.records.add(made, actor="test")
    for asked, first in (("What does Bo like, pears?", "Bo"), ("does zoe kant like pears", "Zoë Kant")):
        hits = (await store.records.search(Query(owners=("ada",), text=asked))).hits
        assert hits[0].record.provenance.author == first


async def test_the_day_is_among_the_words(store: Store) -> None:
    await store.records.add([record("steel", created=datetime(2023, 5, 8, tzinfo=UTC)), record("wood")], actor="test")
    assert await texts(store, Query(owners=("ada",), text="what was on 8 May 2023?")) == ["steel"]


def test_ids_sort_in_the_order_in_which_they_are_made() -> None:
    """Many are made within a millisecond, and what is oldest has to come first all the same."""
    made = [new_id() for _ in range(5000)]
    assert made == sorted(set(made)) and {len(one) for one in made} == {27}


async def test_a_damaged_record_is_an_error_of_the_store(store: Store, tamper: Callable[..., None]) -> None:
    (kept,) = await add(store, "steel")
    tamper("update records set payload = '[1]'")
    for attempt in (store.records.get([kept.id]), store.records.search(Query(owners=("ada",), text="steel"))):
        with pytest.raises(StorageError, match=f"record {kept.id} cannot be read") as caught:
            await attempt
        assert "damaged" in caught.value.remedy
