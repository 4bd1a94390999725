"""A damaged file of a store: noticed, kept, and put in order with all that is whole and nothing that never was."""

import asyncio
import random
import shutil
import sqlite3
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from storage.test_files import names
from storage.test_runs import python, run, version
from support import turn

from memeplex.embeddings import create_embedder
from memeplex.errors import StorageError, StoreVersionError
from memeplex.messages import Outcome
from memeplex.storage import Job, Provenance, Query, Record, Vectors
from memeplex.storage.sqlite import SQLiteStore, opening
from memeplex.storage.sqlite.checking import faults_of
from memeplex.storage.sqlite.locks import guard
from memeplex.storage.sqlite.opening import connect, under_repair
from memeplex.storage.sqlite.pages import Pages
from memeplex.storage.sqlite.repair import Repair, repair
from memeplex.storage.sqlite.salvage import shapes

PAGE = 4096
RUNS, TURNS = 12, 9
OWNERS = ("duo/A", "duo/B", "trio/A")


@dataclass
class Kept:
    """All that a store holds."""

    runs: dict[str, Any] = field(default_factory=dict)
    turns: dict[str, list[Any]] = field(default_factory=dict)
    versions: dict[str, list[Any]] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)
    jobs: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def kept(path: Path) -> Kept:
    """All of it, read as commands read it."""
    return asyncio.run(_kept(path))


async def _kept(path: Path) -> Kept:
    store, held = SQLiteStore(path), Kept()
    found = await store.runs(limit=1000)
    assert not found.damaged
    for one in found:
        held.runs[one.id] = one
        held.turns[one.id] = list(await store.turns(one.id))
        held.versions[one.id] = list(await store.versions(one.id))
    for owner in await store.records.owners():
        held.records |= {record.id: record for record in await store.records.page(owner, limit=10**6)}
    held.jobs = await store.jobs.jobs(limit=1000)
    held.lines = [line async for line in store.records.export()]
    await store.records.audit(limit=10**6)
    await store.aclose()
    return held


async def fill(path: Path) -> None:
    store, rnd = SQLiteStore(path), random.Random(7)
    embedder = create_embedder("hashing")

    def text(about: str) -> str:
        return f"{about}: " + " ".join(rnd.choice(("zed", "ledger", "Brücke", "steel", "paper")) for _ in range(60))

    for n in range(RUNS):
        name = f"run-{n:02}"
        await store.add_run(run(name, spec={"name": "duo", "agents": ["A", "B"]}))
        for i in range(TURNS):
            speaker = "AB"[i % 2]
            # One is longer than a page.
            await store.add_turn(name, turn(i, speaker, text(f"{name} {i}") * (30 if i == 4 else 1)))
            await store.add_version(name, version(speaker, i, version=i, content={"notes": [text(str(i))]}))
        status = ("finished", "interrupted")[n % 2]
        await store.end_run(name, status, Outcome(status="completed") if status == "finished" else None)
    for owner in OWNERS:
        said = [text(f"{owner} {n}") for n in range(60)]
        records = [Record(owner=owner, kind="note", text=t, provenance=Provenance(author=owner[-1])) for t in said]
        vectors = Vectors(embedder=embedder.id, values=await embedder.embed(said, kind="passage"))
        await store.records.add(records, vectors, actor="test")
        changed = records[3].model_copy(update={"text": text("edited")})
        await store.records.edit(changed, actor="test")
        await store.records.forget(owner, [records[5].id], actor="test")
        await store.jobs.enqueue(Job(kind="learn", owner=owner, key="1"))
    await store.aclose()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "m.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A copy of a whole store, in a folder of its own."""
    folder = tmp_path / "kept"
    folder.mkdir()
    shutil.copy(whole, folder / "m.db")
    return folder / "m.db"


