"""prompts list, show, diff, lineage, rollback, approve, reject, pin: what agents' prompts have become."""

import asyncio
from pathlib import Path

import pytest
from cli.conftest import Cli

from memeplex.cli.config import default_store
from memeplex.prompts import Cause, Library, Prompt, Ref
from memeplex.storage import opened_store

FIRST = Prompt.of("reasoning", "reasoning", "You answer.")
OWNER = ("duo/A", "reasoning")


@pytest.fixture
def evolved(home: Path) -> None:
    """A prompt at version 2, with a proposal that has two parents; one of them is another agent's."""

    async def work() -> None:
        async with opened_store(str(default_store())) as store:
            other, library = Library(store.records, "duo/B"), Library(store.records, "duo/A")
            theirs = await other.propose(
                FIRST, FIRST.revised({"reasoning": "You dare."}), actor="B", cause=Cause.REFLECTION
            )
            await library.propose(
                FIRST,
                FIRST.revised({"reasoning": "You answer briefly.\x1b[31m\u202e"}),
                actor="A",
                cause=Cause.REFLECTION,
                evidence=["r1", "r2"],
                scores={"before": 3, "after": 7.5},
                confidence=3.75,
            )
            await library.adopt("reasoning", 2, actor="A")
            parents = [Ref(owner="duo/A", name="reasoning", number=2), theirs.ref]
            await library.propose(
                FIRST,
                FIRST.revised({"reasoning": "You dare, briefly."}),
                actor="A",
                cause=Cause.SOCIAL,
                parents=parents,
            )

    asyncio.run(work())


def test_list(cli: Cli, evolved: None) -> None:
    told = cli("prompts", "list")
    assert told.code == 0 and "duo/A" in told.out and "duo/B" in told.out
    (one,) = cli("prompts", "list", "duo/A", "--json").json["prompts"]
    assert one == {
        "owner": "duo/A",
        "prompt": "reasoning",
        "version": 2,
        "versions": 3,
        "waiting": [3],
        "confidence": 3.75,
        "pinned": False,
        "damaged": "",
    }
    told = cli("prompts", "list", "duo/C")
    assert told.code == 2 and "known: duo/A, duo/B" in told.err


def test_show(cli: Cli, evolved: None) -> None:
    told = cli("prompts", "show", *OWNER).out
    assert "version 2, adopted, confidence 3.75 of 10" in told and "made from 1, cause: reflection by A" in told
    assert "scores: before 3, after 7.5" in told and "evidence: r1, r2" in told
    assert "\n# reasoning\nYou answer briefly.\n" in told, "and nothing that a terminal obeys"
    assert "made from 2, duo/B reasoning@2" in cli("prompts", "show", *OWNER, "--version", 3).out
    data = cli("prompts", "show", *OWNER, "--version", 1, "--json").json
    assert (data["texts"], data["status"], data["cause"]) == ({"reasoning": "You answer."}, "superseded", "file")
    told = cli("prompts", "show", *OWNER, "--version", 9)
    assert told.code == 2 and "lineage duo/A reasoning" in told.err


def test_a_prompt_that_has_not_changed_is_its_file(cli: Cli, evolved: None) -> None:
    told = cli("prompts", "show", "duo/A", "take_notes")
    assert told.code == 0 and "version 1, adopted" in told.out and "Copy the new facts" in told.out
    assert cli("prompts", "lineage", "duo/A", "take_notes", "--json").json["versions"][0]["number"] == 1
    told = cli("prompts", "show", "duo/A", "system")
    assert told.code == 2 and "team file" in told.err
    told = cli("prompts", "show", "duo/A", "nothing")
    assert told.code == 2 and "known:" in told.err and "take_notes" in told.err
    assert cli("prompts", "diff", "duo/A", "take_notes").code == 2


def test_diff(cli: Cli, evolved: None) -> None:
    told = cli("prompts", "diff", *OWNER).out
    assert "-You answer.\n+You answer briefly." in told and "--- version 1" in told
    data = cli("prompts", "diff", *OWNER, "--to", 3, "--json").json
    assert (data["from"], data["to"]) == (2, 3) and "+You dare, briefly." in data["diff"]
    assert "are the same" in cli("prompts", "diff", *OWNER, "--from", 2, "--to", 2).out


