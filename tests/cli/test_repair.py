"""A damaged store on the command line: one line with the remedy from every command, and the remedy itself."""

import json
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from cli.conftest import Cli
from cli.test_bad_input import refused

from memeplex.storage.sqlite.pages import Pages

PAGE = 4096
COMMANDS = (
    ("runs",),
    ("show", "RUN", "--turns", "--tokens", "--memory", "A"),
    ("resume", "RUN"),
    ("memory", "show", "A"),
    ("memory", "list", "duo/A"),
    ("memory", "search", "bridge", "--owner", "duo/A"),
    ("memory", "stats"),
    ("memory", "export", "duo/A"),
    ("procedures", "list"),
    ("who-knows", "Build a bridge."),
    ("reindex", "--embedder", "hashing"),
)


@pytest.fixture
def store(cli: Cli, duo: tuple[str, ...]) -> Path:
    """A store with two finished runs and some records."""
    for _ in range(2):
        assert cli("run", *duo, "--store", "m.db").code == 0
    record = {"owner": "duo/A", "kind": "note", "text": "a bridge of steel"}
    origin = {"actor": "test", "action": "add"}
    Path("lines.jsonl").write_text(json.dumps({"format": 1, "history": [{"origin": origin, "record": record}]}) + "\n")
    assert cli("memory", "import", "lines.jsonl", "--store", "m.db").code == 0
    assert cli("reindex", "--embedder", "hashing", "--store", "m.db").code == 0
    return Path("m.db")


def newest(store: Path) -> str:
    with sqlite3.connect(store) as db:
        (run,) = db.execute("select id from runs order by id desc limit 1").fetchone()
    db.close()
    return str(run)


def root(store: Path, name: str) -> int:
    with store.open("rb") as file:
        return Pages(file, store.with_name("none")).named[name]


def zero(store: Path, page: int) -> None:
    with store.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(bytes(PAGE))


def test_every_command_works_on_a_whole_store(cli: Cli, store: Path) -> None:
    run = newest(store)
    for command in COMMANDS:
        told = cli(*(run if word == "RUN" else word for word in command), "--store", store)
        assert told.code == 0, (command, told)


@pytest.mark.parametrize("damage", ["header", "short", "garbage"])
def test_every_command_on_a_damaged_store_names_the_remedy(cli: Cli, store: Path, damage: str) -> None:
    run = newest(store)
    data = store.read_bytes()
    store.write_bytes(
        {"header": bytes(100) + data[100:], "short": data[: len(data) // 2], "garbage": b"\xa5" * len(data)}[damage]
    )
    for command in (*COMMANDS, ("run", "panel", "x", "--model", "recorded:none")):
        told = cli(*(run if word == "RUN" else word for word in command), "--store", store)
        refused(told, 4, "m.db", remedy="memeplex doctor --repair --store m.db")


def test_no_command_stumbles_over_flipped_bits(cli: Cli, store: Path) -> None:
    run, whole = newest(store), store.read_bytes()
    # A small file is half empty.
    used = [at for at, byte in enumerate(whole) if byte]
    for seed in range(30):
        rnd, data = random.Random(seed), bytearray(whole)
        for _ in range(8):
            data[rnd.choice(used)] ^= 1 << rnd.randrange(8)
        for command in COMMANDS:
            store.write_bytes(data)
            told = cli(*(run if word == "RUN" else word for word in command), "--store", store)
            assert told.code in (0, 2, 4) and "Traceback" not in told.err, (seed, command, told)
            assert told.code != 4 or "doctor --repair" in told.err or "upgrade" in told.err, (seed, command, told)
        store.write_bytes(data)
        told = cli("doctor", "--repair", "--store", store)
        assert told.code == 0 or "upgrade" in told.err, (seed, told)
        assert cli("runs", "--store", store).code == told.code, seed


def test_a_repair_tells_what_was_saved_and_lost(cli: Cli, store: Path) -> None:
    runs = [one["id"] for one in cli("runs", "--store", store, "--json").json["runs"]]
    with sqlite3.connect(store) as db:
        db.execute("update turns set body = '{}' where run = ? and idx = 2", (runs[0],))
    db.close()
    zero(store, root(store, "words_data"))
    shutil.copy(store, "again.db")
    told = cli("doctor", "--repair", "--store", store, "--json")
    report = told.json
    assert told.code == 0 and not report["whole"] and report["faults"] and report["lost_runs"] == []
    assert report["cut_runs"] == {runs[0]: 2} and report["lost"]["turns"] == 2 and report["saved"]["turns"] == 6
    assert Path(report["kept"]).read_bytes() == Path("again.db").read_bytes()
    told = cli("doctor", "--repair", "--store", "again.db")
    assert told.code == 0 and f"{runs[0]} (2 turns)" in told.out and "again.db.damaged-" in told.out
    assert f"memeplex resume {runs[0]} --store again.db" in told.out and "2 runs, 6 turns" in told.out
    told = cli("doctor", "--repair", "--store", "again.db")
    assert (told.code, told.out) == (0, "again.db is whole; nothing was changed\n")


def test_a_run_that_was_cut_back_goes_on(cli: Cli, store: Path) -> None:
    run = newest(store)
    before = cli("show", run, "--turns", "--store", store, "--json").json
    with sqlite3.connect(store) as db:
        db.execute("update turns set body = '{}' where run = ? and idx = 1", (run,))
    db.close()
    refused(cli("show", run, "--store", store), 4, "turn", remedy="doctor --repair")
    assert cli("doctor", "--repair", "--store", store).code == 0
    shown = cli("show", run, "--store", store, "--json").json
    assert (shown["status"], shown["turns"], shown["outcome"]) == ("interrupted", 1, None)
    assert cli("resume", run, "--store", store).code == 0
    after = cli("show", run, "--turns", "--store", store, "--json").json
    assert [turn["content"] for turn in after["transcript"]] == [turn["content"] for turn in before["transcript"]]
    assert after["outcome"] == before["outcome"]


def test_doctor_sees_damage_that_no_list_of_runs_shows(cli: Cli, store: Path) -> None:
    zero(store, root(store, "records_by_author"))
    told = cli("doctor", "--model", "gpt", "--store", store, "--json")
    (check,) = [check for check in told.json["checks"] if check["what"] == "store"]
    assert (check["status"], check["needed"]) == ("fails", True) and "doctor --repair" in check["remedy"]
    assert cli("runs", "--store", store).code == 0


def test_what_cannot_be_repaired_is_told(cli: Cli) -> None:
    Path("notes.txt").write_text("dear diary " * 1000)
    refused(cli("doctor", "--repair", "--store", "notes.txt"), 4, "nothing in it", remedy="--store")
    refused(cli("doctor", "--repair", "--store", "typo.db"), 4, "no store at typo.db", remedy="--store")
    refused(cli("doctor", "--repair", "--store", "postgresql://x/y"), 2, "is no file", remedy="server")
    refused(cli("doctor", "--repair", "--model", "gpt"), 2, "--repair", remedy="--model")