def pages_of(path: Path, name: str) -> list[int]:
    """The pages of a table or an index, in no particular order."""
    with path.open("rb") as file:
        pages = Pages(file, path.with_name("none"))
        found = [pages.named[name]]
        for number in found:
            if pages.page(number)[0] in (2, 5):
                found += pages._children(number)
        return found


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def zero(path: Path, page: int) -> None:
    overwrite(path, (page - 1) * PAGE, bytes(PAGE))


def holds_what_it_says(path: Path, before: Kept, told: Repair) -> Kept:
    """It is whole, holds nothing that was not there, and no run that a resume would make nonsense of."""
    assert faults_of(path) == []
    after = kept(path)
    assert told.saved["runs"] == len(after.runs) and told.saved["records"] == len(after.records)
    assert told.saved["turns"] == sum(map(len, after.turns.values()))
    assert set(after.runs) | set(told.runs) == set(before.runs) and not set(after.runs) & set(told.runs)
    for name, was in before.runs.items():
        if name not in after.runs:
            continue
        now, count = after.runs[name], len(after.turns[name])
        assert after.turns[name] == before.turns[name][:count]
        if now.status == "finished":
            assert (now, after.turns[name], after.versions[name]) == (was, before.turns[name], before.versions[name])
        for speaker in "AB":
            held = [v for v in after.versions[name] if v.agent == speaker]
            assert held == [v for v in before.versions[name] if v.agent == speaker][: len(held)]
            assert all(v.turn < count for v in held)
        if count < len(before.turns[name]) or len(after.versions[name]) < len(before.versions[name]):
            assert now.status == "interrupted" and now.outcome is None and told.cut[name] == count
    assert after.records.items() <= before.records.items()
    strange = [line for line in set(after.lines) - set(before.lines) if '"action":"repair"' not in line]
    assert not strange or told.lost["revisions"]
    return after


def found_by_words(path: Path) -> set[str]:
    async def found() -> set[str]:
        store = SQLiteStore(path)
        found = await store.records.search(Query(owners=OWNERS, text="zed ledger steel", limit=1000))
        await store.aclose()
        return {hit.record.id for hit in found.hits}

    return asyncio.run(found())


def in_use(path: Path, *runs: str) -> Path:
    """A copy of the store as a killed process leaves it: what was written last, these runs, is in the journal alone."""

    async def copied() -> Path:
        store = SQLiteStore(path)
        for name in runs:
            await store.add_run(run(name))
            await store.add_turn(name, turn(0, "A", "unmerged"))
        copy = path.parent / "copy" / "m.db"
        copy.parent.mkdir()
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{copy}{end}")
        await store.aclose()
        return copy

    return asyncio.run(copied())


# ---- what is whole


def test_a_whole_store_is_left_alone(path: Path) -> None:
    before, seen = path.read_bytes(), path.stat()
    assert repair(path) == Repair()
    assert path.read_bytes() == before and path.stat().st_ino == seen.st_ino
    assert names(path.parent) <= {"m.db", "m.db.lock"}


def test_what_is_still_in_the_journal_is_not_lost(path: Path) -> None:
    copy = in_use(path, "newest")
    zero(copy, pages_of(copy, "records_by_id")[-1])
    journal = Path(f"{copy}-wal").read_bytes()
    told = repair(copy)
    assert told.kept is not None and Path(f"{told.kept}-wal").read_bytes() == journal
    after = kept(copy)
    assert [t.content for t in after.turns["newest"]] == ["unmerged"] and len(after.runs) == RUNS + 1
    assert not told.runs and not told.cut and not told.lost


def test_a_journal_that_is_cut_off_or_spoilt_counts_up_to_there(path: Path) -> None:
    copy = in_use(path, "new-0", "new-1", "new-2")
    journal = copy.with_name("m.db-wal")
    data = bytearray(journal.read_bytes())
    frames = (len(data) - 32) // (PAGE + 24)
    data[32 + (frames - 1) * (PAGE + 24) + 100] ^= 1
    journal.write_bytes(data)
    zero(copy, pages_of(copy, "records_by_id")[-1])
    repair(copy)
    after = kept(copy)
    assert {"new-0", "new-1", "new-2"} <= set(after.runs)
    assert not after.turns["new-2"] and len(after.turns["new-1"]) == 1