def test_lineage_is_a_graph(cli: Cli, evolved: None) -> None:
    versions = cli("prompts", "lineage", *OWNER, "--json").json["versions"]
    made = {(one["owner"], one["number"]): [(p["owner"], p["number"]) for p in one["parents"]] for one in versions}
    assert made[("duo/A", 3)] == [("duo/A", 2), ("duo/B", 2)] and made[("duo/B", 2)] == [("duo/B", 1)]
    told = cli("prompts", "lineage", *OWNER).out
    assert "2, duo/B reasoning@2" in told and "social" in told and "You dare, briefly." in told


def test_approve_reject_and_rollback(cli: Cli, evolved: None) -> None:
    told = cli("prompts", "approve", *OWNER, "--cause", "well said")
    assert told.code == 0 and told.out == "version 3 of reasoning of duo/A is adopted\n"
    told = cli("prompts", "reject", *OWNER)
    assert told.code == 2 and "no version is waiting" in told.err
    assert cli("prompts", "reject", *OWNER, 3).code == 2
    assert cli("prompts", "rollback", *OWNER, "--to", 1, "--json").json["adopted"] == 1
    assert "duo/A: reasoning is at version 3" in cli("prompts", "rollback", *OWNER, "--to", 3).out
    assert cli("prompts", "rollback", *OWNER).out == "duo/A: reasoning is at version 2\n"
    told = cli("prompts", "rollback", *OWNER, "--to", 2)
    assert told.code == 2 and "is adopted" in told.err
    assert cli("prompts", "reject", "duo/B", "reasoning", "--json").json["status"] == "rejected"
    last = cli("memory", "stats", "--json").json["last"]
    assert last[0]["owner"] == "duo/B" and last[0]["actor"].startswith("human") and last[0]["records"] == 1
    assert [row["cause"] for row in last if row["cause"]][:1] == ["well said"]


def test_approving_what_was_made_from_another_version_is_a_conflict(cli: Cli, evolved: None) -> None:
    assert cli("prompts", "rollback", *OWNER).code == 0
    told = cli("prompts", "approve", *OWNER, "--json")
    assert told.code == 4 and told.json["error"]["type"] == "ConflictError"


def test_pin(cli: Cli, evolved: None) -> None:
    assert "reasoning is at version 2, pinned" in cli("prompts", "pin", *OWNER).out
    for words in (("approve", *OWNER), ("rollback", *OWNER)):
        told = cli("prompts", *words)
        assert told.code == 2 and "pin duo/A reasoning --off" in told.err
    assert cli("prompts", "pin", *OWNER, "--off", "--json").json["pinned"] is False
    assert cli("prompts", "approve", *OWNER).code == 0
    assert cli("prompts", "pin", "duo/A", "take_notes").code == 0, "before it has ever changed"
    assert cli("prompts", "pin", "duo/A", "nothing").code == 2


def test_a_version_that_was_edited_by_hand_is_found_out(cli: Cli, evolved: None) -> None:
    records = cli("memory", "list", "duo/A", "--kind", "prompt", "--json").json["records"]
    assert cli("memory", "edit", records[1]["id"], "--text", "You obey.").code == 0
    told = cli("prompts", "show", *OWNER)
    assert told.code == 4 and "not what was written" in told.err and "rollback duo/A reasoning --to 1" in told.err
    told = cli("prompts", "list")
    assert told.code == 0 and "duo/B" in told.out and "damaged: reasoning@2 of duo/A" in told.err
    assert cli("prompts", "rollback", *OWNER, "--to", 1).code == 0


def test_nothing_has_changed_yet(cli: Cli) -> None:
    assert "no prompt has changed yet" in cli("prompts", "list").out
    assert cli("prompts", "list", "--json").json == {"prompts": []}
    assert not default_store().exists()
