"""What the store costs: ``python bench/store.py [--only PART] [--records N] [--json]``.

Ratios are taken in one run, the contenders in turn. The rivals run in an environment of their own (.venv-bench).
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common import RIVALS, ROUNDS, Result, reported
from memeplex.storage import Query, Record, Store, Vectors, opened_store
from memeplex.storage.rows import FIELDS, record_row

DIMENSION = 384
INSERTS = 400
TURNS = 61
SHARE = 10_000
"""Records of one owner."""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
SPAWN = multiprocessing.get_context("spawn")


def random_vectors(count: int, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def owner(number: int) -> str:
    return f"team/agent{number}"


def records(name: str, count: int) -> list[Record]:
    return [
        Record(
            owner=name, kind="fact", key=str(i), text=f"fact {i} of {name}: pier {i * 7919 % 9973} holds {i % 97} tons"
        )
        for i in range(count)
    ]


async def fill(store: Store, owners: int, share: int = SHARE) -> float:
    """Seconds that the store took for ``owners`` times ``share`` records, each owner's in one call."""
    seconds = 0.0
    for number in range(owners):
        made, vectors = records(owner(number), share), random_vectors(share, number)
        began = time.perf_counter()
        await store.records.add(made, Vectors(embedder="bench", values=vectors), actor="bench")
        seconds += time.perf_counter() - began
    return seconds


async def search(store: Store, number: int, vector: np.ndarray) -> tuple[float, list[int]]:
    """Seconds, and which of the owner's records were found."""
    query = Query(owners=(owner(number),), vector=vector, embedder="bench", limit=10)
    began = time.perf_counter()
    found = await store.records.search(query)
    return time.perf_counter() - began, [int(hit.record.key) for hit in found.hits]


def among_many(path: str) -> dict[str, float]:
    """The search of one owner and the bare product over the same vectors, in milliseconds; in this process' threads."""

    async def measure() -> dict[str, float]:
        vectors, asked = random_vectors(SHARE, 0), random_vectors(TURNS, 999)
        ours: list[float] = []
        bare: list[float] = []
        async with opened_store(path) as store:
            await search(store, 0, asked[0])
            for vector in asked:
                seconds, found = await search(store, 0, vector)
                began = time.perf_counter()
                scores = vectors @ vector
                bare.append(time.perf_counter() - began)
                ours.append(seconds)
                assert found == np.argsort(-scores)[:10].tolist()
        return {"ours, ms": 1e3 * median(ours), "numpy, ms": 1e3 * median(bare), "ratio": median(ours) / median(bare)}

    return asyncio.run(measure())


