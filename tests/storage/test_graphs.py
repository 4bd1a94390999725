"""Many vectors in PostgreSQL: a graph is made of them beside the work, and finds nearly all that are nearest."""

from collections.abc import AsyncIterator

import numpy as np
import psycopg
import pytest
from storage.servers import Server
from storage.test_postgres import end_connections, name_of
from storage.test_records import record

from memeplex.storage import Query, Vectors
from memeplex.storage.postgres import create, indexing, search
from memeplex.storage.postgres.store import PostgresStore

DIMENSION = 32
OWNERS = {"ada": 1500, "bob": 1200, "cat": 300}
CLUSTERS = np.random.default_rng(0).normal(size=(40, DIMENSION))


def clustered(count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = CLUSTERS[random.integers(len(CLUSTERS), size=count)] + 0.6 * random.normal(size=(count, DIMENSION))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


async def fill(store: PostgresStore) -> None:
    for seed, (owner, count) in enumerate(OWNERS.items()):
        made = [record(f"text {n}", owner, "odd" if n % 2 else "even") for n in range(count)]
        await store.records.add(made, Vectors(embedder="e", values=clustered(count, seed)), actor="test")


@pytest.fixture
async def store(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """A store in which a thousand is many."""
    monkeypatch.setattr(search, "EXACT", 1000)
    monkeypatch.setattr(search, "_DEARER", 1)
    with postgres.database() as url:
        opened = create(url)
        yield opened
        await opened.aclose()


def query(vector: np.ndarray, *owners: str, **more: object) -> Query:
    return Query(owners=owners, vector=vector, embedder="e", **more)  # type: ignore[arg-type]


async def found(store: PostgresStore, asked: Query) -> list[str]:
    return [hit.record.id for hit in (await store.records.search(asked)).hits]


def uses(postgres: Server, store: PostgresStore) -> int:
    """How often graphs were searched. Connections tell of it when they end, which closing them does not wait for."""
    end_connections(postgres, store.url)
    sql = "select coalesce(sum(idx_scan), 0)::int from pg_stat_user_indexes where indexrelname like 'vectors_hnsw%'"
    return int(postgres.execute(sql, database=name_of(store.url))[0][0])


async def test_the_graph_finds_nearly_all_that_are_nearest(
    store: PostgresStore, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store)
    asked = [
        query(vector, *owners, kinds=kinds)
        for vector in clustered(20, 9)
        for owners in (("ada",), ("bob", "cat"), ("ada", "bob", "cat"))
        for kinds in ((), ("odd",))
    ]
    with monkeypatch.context() as patch:
        patch.setattr(search, "EXACT", 10**9)
        exact = [await found(store, one) for one in asked]
    assert all(len(ids) == 10 for ids in exact)
    assert await found(store, asked[0]) == exact[0], "all are compared until the graph is there"
    store._builder.wait()
    assert store._builder.fault is None
    graph = [await found(store, one) for one in asked]
    hit = [len(set(ids) & set(true)) / len(true) for ids, true in zip(graph, exact, strict=True)]
    assert sum(hit) / len(hit) >= 0.95 and min(hit) >= 0.7
    few = query(asked[0].vector, "cat")  # type: ignore[arg-type]
    assert len(await found(store, few)) == 10, "few are compared as before"
    await store.aclose()
    assert uses(postgres, store) == len(asked)


async def test_what_is_written_and_forgotten_later_is_seen_in_the_graph(store: PostgresStore) -> None:
    await fill(store)
    vector = clustered(1, 77)
    await found(store, query(vector[0], "ada"))
    store._builder.wait()
    made = record("new", "ada")
    await store.records.add([made], Vectors(embedder="e", values=vector), actor="test")
    assert (await found(store, query(vector[0], "ada")))[0] == made.id
    assert made.id not in await found(store, query(vector[0], "bob"))
    await store.records.forget("ada", [made.id], actor="test")
    assert made.id not in await found(store, query(vector[0], "ada"))


async def test_a_new_embedder_gets_a_graph_of_its_own(store: PostgresStore, postgres: Server) -> None:
    await fill(store)
    await found(store, query(clustered(1, 7)[0], "ada"))
    store._builder.wait()
    while missing := await store.records.without_vectors("wide", limit=1000):
        values = np.random.default_rng(1).normal(size=(len(missing), 8)).astype(np.float32)
        await store.records.set_vectors([one.id for one in missing], Vectors(embedder="wide", values=values), actor="t")
    sql = "select indexrelname from pg_stat_user_indexes where indexrelname like 'vectors_hnsw%'"
    assert postgres.execute(sql, database=name_of(store.url)) == [], "that of the old one went with it"
    asked = Query(owners=("ada",), vector=np.ones(8, np.float32), embedder="wide")
    exact = await found(store, asked)
    store._builder.wait()
    assert postgres.execute(sql, database=name_of(store.url)) == [("vectors_hnsw_2",)]
    assert len(set(await found(store, asked)) & set(exact)) >= 9


async def test_a_graph_left_unfinished_is_made_anew(store: PostgresStore, postgres: Server) -> None:
    await fill(store)
    asked = query(clustered(1, 7)[0], "ada")
    await found(store, asked)
    store._builder.wait()
    database = name_of(store.url)
    spoil = "update pg_index set indisvalid = false where indexrelid = 'vectors_hnsw_1'::regclass"
    postgres.execute("set allow_system_table_mods = on", spoil, database=database)
    assert len(await found(store, asked)) == 10
    store._builder.wait()
    assert await store._call(lambda db: indexing.usable(db, 1))


async def test_a_graph_that_cannot_be_made_is_told_of_and_all_are_compared(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise psycopg.errors.DiskFull("no room for it")

    monkeypatch.setattr(indexing, "build", fail)
    await fill(store)
    asked = query(clustered(1, 7)[0], "ada")
    await found(store, asked)
    store._builder.wait()
    again = await store.records.search(asked)
    assert len(again.hits) == 10 and "no room for it" in again.note


async def test_closing_breaks_off_what_is_being_made(store: PostgresStore, postgres: Server) -> None:
    await fill(store)
    with psycopg.connect(store.url, options="-c search_path=memeplex") as other:
        # A graph waits for those who began to write before it.
        other.execute("update vectors set kind = kind where record = 1")
        await found(store, query(clustered(1, 7)[0], "ada"))
        await store.aclose()
    again = create(store.url)
    await found(again, query(clustered(1, 7)[0], "ada"))
    again._builder.wait()
    assert await again._call(lambda db: indexing.usable(db, 1))
    await again.aclose()


@pytest.mark.parametrize(("dimension", "kind"), [(2000, "vector(2000)"), (2001, "halfvec(2001)"), (4001, "")])
async def test_vectors_of_any_length_are_kept_and_found(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, dimension: int, kind: str
) -> None:
    monkeypatch.setattr(search, "EXACT", 5)
    monkeypatch.setattr(search, "_DEARER", 0)
    values = np.random.default_rng(0).normal(size=(20, dimension)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    made = [record(f"text {n}") for n in range(20)]
    await store.records.add(made, Vectors(embedder="e", values=values), actor="test")
    assert indexing.indexed_as(dimension) == kind
    for _ in range(2):
        assert (await found(store, query(values[3], "ada")))[0] == made[3].id
        store._builder.wait()
    assert await store._call(lambda db: indexing.usable(db, 1)) == bool(kind)


async def test_after_a_purge_the_graph_is_made_anew(store: PostgresStore) -> None:
    await fill(store)
    asked = query(clustered(1, 7)[0], "ada")
    await found(store, asked)
    store._builder.wait()
    assert await store.records.purge("cat", actor="test") == OWNERS["cat"]
    assert not await store._call(lambda db: indexing.usable(db, 1))
    assert len(await found(store, asked)) == 10
    store._builder.wait()
    assert await store._call(lambda db: indexing.usable(db, 1))


async def test_where_a_graph_would_meet_too_many_others_all_are_compared(
    store: PostgresStore, postgres: Server
) -> None:
    await fill(store)
    asked = query(clustered(1, 7)[0], "ada", limit=800)
    await found(store, asked)
    store._builder.wait()
    assert len(await found(store, asked)) == 800
    await store.aclose()
    assert uses(postgres, store) == 0
