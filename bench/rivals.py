"""Other vector stores, asked over a pipe: ``python bench/rivals.py KIND VECTORS.npy OWNERS`` in .venv-bench.

Loads the vectors, an equal share for each owner, then answers every line ``OWNER NUMBER`` (search by that vector) with
the seconds that it took and the ids that it found, as JSON.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def sqlite_vec(vectors: np.ndarray, owners: int, folder: str) -> Callable[[int, np.ndarray], list[int]]:
    """The owner is the partition key, as its documentation advises."""
    import apsw
    import sqlite_vec as extension

    db = apsw.Connection(f"{folder}/x.db")
    db.enable_load_extension(True)
    db.load_extension(extension.loadable_path())
    db.execute("pragma journal_mode = wal")
    dimension = vectors.shape[1]
    db.execute(f"create virtual table v using vec0(owner integer partition key, e float[{dimension}])")
    share = len(vectors) // owners
    with db:
        db.executemany(
            "insert into v (rowid, owner, e) values (?, ?, ?)",
            ((i, i // share, vector.tobytes()) for i, vector in enumerate(vectors)),
        )

    def search(owner: int, vector: np.ndarray) -> list[int]:
        sql = "select rowid from v where e match ? and k = 10 and owner = ? order by distance"
        return [row[0] for row in db.execute(sql, (vector.tobytes(), owner))]

    return search


def lancedb(vectors: np.ndarray, owners: int, folder: str) -> Callable[[int, np.ndarray], list[int]]:
    """Exact search with a filter that is applied first."""
    import lancedb as lance
    import pyarrow as arrow

    share = len(vectors) // owners
    flat = arrow.array(vectors.reshape(-1), arrow.float32())
    data = arrow.table(
        {
            "id": np.arange(len(vectors)),
            "owner": np.arange(len(vectors)) // share,
            "vector": arrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    )
    table = lance.connect(folder).create_table("v", data)

    def search(owner: int, vector: np.ndarray) -> list[int]:
        found = table.search(vector).where(f"owner = {owner}", prefilter=True).limit(10).to_arrow()
        return [int(i) for i in found["id"].to_pylist()]

    return search


KINDS: dict[str, Any] = {"sqlite-vec": sqlite_vec, "lancedb": lancedb}

if __name__ == "__main__":
    kind, path, owners = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    vectors = np.load(path)
    with tempfile.TemporaryDirectory() as folder:
        search = KINDS[kind](vectors, owners, folder)
        print("ready", flush=True)
        for line in sys.stdin:
            owner, number = map(int, line.split())
            began = time.perf_counter()
            found = search(owner, vectors[number])
            print(json.dumps([time.perf_counter() - began, found]), flush=True)
