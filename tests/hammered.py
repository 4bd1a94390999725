"""Writes records until it is killed, or to the end: ``hammered.py STORE OWNER COUNT``; says each id once it is kept."""

import asyncio
import sys
from pathlib import Path

from memeplex.storage import Query, Record
from memeplex.storage.sqlite import SQLiteStore

STORE, OWNER, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])


async def main() -> None:
    store = SQLiteStore(Path(STORE))
    for number in range(COUNT):
        record = Record(owner=OWNER, kind="fact", text=f"Fact {number} of {OWNER}.")
        await store.records.add([record], actor=OWNER)
        print(record.id, flush=True)
        if number % 10 == 0:
            await store.records.search(Query(owners=(OWNER,), text="fact"))
    await store.aclose()


asyncio.run(main())