# ---- damage


TABLES = ("runs", "turns", "memory_versions", "records", "revisions", "vectors", "jobs", "owners", "audit")
INDEXES = ("sqlite_autoindex_runs_1", "records_by_author", "vectors_by_change")
WORDS = ("words_data", "words_idx", "words_docsize", "words_config")


@pytest.mark.parametrize("name", [*TABLES, *INDEXES, *WORDS])
def test_a_page_of_zeros(path: Path, whole: Path, name: str) -> None:
    before = kept(whole)
    for place in (0, -1):
        damaged = path.with_name(f"{place}.db")
        shutil.copy(path, damaged)
        zero(damaged, pages_of(damaged, name)[place])
        spoilt = damaged.read_bytes()
        told = repair(damaged)
        assert told.faults and told.kept is not None and told.kept.read_bytes() == spoilt
        if name in TABLES[-2:]:
            # Whose the records were, and what was done when, is what was on the page.
            assert faults_of(damaged) == [] and set(kept(damaged).records) == set(before.records)
            continue
        after = holds_what_it_says(damaged, before, told)
        assert found_by_words(damaged) == set(after.records)
        if name in (*INDEXES, *WORDS):
            assert after == before and not told.lost and not told.cut
        if name != "runs":
            assert len(after.runs) == RUNS


def test_every_page_but_one_at_a_time(path: Path, whole: Path) -> None:
    """Whatever page is lost, most of the store is there afterwards."""
    before = kept(whole)
    count = path.stat().st_size // PAGE
    for page in range(1, count + 1, max(1, count // 24)):
        damaged = path.with_name(f"{page}.db")
        shutil.copy(path, damaged)
        zero(damaged, page)
        told = repair(damaged)
        if not told.faults:
            continue
        if told.owners:
            assert faults_of(damaged) == [] and set(kept(damaged).records) == set(before.records)
            continue
        after = holds_what_it_says(damaged, before, told)
        assert len(after.records) >= len(before.records) - 30 and len(told.cut) <= RUNS // 2


@pytest.mark.parametrize("where", ["magic", "page size", "version", "schema", "encoding", "root"])
def test_a_header_that_is_not_right(path: Path, whole: Path, where: str) -> None:
    before = kept(whole)
    at, data = {
        "magic": (0, bytes(16)),
        "page size": (16, b"\x02\x00"),
        "version": (60, b"\0\0\0\0"),
        "schema": (44, b"\0\0\0\x77"),
        "encoding": (56, b"\0\0\0\2"),
        "root": (100, bytes(PAGE - 100)),
    }[where]
    overwrite(path, at, data)
    told = repair(path)
    after = holds_what_it_says(path, before, told)
    assert after.turns == before.turns and after.records == before.records and after.versions == before.versions


def test_a_version_number_alone_that_is_not_right(path: Path, whole: Path) -> None:
    overwrite(path, 60, b"\0\0\0\x63")
    told = repair(path)
    assert "version" in told.faults[0] and kept(path) == kept(whole)


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off(path: Path, whole: Path, part: float) -> None:
    before = kept(whole)
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * part))
    try:
        told = repair(path)
    except StorageError as error:
        assert part < 0.1 and "nothing" in str(error)
        return
    assert told.lost or told.cut
    holds_what_it_says(path, before, told)


def test_a_journal_that_is_gone_leaves_what_was_merged(path: Path, whole: Path) -> None:
    copy = in_use(path, "newest")
    copy.with_name("m.db-wal").unlink()
    assert repair(copy) == Repair() and kept(copy) == kept(whole)


