"""memory list, search, record, edit, forget, purge, export, import, stats: records for people and machines."""

import asyncio
from pathlib import Path

import pytest
from cli.conftest import Cli
from days import live, tiers, user

from memeplex.cli.config import default_store
from memeplex.storage import Provenance, Record, opened_store


@pytest.fixture
def kept(home: Path) -> list[str]:
    """Three records of two owners in the default store; their ids."""
    records = [
        Record(owner="t/A", kind="episode", text="Steel for the 橋.", provenance=Provenance(run="r1", author="A")),
        Record(owner="t/A", kind="procedure", text="Granite for piers."),
        Record(owner="t", kind="procedure", text="Steel decks.", payload={"title": "Decks"}),
    ]

    async def keep() -> None:
        async with opened_store(str(default_store())) as store:
            for record in records:
                await store.records.add([record], actor="test")

    asyncio.run(keep())
    return [record.id for record in records]


def test_owners_and_what_they_keep(cli: Cli, kept: list[str]) -> None:
    told = cli("memory", "list")
    assert told.code == 0 and "t/A" in told.out and "1 episode, 1 procedure" in told.out
    assert cli("memory", "list", "--json").json["owners"]["t"] == {"procedure": 1}
    told = cli("memory", "list", "t/A", "--kind", "episode")
    assert kept[0] in told.out and kept[1] not in told.out
    first = cli("memory", "list", "t/A", "--limit", 1)
    assert f"--after {kept[0]}" in first.err
    assert kept[1] in cli("memory", "list", "t/A", "--after", kept[0], "--json").out
    told = cli("memory", "list", "t/B")
    assert told.code == 2 and "no owner of records named 't/B'" in told.err and "known: t, t/A" in told.err


def test_search(cli: Cli, kept: list[str]) -> None:
    hits = cli("memory", "search", "steel", "--json").json["hits"]
    assert {hit["record"]["id"] for hit in hits} == {kept[0], kept[2]}
    assert kept[0] in cli("memory", "search", "橋").out
    assert kept[0] not in cli("memory", "search", "steel", "--owner", "t").out
    assert cli("memory", "search", "wood").out == "nothing was found\n"
    assert cli("memory", "search", "steel", "--owner", "x").code == 2


def test_a_record_and_its_history(cli: Cli, kept: list[str]) -> None:
    told = cli("memory", "edit", kept[2], "--text", "Iron decks.", "--trust", 0.5, "--cause", "heard so")
    assert told.code == 0 and "revision 2" in told.out
    shown = cli("memory", "record", kept[2]).out
    assert "Iron decks." in shown and "trust 0.5" in shown and "title: Decks" in shown
    assert "from run r1, author A" in cli("memory", "record", kept[0]).out
    history = cli("memory", "record", kept[2], "--history", "--json").json["changes"]
    assert [change["record"]["text"] for change in history] == ["Steel decks.", "Iron decks."]
    assert history[1]["origin"]["cause"] == "heard so" and history[1]["origin"]["actor"].startswith("human")
    told = cli("memory", "record", "none")
    assert told.code == 2 and "no record named 'none'" in told.err and "memory list" in told.err
    assert cli("memory", "record", "none", "--history").code == 2
    assert "--text" in cli("memory", "edit", kept[2]).err
    assert cli("memory", "edit", kept[2], "--text", " ").code == 2


def test_forget_keeps_the_history_and_purge_does_not(cli: Cli, kept: list[str]) -> None:
    told = cli("memory", "forget", "t/A")
    assert told.code == 2 and "--all" in told.err
    assert cli("memory", "forget", "t/A", kept[0], "--json").json == {"owner": "t/A", "forgotten": 1}
    assert kept[0] not in cli("memory", "list", "t/A").out
    assert "forget" in cli("memory", "record", kept[0], "--history").out
    assert cli("memory", "purge", "t/A", "--all", "--json").json == {"owner": "t/A", "purged": 2}
    assert cli("memory", "record", kept[0], "--history").code == 2
    assert "橋".encode() not in b"".join(path.read_bytes() for path in default_store().parent.iterdir())
    assert cli("memory", "forget", "t/A", "--all").code == 2, "there is no such owner any more"
    assert kept[2] in cli("memory", "list", "t").out