def in_a_process(path: str, threads: str | None) -> dict[str, float]:
    """``among_many`` in a process whose numpy has so many threads, or as many as it takes."""
    before = {name: os.environ.pop(name, None) for name in THREADS}
    os.environ.update({name: threads for name in THREADS if threads})
    try:
        with ahead(), ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
            return pool.submit(among_many, path).result()
    finally:
        for name in THREADS:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def ahead() -> Iterator[None]:
    """Ahead of what else computes here, where that is allowed: fractions of a millisecond drown in it."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


async def filtered(folder: str, count: int) -> list[Result]:
    """One agent's 10,000 records among all, against the bare product over the same vectors."""
    path = f"{folder}/large.db"
    async with opened_store(path) as store:
        seconds = await fill(store, count // SHARE)
    # Several processes, since where their arrays come to lie in memory makes much of the difference.
    table: dict[str, dict[str, float]] = {}
    for name, threads in (("one thread", "1"), ("all threads", None)):
        rounds = [in_a_process(path, threads) for _ in range(ROUNDS)]
        table[name] = {what: round(median(one[what] for one in rounds), 3) for what in rounds[0]}
        table[name] |= {end.__name__: round(end(one["ratio"] for one in rounds), 3) for end in (min, max)}
    ratio = table["one thread"]["ratio"]
    what = f"top 10 of 10,000 among {count:,}, against numpy's product, one thread each"
    return [
        Result(what, ratio, limit=2, detail=table),
        Result("bulk insert, text index and vectors included", count / seconds, "records/s", 10_000, True),
    ]


async def rivals(folder: str, _: int) -> list[Result]:
    """The same search on 100,000 records of ten owners, each contender in turn."""
    owners = 10
    vectors = np.stack([random_vectors(SHARE, number) for number in range(owners)])
    np.save(f"{folder}/vectors.npy", vectors.reshape(-1, DIMENSION))
    kinds = {kind: _rival(kind, f"{folder}/vectors.npy", owners) for kind in ("sqlite-vec", "lancedb")}
    taken: dict[str, list[float]] = {kind: [] for kind in ("ours", *kinds)}
    async with opened_store(f"{folder}/rivals.db") as store:
        await fill(store, owners)
        # The first turn of each owner does not count.
        for turn in range(-owners, TURNS):
            number, place = turn % owners, turn * 1637 % SHARE
            found = {"ours": await search(store, number, vectors[number, place])}
            found |= {kind: _ask(process, number, number * SHARE + place) for kind, process in kinds.items()}
            best = np.argsort(-vectors[number] @ vectors[number, place])[:10]
            for kind, (seconds, ids) in found.items():
                assert [i % SHARE for i in ids] == best.tolist(), kind
                taken[kind] += [seconds] * (turn >= 0)
    for process in kinds.values():
        process.terminate()
        process.wait()
    p50 = {f"{kind}, ms": round(1e3 * median(values), 3) for kind, values in taken.items()}
    return [
        Result(f"top 10 of 10,000 among 100,000, against {kind}", p50["ours, ms"] / p50[f"{kind}, ms"], "ratio", bar)
        for kind, bar in (("sqlite-vec", 1.0), ("lancedb", 0.2))
    ] + [Result("the same, in milliseconds", p50["ours, ms"], "ms", detail=p50)]


def _rival(kind: str, path: str, owners: int) -> "subprocess.Popen[str]":
    command = [str(RIVALS), str(Path(__file__).with_name("rivals.py")), kind, path, str(owners)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip() == "ready", kind
    return process


def _ask(process: "subprocess.Popen[str]", number: int, vector: int) -> tuple[float, list[int]]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{number} {vector}\n")
    process.stdin.flush()
    seconds, found = json.loads(process.stdout.readline())
    return seconds, found


async def single(folder: str, _: int) -> list[Result]:
    """One durable insert, against a bare table with the same row, flushed in the same way."""
    with ahead():
        rounds = [await _inserted(f"{folder}/{number}") for number in range(ROUNDS)]
    detail = {what: round(median(one[what] for one in rounds), 3) for what in rounds[0]}
    detail |= {end.__name__: round(end(one["ratio"] for one in rounds), 3) for end in (min, max)}
    return [Result("single durable insert, against a bare one", detail["ratio"], limit=1.5, detail=detail)]


async def _inserted(place: str) -> dict[str, float]:
    """Milliseconds of one insert into new files, ours and the bare one in turn.

    The first ones are left out: until a log has come to its full length and is written over, it is the file system that
    is measured.
    """
    made, vectors = records(owner(0), INSERTS), random_vectors(INSERTS)
    taken: dict[str, list[float]] = {"ours, ms": [], "bare, ms": []}
    async with opened_store(f"{place}.db") as store:
        with closing(_bare(f"{place}.bare.db")) as bare:
            await fill(store, 1, 1)
            for number, record in enumerate(made[1:], 1):
                one = Vectors(embedder="bench", values=vectors[number : number + 1])
                began = time.perf_counter()
                await store.records.add([record], one, actor="bench")
                taken["ours, ms"].append(time.perf_counter() - began)
                row = (record.owner, *record_row(record), one.values.tobytes())
                began = time.perf_counter()
                with bare:
                    bare.execute(f"insert into r values ({', '.join('?' * len(row))})", row)
                taken["bare, ms"].append(time.perf_counter() - began)
    p50 = {what: 1e3 * median(seconds[100:]) for what, seconds in taken.items()}
    return p50 | {"ratio": p50["ours, ms"] / p50["bare, ms"]}


def _bare(path: str) -> sqlite3.Connection:
    """A table of records with their vectors, found by their ids and in no other way."""
    bare = sqlite3.connect(path)
    bare.execute("pragma journal_mode = wal")
    bare.execute("pragma synchronous = full")
    bare.execute(f"create table r (owner, {FIELDS.replace('id', 'id text primary key', 1)}, vector)")
    return bare


async def opening(folder: str, _: int) -> list[Result]:
    """Open a store of 100,000 records and search an owner of 1,000 of them."""
    path = f"{folder}/open.db"
    async with opened_store(path) as store:
        await fill(store, 100, 1000)
    seconds: list[float] = []
    for turn in range(ROUNDS):
        began = time.perf_counter()
        async with opened_store(path) as store:
            _, found = await search(store, turn, random_vectors(1)[0])
            seconds.append(time.perf_counter() - began)
        assert len(found) == 10
    return [Result("open 100,000 records, first search of 1,000", median(seconds), "seconds", 0.2)]


def writer(path: str, number: int) -> None:
    async def write() -> None:
        async with opened_store(path) as store:
            for record in records(owner(number), 200):
                await store.records.add([record], actor="bench")

    asyncio.run(write())


def reader(path: str, number: int) -> None:
    async def read() -> None:
        async with opened_store(path) as store:
            for _ in range(100):
                await store.records.search(Query(owners=(owner(number),), text="pier tons"))

    asyncio.run(read())


async def crowd(folder: str, _: int) -> list[Result]:
    """Eight processes that write 200 records each, with readers beside them."""
    path = f"{folder}/crowd.db"
    crew = [SPAWN.Process(target=writer, args=(path, i)) for i in range(8)]
    crew += [SPAWN.Process(target=reader, args=(path, i)) for i in range(2)]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    failed = sum(process.exitcode != 0 for process in crew)
    async with opened_store(path) as store:
        kept = sum(kinds["fact"] for kinds in (await store.records.owners()).values())
    return [
        Result("8 processes x 200 writes with readers: processes that failed", failed, "processes", 0),
        Result("8 processes x 200 writes with readers: records kept", kept, "records", 1600, True),
    ]


async def forgetting(folder: str, _: int) -> list[Result]:
    """Forget 10,000 records of an owner, of several in turn; what another exports stays the same to the byte."""
    seconds: list[float] = []
    same = True
    async with opened_store(f"{folder}/forget.db") as store:
        await fill(store, ROUNDS + 1)
        before = [line async for line in store.records.export(owner(ROUNDS))]
        for number in range(ROUNDS):
            began = time.perf_counter()
            assert await store.records.forget(owner(number), actor="bench") == SHARE
            seconds.append(time.perf_counter() - began)
            same &= before == [line async for line in store.records.export(owner(ROUNDS))]
    return [
        Result("forget 10,000 records", median(seconds), "seconds", 2),
        Result("forgetting leaves another's export as it was", float(same), "of 1", 1, True),
    ]


Part = Callable[[str, int], Awaitable[list[Result]]]
PARTS: dict[str, Part] = {one.__name__: one for one in (filtered, rivals, single, opening, crowd, forgetting)}


def results(part: Part, count: int = 1_000_000) -> list[Result]:
    """One part, in a folder of its own; ``count`` is the size of the large store."""
    with tempfile.TemporaryDirectory() as folder:

        async def measured() -> list[Result]:
            return await part(folder, count)

        return asyncio.run(measured())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be repeated")
    parser.add_argument("--records", type=int, default=1_000_000, help="of the large store")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    measured = (result for name in chosen.only or PARTS for result in results(PARTS[name], chosen.records))
    sys.exit(reported(measured, as_json=chosen.json))