def test_a_file_that_was_emptied_does_not_throw_its_journal_away(path: Path) -> None:
    copy = in_use(path, "newest")
    copy.write_bytes(b"")
    journal = copy.with_name("m.db-wal").read_bytes()
    with pytest.raises(StorageError, match="is empty, but") as caught:
        kept(copy)
    assert "doctor --repair" in caught.value.remedy and copy.with_name("m.db-wal").read_bytes() == journal
    repair(copy)
    assert "newest" in kept(copy).runs


@pytest.mark.parametrize("seed", range(30))
def test_bits_that_have_flipped(path: Path, whole: Path, seed: int) -> None:
    """What is on the flipped byte may be lost or read otherwise; nothing else may."""
    before, rnd = kept(whole), random.Random(seed)
    for _ in range(1 + seed % 3):
        at = rnd.randrange(path.stat().st_size)
        overwrite(path, at, bytes([path.read_bytes()[at] ^ (1 << rnd.randrange(8))]))
    told = repair(path)
    assert faults_of(path) == []
    after = kept(path)
    assert len(after.runs) >= RUNS - 6 and len(after.records) >= len(before.records) - 30, told
    for name, now in after.runs.items():
        same = len(set(map(str, after.turns[name])) & set(map(str, before.turns.get(name, ()))))
        assert same >= len(after.turns[name]) - 3
        if now.status == "finished":
            assert len(after.turns[name]) == TURNS or name not in before.turns


# ---- what is whole for the database, and cannot be read


