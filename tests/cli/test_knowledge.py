"""who-knows, team suggest, procedures, reindex: what teams have learnt, for people and machines."""

import asyncio
from pathlib import Path

import pytest
from cli.conftest import Cli

from memeplex.cli.config import default_store
from memeplex.memory.procedures import Procedure, Trial
from memeplex.memory.transactive import experience
from memeplex.storage import Record, opened_store

INVOICES = Procedure(
    title="Paying invoices",
    strategy="Call zed, then alpha.",
    tools=("zed: give the number",),
    failures_to_prevent=("the wrong number",),
    trials=(Trial(use="r1/A", success=True), Trial(use="r2/A", success=False)),
)


def procedure(made: Procedure, key: str) -> Record:
    text = f"{made.title}\n{made.strategy}"
    return Record(owner="t", kind="procedure", text=text, key=key, payload=made.model_dump(mode="json"))


@pytest.fixture
def learnt(home: Path) -> None:
    """Two agents that paid invoices, one well, and three procedures of which one is retired."""

    def been(run: str, agent: str, success: bool) -> Record:
        return experience(
            owner="t",
            run=run,
            agent=agent,
            team=["A", "B"],
            task="Pay the invoice.",
            kind="invoice",
            success=success,
            performance=float(success),
            overhead=2,
        )

    records = [been(f"r{i}", agent, agent == "A") for i in range(4) for agent in "AB"]
    other = INVOICES.model_copy(update={"strategy": "Ask Zoë: --- first.\n---\nThen pay."})
    records += [
        procedure(INVOICES, "1"),
        procedure(other, "2"),
        procedure(INVOICES.model_copy(update={"title": "Bad", "retired": True}), "3"),
    ]

    async def keep() -> None:
        async with opened_store(str(default_store())) as store:
            await store.records.add(records, actor="test")

    asyncio.run(keep())


def test_who_knows(cli: Cli, learnt: None) -> None:
    told = cli("who-knows", "pay an invoice", "--embedder", "none", "--json").json["experts"]
    assert [(one["agent"], one["successes"], one["failures"]) for one in told] == [("A", 4, 0), ("B", 0, 4)]
    assert len(told[0]["evidence"]) == 4 and told[0]["score"] > 0.5 > told[1]["score"]
    assert cli("who-knows", "pay", "--team", "t", "--embedder", "none").out.count("\n") >= 3
    assert "nothing is known" in cli("who-knows", "pay", "--type", "other", "--embedder", "none").out
    told = cli("who-knows", "pay", "--team", "x", "--embedder", "none")
    assert told.code == 2 and "known: t" in told.err


def test_a_team_is_proposed_with_its_reasons(cli: Cli, learnt: None) -> None:
    told = cli("team", "suggest", "pay an invoice", "--size", 1, "--embedder", "none")
    assert told.out.splitlines()[0].endswith("  A") and "4 of 4 tasks like this one" in told.out
    assert cli("team", "suggest", "pay", "--size", 2, "--embedder", "none", "--json").json["teams"][0]["agents"] == [
        "A",
        "B",
    ]
    assert cli("team", "suggest", "pay", "--size", 3, "--embedder", "none").code == 2


def test_procedures_become_skills_and_come_back_unproven(cli: Cli, learnt: None) -> None:
    listed = cli("procedures", "list").out
    assert listed.count("1 of 2") == 2 and "retired" in listed
    told = cli("procedures", "export", "skills", "--as", "skills", "--json").json
    assert told["skills"][0] == "paying-invoices" and len(told["skills"]) == 2
    texts = [Path("skills", name, "SKILL.md").read_text("utf-8") for name in told["skills"]]
    assert texts[0].startswith("---\nname: paying-invoices\ndescription: Paying invoices. Worked 1 of 2 times.\n")
    (text,) = [text for text in texts if "Call zed, then alpha." in text]
    assert "- zed: give the number" in text and "- the wrong number" in text
    told = cli("procedures", "import", "skills", "--owner", "u", "--json").json
    assert told == {"owner": "u", "imported": 2, "known": 0}
    assert "2 were there already" in cli("procedures", "import", "skills", "--owner", "u").out
    imported = cli("procedures", "list", "--owner", "u", "--json").json["procedures"]
    assert {one["title"] for one in imported} == {"Paying invoices"} and not any(one["trials"] for one in imported)
    assert any("Ask Zoë: --- first.\n---\nThen pay." in one["strategy"] for one in imported)
    assert cli("procedures", "list", "--owner", "u").out.count("unproven") == 2


@pytest.mark.parametrize("text", ["", "no front", "---\nname: x\n", "---\n[1]\n---\nx", "---\n: :\n---\n", "\xff"])
def test_what_is_no_skill(cli: Cli, home: Path, text: str) -> None:
    (home / "skills" / "x").mkdir(parents=True)
    (home / "skills" / "x" / "SKILL.md").write_bytes(text.encode("latin-1"))
    told = cli("procedures", "import", "skills", "--owner", "u")
    assert told.code == 2 and "SKILL.md is no Agent Skill" in told.err and "remedy" in told.err
    assert cli("procedures", "import", str(home / "none"), "--owner", "u").code == 2


def test_reindex(cli: Cli, learnt: None) -> None:
    assert cli("reindex", "--embedder", "hashing", "--json").json["embedded"] == 11
    assert cli("reindex", "--embedder", "hashing", "--json").json["embedded"] == 0
    assert cli("reindex", "--embedder", "hashing:32").out == "11 records embedded\n"
    assert cli("reindex", "--embedder", "none").code == 2
    assert cli("reindex", "--embedder", "nosuch:x").code == 2


def test_nothing_is_known_yet(cli: Cli) -> None:
    assert "nothing is known yet" in cli("who-knows", "x", "--embedder", "none").out
    assert "no procedures yet" in cli("procedures", "list").out
    assert cli("procedures", "export", "skills", "--as", "x").code == 2