def test_export_and_import(cli: Cli, kept: list[str], home: Path) -> None:
    cli("memory", "edit", kept[0], "--text", "Iron\u2028for it.")
    told = cli("memory", "export")
    assert told.code == 0 and "3 records exported" in told.err
    assert cli("memory", "export", "--out", "all.jsonl").code == 0
    assert Path("all.jsonl").read_text("utf-8") == told.out
    first = cli("memory", "import", "all.jsonl", "--store", "new.db", "--json").json
    assert first == {"imported": 3, "known": 0}
    assert cli("memory", "export", "--store", "new.db").out == told.out
    assert "3 were there already" in cli("memory", "import", "all.jsonl", "--store", "new.db").out
    Path("cut.jsonl").write_text(told.out[: len(told.out) // 2], "utf-8")
    told = cli("memory", "import", "cut.jsonl", "--store", "other.db")
    assert told.code == 2 and "line" in told.err and "nothing was imported" in told.err
    for path in ("none.jsonl", str(home)):
        assert cli("memory", "import", path).code == 2
    assert cli("memory", "export", "--out", str(home)).code == 2
    assert cli("memory", "export", "nobody").code == 2


def test_stats(cli: Cli, kept: list[str]) -> None:
    told = cli("memory", "stats").out
    assert "2 owners; 1 episode, 2 procedure" in told and "jobs: none" in told and "add" in told
    assert cli("memory", "stats", "--json").json["records"] == {"episode": 1, "procedure": 2}


def test_conflicts(cli: Cli, home: Path) -> None:
    told = cli("memory", "conflicts", "A")
    assert told.code == 2 and "memeplex run TEAM --memory tiers" in told.err

    async def live_through(*teams: str) -> None:
        async with opened_store(str(default_store())) as store:
            for of in teams:
                for number, size in enumerate(("small", "large", "vast")):
                    said = f"The budget of the bridge is {size}."
                    await live(tiers(store, of=of, embedder="none"), (f"{of}{number}", [user(said)]))
            await live(tiers(store, of="t", name="B", embedder="none"), ("c", [user("The length of it is great.")]))

    asyncio.run(live_through("t"))
    told = cli("memory", "conflicts", "A")
    rows = [line for line in told.out.splitlines() if "0.80" in line]
    assert told.code == 0 and [size for row in rows for size in row.split() if size in ("small", "large", "vast")] == [
        "vast",
        "large",
        "small",
    ]
    assert rows[0].startswith("the bridge  has budget") and all(row.startswith("  ") for row in rows[1:])
    assert cli("memory", "conflicts", "t/A").out == told.out
    found = cli("memory", "conflicts", "A", "--json").json
    (conflict,) = found["conflicts"]
    assert found["owner"] == "t/A" and (conflict["subject"], conflict["predicate"]) == ("the bridge", "has budget")
    assert conflict["current"]["payload"]["object"] == "vast" and conflict["current"]["payload"]["valid_until"] is None
    assert [other["payload"]["object"] for other in conflict["others"]] == ["large", "small"]
    assert all(other["payload"]["valid_until"] for other in conflict["others"])
    told = cli("memory", "conflicts", "B")
    assert told.code == 0 and told.out == "nothing in the memories of t/B contradicts anything else there\n"
    told = cli("memory", "conflicts", "C", "--json")
    assert told.code == 2 and "t/A" in told.json["error"]["remedy"]
    asyncio.run(live_through("u"))
    told = cli("memory", "conflicts", "A")
    assert told.code == 2 and "t/A, u/A" in told.err and "give TEAM/AGENT" in told.err
    assert "vast" in cli("memory", "conflicts", "u/A").out


def test_nothing_is_kept_yet(cli: Cli) -> None:
    assert "nothing is kept yet" in cli("memory", "list").out
    assert not default_store().exists()