def execute(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def test_rows_that_cannot_be_read_go_and_hurt_only_their_own_run(path: Path, whole: Path) -> None:
    before = kept(whole)
    execute(
        path,
        "update turns set body = '{}' where run = 'run-02' and idx = 3",
        "update turns set body = '{}' where run = 'run-03' and idx = 8",
        "update memory_versions set body = '{}' where run = 'run-04' and turn = 2",
        "update runs set outcome = '{}' where id = 'run-06'",
        "update runs set task = '{}' where id = 'run-08'",
        "update records set payload = '[]' where num = 7",
        "update jobs set attempts = -1, payload = '[]' where owner = 'duo/A'",
        "update audit set actor = '' where id = 1",
    )
    told = repair(path)
    after = holds_what_it_says(path, before, told)
    assert told.cut == {"run-02": 3, "run-03": 8, "run-04": TURNS, "run-06": TURNS} and told.runs == ("run-08",)
    assert [v.turn for v in after.versions["run-04"] if v.agent == "A"] == [0]
    assert len(after.records) == len(before.records) - 1 == len(found_by_words(path)) and len(after.jobs) == 2
    assert repair(path) == Repair()


def test_without_its_template_a_memory_is_made_again(path: Path) -> None:
    async def with_templates() -> None:
        store = SQLiteStore(path)
        for agent in "AB":
            await store.add_version("run-00", version(agent, -1, version=0, content={"goals": ["what to reach"]}))
        await store.aclose()

    asyncio.run(with_templates())
    execute(
        path,
        "delete from memory_versions where run = 'run-00' and agent = 'A' and turn < 0",
        "update memory_versions set body = '{}' where run = 'run-00' and agent = 'B' and turn = 7",
    )
    repair(path)
    assert [(v.agent, v.turn) for v in kept(path).versions["run-00"]] == [("B", turn) for turn in (-1, 1, 3, 5)]


def test_what_was_forgotten_stays_so(path: Path, whole: Path) -> None:
    """With the header, the list of free pages is lost, and with it what tells deleted rows from others."""
    before = kept(whole)

    async def forget() -> None:
        store = SQLiteStore(path)
        await store._call(lambda db: db.execute("pragma secure_delete = off").fetchall())
        assert await store.records.forget("trio/A", actor="test") == 59
        await store.aclose()

    asyncio.run(forget())
    overwrite(path, 0, bytes(100))
    repair(path)
    after = kept(path)
    assert set(after.records) == {name for name, record in before.records.items() if record.owner != "trio/A"}


# ---- whose tables are whose


def test_no_two_tables_and_no_index_look_alike(whole: Path) -> None:
    known = shapes(connect(None))
    tables = {shape.table for shape in known}
    assert tables == {*TABLES, "embedders"}
    with whole.open("rb") as file:
        pages, count = Pages(file, whole.with_name("none")), 0
        for name, root in pages.named.items():
            for row in pages.walk(root):
                assert row is not None, name
                fitting = [shape.table for shape in known if shape.values(row) is not None]
                assert fitting == ([name] if name in tables else []), (name, row)
                count += 1
    assert count > 1000


# ---- one at a time

OPEN = """
import asyncio, sys
from pathlib import Path
from memeplex.storage.sqlite import SQLiteStore, opening

async def main():
    store = SQLiteStore(Path(sys.argv[1]))
    print(len(await store.runs()), flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def test_a_store_that_is_used_is_not_repaired(path: Path) -> None:
    zero(path, pages_of(path, "words_data")[-1])
    before = path.read_bytes()
    child = python(OPEN, path, stdin=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == f"{RUNS}\n"
    with pytest.raises(StorageError, match="another process is using it") as caught:
        repair(path)
    assert caught.value.remedy and path.read_bytes() == before and not under_repair(path).exists()
    child.communicate()
    assert repair(path).faults


def test_who_opens_a_store_under_repair_waits_and_gets_the_new_one(path: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    shutil.copy(path, whole)
    zero(path, pages_of(path, "runs")[0])
    with guard(path):
        under_repair(path).mkdir()
        child = python(OPEN, path, stdin=subprocess.PIPE)
        whole.replace(path)
        under_repair(path).rmdir()
    out, _ = child.communicate()
    assert (child.returncode, out) == (0, f"{RUNS}\n")


def test_who_has_opened_the_old_file_opens_the_new_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([(1, 1), (1, 2), (1, 2), (1, 2)])
    monkeypatch.setattr(opening, "_identity", lambda path: next(seen))
    connect(path).close()
    assert next(seen, None) is None


def test_what_a_killed_repair_leaves_is_in_nobodys_way(path: Path) -> None:
    under_repair(path).mkdir()
    (under_repair(path) / "new.db").write_text("half")
    assert len(kept(path).runs) == RUNS
    zero(path, pages_of(path, "words_data")[-1])
    told = repair(path)
    assert told.kept and names(path.parent) == {"m.db", "m.db.lock", told.kept.name}


def test_a_repair_that_fails_at_the_end_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*about: object) -> None:
        raise OSError(28, "No space left on device")

    zero(path, pages_of(path, "words_data")[-1])
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageError, match="No space"):
        repair(path)
    assert path.read_bytes() == before and not under_repair(path).exists()


def test_a_repaired_store_has_the_mode_of_the_old(path: Path) -> None:
    zero(path, pages_of(path, "words_data")[-1])
    path.chmod(0o640)
    told = repair(path)
    assert told.kept and {stat.S_IMODE(one.stat().st_mode) for one in (path, told.kept)} == {0o640}


# ---- what is none


def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    notes, other, newer = (tmp_path / name for name in ("notes.txt", "other.db", "newer.db"))
    notes.write_text("dear diary " * 2000)
    execute(other, "create table bookmarks (a text, b integer)", "insert into bookmarks values ('x', 1)")
    execute(newer, "create table runs (a)", "pragma user_version = 99")
    for path, error in ((notes, StorageError), (other, StorageError), (newer, StoreVersionError)):
        before = path.read_bytes()
        with pytest.raises(error) as caught:
            repair(path)
        assert caught.value.remedy and path.read_bytes() == before
    with pytest.raises(StorageError, match="no store at"):
        repair(tmp_path / "missing.db")
    assert {name for name in names(tmp_path) if not name.endswith(".lock")} == {"notes.txt", "other.db", "newer.db"}
