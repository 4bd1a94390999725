"""memory catch-up: what failing models and killed processes have left over is seen, and made up."""

import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, Endpoint, said
from cli.test_interrupt import finish, running, until

from memeplex.cli.config import default_store

TEAM = """\
name: duo
task: Build a bridge.
memory: {kind: lifelong, embedder: hashing, every: 2, grouped_from: 0}
agents: [{name: A, role: You plan.}, {name: B, role: You doubt.}]
termination: {max_turns: 2}
"""
STRATEGY = {"title": "Bridges", "strategy": "Ask zed.", "tools": [], "failures": []}


def wanted(body: dict[str, Any]) -> str:
    """The schema that a request names."""
    name: str = body.get("response_format", {}).get("json_schema", {}).get("name", "")
    return name


def able(body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
    made = {"Lessons": {"lessons": [f"Ask zed for number {number}."]}, "Strategy": STRATEGY}
    return said(json.dumps(made[wanted(body)]) if wanted(body) else f"I call zed {number}.")


def dull(body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
    """Speaks, but has no lesson."""
    return able(body, number) if not wanted(body) else (400, {"error": {"message": "no lesson today"}})


@pytest.fixture
def team(home: Path) -> Path:
    path = home / "duo.yaml"
    path.write_text(TEAM)
    return path


@pytest.fixture
def left(cli: Cli, team: Path, endpoint: Endpoint) -> Callable[..., str]:
    """A run whose lessons have failed; gives its id."""

    def run(*more: object) -> str:
        endpoint.reply = dull
        told = cli("run", team, "--model", endpoint.model, "--json", *more)
        assert told.code == 0
        endpoint.reply = able
        endpoint.requests.clear()
        name: str = told.json["run"]
        return name

    return run


def pass_time(store: Path | str = "") -> None:
    """As if the waits of all jobs were over."""
    with sqlite3.connect(store or default_store()) as db:
        db.execute("update jobs set due = due - 10000, lease = lease - 10000")
    db.close()


def asked(endpoint: Endpoint) -> list[str]:
    return [wanted(body) for body in endpoint.requests]


def test_the_backlog_can_be_seen(cli: Cli, left: Any) -> None:
    left()
    told = cli("memory", "stats")
    assert "jobs: 2 queued" in told.out and "HTTP 400" in told.out and "memeplex memory catch-up" in told.out
    backlog = cli("memory", "stats", "--json").json["backlog"]
    assert [(job["owner"], job["kind"], job["state"], job["tries"]) for job in backlog] == [
        ("duo/A", "lessons", "queued", 1),
        ("duo/B", "lessons", "queued", 1),
    ]
    assert all("no lesson today" in job["error"] and job["due"] for job in backlog)


def test_the_backlog_is_made_up_and_its_cost_is_kept(cli: Cli, left: Any, endpoint: Endpoint) -> None:
    run = left()
    told = cli("memory", "catch-up", "--json")
    assert told.code == 3 and told.json["done"] == 0 and len(told.json["left"]) == 2, "it is not time yet"
    pass_time()
    told = cli("memory", "catch-up", "duo")
    assert told.code == 0 and told.out.startswith("2 jobs done, 0 left; ") and asked(endpoint) == ["Lessons"] * 2
    assert cli("memory", "stats", "--json").json["backlog"] == []
    usage = cli("show", run, "--json").json["usage"]["by_purpose"]
    assert usage["lesson"]["calls"] == 2 and usage["lesson"]["input"] > 0
    assert cli("memory", "catch-up").out == "nothing is left to do\n"
    assert cli("memory", "catch-up", "--json").json["finished"] is True and len(asked(endpoint)) == 2


def test_what_has_failed_waits_and_again_does_not(cli: Cli, left: Any, endpoint: Endpoint) -> None:
    left()
    endpoint.reply = dull
    for _ in range(2):
        pass_time()
        assert cli("memory", "catch-up").code == 3
    told = cli("memory", "catch-up")
    assert "0 jobs done, 2 left" in told.out and "failed" in told.out and "memeplex memory catch-up --again" in told.err
    endpoint.reply = able
    told = cli("memory", "catch-up", "--again", "--json").json
    assert told["done"] == 2 and told["finished"] and told["usage"]["by_purpose"]["lesson"]["calls"] == 2


def test_procedures_are_made_up_after_the_lessons_with_another_model(
    cli: Cli, left: Any, endpoint: Endpoint, team: Path
) -> None:
    """Also what nobody has lived to ask for."""
    for _ in range(2):
        left("--topology", "shared")
    with sqlite3.connect(default_store()) as db:
        db.execute("delete from jobs")
    db.close()
    told = cli("memory", "catch-up", "--model", f"{endpoint.url}/v1#other", "--json").json
    assert told["done"] == 5 and told["finished"]
    assert asked(endpoint) == ["Lessons"] * 4 + ["Strategy"]
    assert {body["model"] for body in endpoint.requests} == {"other"}
    roles = [body["messages"] for body in endpoint.requests]
    assert len(roles) == 5 and len(cli("procedures", "list", "--json").json["procedures"]) == 1


def test_only_the_team_that_is_named(cli: Cli, left: Any, team: Path, endpoint: Endpoint) -> None:
    left()
    team.write_text(TEAM.replace("name: duo", "name: t/o"))
    left()
    pass_time()
    assert cli("memory", "catch-up", "t/o", "--json").json["done"] == 2
    assert {job["owner"] for job in cli("memory", "stats", "--json").json["backlog"]} == {"duo/A", "duo/B"}
    told = cli("memory", "catch-up", "none")
    assert told.code == 2 and "no team with a lifelong memory named 'none'" in told.err and "known: duo" in told.err


def test_a_model_that_cannot_be_had(cli: Cli, left: Any) -> None:
    left()
    told = cli("memory", "catch-up", "--model", "nosuch")
    assert told.code == 2 and "no model named 'nosuch'" in told.err
    assert len(cli("memory", "stats", "--json").json["backlog"]) == 2


def test_a_refused_key_is_met_once_for_each_owner_and_not_for_each_job(cli: Cli, left: Any, endpoint: Endpoint) -> None:
    for _ in range(3):
        left()
    pass_time()
    endpoint.reply = lambda body, number: (401, {"error": {"message": "who are you?"}})
    told = cli("memory", "catch-up", "--json")
    assert told.code == 3 and len(endpoint.requests) == 2
    assert sum("who are you?" in job["error"] for job in told.json["left"]) == 2


def test_a_team_from_python_is_told_where_to_go_on(cli: Cli, left: Any) -> None:
    run = left()
    with sqlite3.connect(default_store()) as db:
        db.execute("update runs set spec = '{}'")
    db.close()
    told = cli("memory", "catch-up")
    assert told.code == 0 and told.err.count(f"Team.catch_up('{run}', …)") == 2


def test_nothing_was_ever_kept(cli: Cli) -> None:
    told = cli("memory", "catch-up")
    assert told.code == 0 and told.out == "nothing is left to do\n" and not default_store().exists()


def lessons(cli: Cli, run: str) -> int:
    """How many calls for lessons are counted to a run."""
    calls: int = cli("show", run, "--json").json["usage"]["by_purpose"]["lesson"]["calls"]
    return calls


def test_lessons_of_a_killed_run_are_made_up_at_once(cli: Cli, team: Path, endpoint: Endpoint) -> None:
    """Its lease need not be waited for: whoever holds the run is the only one at work on it."""
    endpoint.reply, endpoint.hold = able, 4
    with running("run", team, "--model", endpoint.model) as going:
        assert endpoint.arrived.wait(30)
        assert "is being worked on" in cli("memory", "catch-up").err
        going.kill()
        finish(going)
    (held,) = cli("memory", "stats", "--json").json["backlog"]
    assert (held["owner"], held["state"]) == ("duo/B", "running")
    run = cli("runs", "--json").json["runs"][0]["id"]
    assert lessons(cli, run) == 1, "what A's lessons have cost is not lost with the process"
    endpoint.hold = None
    endpoint.released.set()
    assert cli("memory", "catch-up", "--json").json["done"] == 1 and lessons(cli, run) == 2
    assert cli("resume", run, "--json").json["status"] == "finished" and lessons(cli, run) == 2


@pytest.mark.parametrize("signals", [1, 2])
def test_it_can_be_stopped_and_goes_on(cli: Cli, left: Any, endpoint: Endpoint, signals: int) -> None:
    for _ in range(2):
        left("--store", "c.db")
    pass_time("c.db")
    endpoint.hold = 2
    with running("memory", "catch-up", "--store", "c.db", "--json") as going:
        assert endpoint.arrived.wait(30)
        going.send_signal(signal.SIGINT)
        line = until(going, "go on with: ")
        if signals == 2:
            going.send_signal(signal.SIGINT)
        else:
            endpoint.released.set()
        code, out, err = finish(going)
    endpoint.hold = None
    endpoint.released.set()
    assert "memeplex memory catch-up --store c.db" in line and "Traceback" not in err
    stopped = json.loads(out)
    assert code == 130 and not stopped["finished"] and stopped["done"] == 3 - signals
    told = cli("memory", "catch-up", "--store", "c.db", "--json").json
    assert told["finished"] and stopped["done"] + told["done"] == 6, "four lessons, and a procedure for each"
