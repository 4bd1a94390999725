"""What the store costs: ``python bench/store.py [--json] [--records N]`` prints every figure.

Ratios are taken in one run, the contenders in turn. The rivals run in an environment of their own (.venv-bench).
"""

import argparse
import asyncio
import json
import multiprocessing
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common import Result
from memeplex.storage import Query, Record, Store, Vectors, opened_store

DIMENSION = 384
ROUNDS = 61
RIVALS = Path(__file__).resolve().parent.parent / ".venv-bench" / "bin" / "python"


def random_vectors(count: int, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def owner(number: int) -> str:
    return f"team/agent{number}"


def records(name: str, count: int, start: int = 0) -> list[Record]:
    return [
        Record(owner=name, kind="fact", text=f"fact {i} of {name}: the pier {i * 7919 % 9973} holds {i % 97} tons")
        for i in range(start, start + count)
    ]


async def fill(store: Store, owners: int, share: int) -> float:
    """Seconds that the store took for ``owners`` times ``share`` records, in batches of 10,000."""
    seconds = 0.0
    for number in range(owners):
        made, vectors = records(owner(number), share), random_vectors(share, number)
        began = time.perf_counter()
        for start in range(0, share, 10_000):
            part = Vectors(embedder="bench", values=vectors[start : start + 10_000])
            await store.records.add(made[start : start + 10_000], part, actor="bench")
        seconds += time.perf_counter() - began
    return seconds


async def timed(store: Store, number: int, vector: np.ndarray) -> float:
    query = Query(owners=(owner(number),), vector=vector, embedder="bench", limit=10)
    began = time.perf_counter()
    found = await store.records.search(query)
    assert len(found.hits) == 10
    return time.perf_counter() - began


async def filtered(count: int, folder: str) -> list[Result]:
    """One agent's 10,000 records among all, against the bare product over the same vectors."""
    share = 10_000
    async with opened_store(f"{folder}/large.db") as store:
        seconds = await fill(store, count // share, share)
        vectors, asked = random_vectors(share, 3), random_vectors(ROUNDS, 999)
        await timed(store, 3, asked[0])
        ours: list[float] = []
        bare: list[float] = []
        for vector in asked:
            ours.append(await timed(store, 3, vector))
            began = time.perf_counter()
            vectors @ vector
            bare.append(time.perf_counter() - began)
    ratio = statistics.median(ours) / statistics.median(bare)
    detail = {"ours, ms": 1e3 * statistics.median(ours), "numpy, ms": 1e3 * statistics.median(bare), "records": count}
    return [
        Result(f"top 10 of 10,000 among {count:,}, against the bare product", ratio, "ratio", 2, False, detail),
        Result("bulk insert, text index and vectors included", count / seconds, "records/s", 10_000, True),
    ]


async def against_rivals(folder: str) -> list[Result]:
    """The same search on 100,000 records of ten owners, each contender in turn."""
    count, owners = 100_000, 10
    share = count // owners
    vectors = np.concatenate([random_vectors(share, number) for number in range(owners)])
    np.save(f"{folder}/vectors.npy", vectors)
    taken: dict[str, list[float]] = {"ours": []}
    results: list[Result] = []
    async with opened_store(f"{folder}/rivals.db") as store:
        await fill(store, owners, share)
        rivals = {kind: _rival(kind, f"{folder}/vectors.npy", owners) for kind in ("sqlite-vec", "lancedb")}
        for turn in range(ROUNDS):
            number = turn * 1637 % count
            taken["ours"].append(await timed(store, number // share, vectors[number]))
            for kind, process in rivals.items():
                seconds, found = _ask(process, number // share, number)
                assert found[0] == number, kind
                taken.setdefault(kind, []).append(seconds)
        for process in rivals.values():
            process.terminate()
            process.wait()
    # The first of each are warming up.
    p50 = {kind: statistics.median(values[3:]) for kind, values in taken.items()}
    detail = {f"{kind}, ms": 1e3 * value for kind, value in p50.items()}
    for kind, bar in (("sqlite-vec", 1.0), ("lancedb", 0.2)):
        ratio = p50["ours"] / p50[kind]
        results.append(Result(f"filtered search of 100,000, against {kind}", ratio, "ratio", bar, False, detail))
        detail = {}
    return results


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


async def single(folder: str) -> list[Result]:
    """One durable insert, against a bare table with the same row, flushed in the same way."""
    bare = sqlite3.connect(f"{folder}/bare.db")
    bare.execute("pragma journal_mode = wal")
    bare.execute("pragma synchronous = full")
    bare.execute("create table r (id text primary key, owner text, text text, payload text, vector blob)")
    made, vectors = records("a", ROUNDS), random_vectors(ROUNDS)
    ours: list[float] = []
    theirs: list[float] = []
    async with opened_store(f"{folder}/single.db") as store:
        await store.records.add(records("b", 1), Vectors(embedder="bench", values=vectors[:1]), actor="bench")
        for number, record in enumerate(made):
            began = time.perf_counter()
            one = Vectors(embedder="bench", values=vectors[number : number + 1])
            await store.records.add([record], one, actor="bench")
            ours.append(time.perf_counter() - began)
            row = (record.id, record.owner, record.text, "{}", vectors[number].tobytes())
            began = time.perf_counter()
            with bare:
                bare.execute("insert into r values (?, ?, ?, ?, ?)", row)
            theirs.append(time.perf_counter() - began)
    bare.close()
    ratio = statistics.median(ours) / statistics.median(theirs)
    detail = {"ours, ms": 1e3 * statistics.median(ours), "bare, ms": 1e3 * statistics.median(theirs)}
    return [Result("single durable insert, against a bare one", ratio, "ratio", 1.5, False, detail)]


async def opening(folder: str) -> list[Result]:
    """Open a store of 100,000 records and search an owner of 1,000 of them."""
    async with opened_store(f"{folder}/open.db") as store:
        await fill(store, 99, 1000)
        await fill_more(store, 1000)
    seconds: list[float] = []
    for _ in range(7):
        began = time.perf_counter()
        async with opened_store(f"{folder}/open.db") as store:
            await timed(store, 5, random_vectors(1)[0])
            seconds.append(time.perf_counter() - began)
    return [Result("open 100,000 records, first search of 1,000", statistics.median(seconds), "seconds", 0.2, False)]


async def fill_more(store: Store, count: int) -> None:
    vectors = Vectors(embedder="bench", values=random_vectors(count))
    await store.records.add(records("last", count), vectors, actor="bench")


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


async def crowd(folder: str) -> list[Result]:
    """Eight processes that write 200 records each, with readers beside them."""
    path = f"{folder}/crowd.db"
    async with opened_store(path) as store:
        await store.records.owners()
    spawn = multiprocessing.get_context("spawn")
    crew = [spawn.Process(target=writer, args=(path, i)) for i in range(8)]
    crew += [spawn.Process(target=reader, args=(path, i)) for i in range(2)]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    failed = sum(process.exitcode != 0 for process in crew)
    async with opened_store(path) as store:
        kept = sum(sum(kinds.values()) for kinds in (await store.records.owners()).values())
    return [
        Result("8 processes x 200 writes with readers: processes that failed", failed, "processes", 0, False),
        Result("8 processes x 200 writes with readers: records kept", kept, "records", 1600, True),
    ]


async def forgetting(folder: str) -> list[Result]:
    """Forget 10,000 records of one owner; what another exports stays the same to the byte."""
    async with opened_store(f"{folder}/forget.db") as store:
        await fill(store, 2, 10_000)
        before = [line async for line in store.records.export(owner(1))]
        began = time.perf_counter()
        count = await store.records.forget(owner(0), actor="bench")
        seconds = time.perf_counter() - began
        same = before == [line async for line in store.records.export(owner(1))]
    assert count == 10_000
    return [
        Result("forget 10,000 records", seconds, "seconds", 2, False),
        Result("forgetting leaves another's export as it was", float(same), "of 1", 1, True),
    ]


def results(count: int = 1_000_000) -> list[Result]:
    """All of them."""
    found: list[Result] = []
    for part in (single, opening, crowd, forgetting, against_rivals):
        with tempfile.TemporaryDirectory() as folder:
            found += asyncio.run(part(folder))
    with tempfile.TemporaryDirectory() as folder:
        found += asyncio.run(filtered(count, folder))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    found = results(chosen.records)
    if chosen.json:
        print(json.dumps({r.name: {"figure": r.figure, "unit": r.unit, "met": r.met, **r.detail} for r in found}))
    else:
        for result in found:
            print(
                f"{'ok    ' if result.met else 'MISSED'} {result.name}: {result.figure:.3g} {result.unit}",
                result.detail,
            )
    return 0 if all(result.met for result in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
