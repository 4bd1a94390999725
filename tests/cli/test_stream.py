"""run --tasks: a stream of tasks, what is learnt on the way, and going on where it stopped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, Endpoint, said

TASKS = [
    {"text": "Book the invoice of Smith.", "type": "invoice", "expect": "zed"},
    {"text": "Book the invoice of Jones.", "type": "invoice", "expect": ["zed", "ZED"]},
    {"text": "Order paper.", "type": "order", "expect": "alpha"},
]


@pytest.fixture
def tasks(home: Path) -> Path:
    path = home / "tasks.jsonl"
    path.write_text("\n".join(json.dumps(task) for task in TASKS) + "\n\n")
    return path


@pytest.fixture
def able(endpoint: Endpoint) -> Endpoint:
    """Says zed to everything, and has a lesson and a procedure to give."""

    def reply(body: dict[str, Any], number: int) -> Any:
        wanted = body.get("response_format", {}).get("json_schema", {}).get("name")
        made = {
            "Lessons": {"lessons": ["Call zed for invoices."]},
            "Strategy": {"title": "Invoices", "strategy": "Call zed.", "tools": [], "failures": []},
        }
        return said(json.dumps(made[wanted]) if wanted else f"I call zed {number}.")

    endpoint.reply = reply
    return endpoint


Run = Callable[..., Any]


@pytest.fixture
def stream(cli: Cli, team: Path, tasks: Path, able: Endpoint) -> Run:
    memory = "lifelong,embedder=hashing,every=2"

    def run(*more: object) -> Any:
        return cli("run", team, "--tasks", tasks, "--model", able.model, "--memory", memory, *more)

    return run


def test_a_stream_is_worked_through_and_remembered(cli: Cli, stream: Run, able: Endpoint) -> None:
    told = stream("--topology", "hybrid", "--json")
    assert told.code == 0
    assert [task["success"] for task in told.json["tasks"]] == [True, True, False]
    assert told.json["finished"] and told.json["usage"]["by_purpose"]["lesson"]["calls"] == 6
    owners = cli("memory", "list", "--json").json["owners"]
    assert owners["duo"] == {"experience": 6, "procedure": 1} and owners["duo/A"]["episode"] == 3
    prompts = [body["messages"][-1]["content"] for body in able.requests]
    assert not any("<experience>" in prompt for prompt in prompts[:4])
    assert any("Call zed for invoices." in prompt.partition("The task:")[0] for prompt in prompts)


def test_people_get_a_table(stream: Run) -> None:
    told = stream()
    assert told.code == 0 and "2 of 3 succeeded" in told.out and "Order paper." in told.out


def test_a_stream_goes_on_where_it_stopped(cli: Cli, stream: Run, able: Endpoint) -> None:
    working = able.reply

    def failing(body: dict[str, Any], number: int) -> Any:
        return working(body, number) if number < 9 else (400, {"error": {"message": "broken"}})

    able.reply = failing
    told = stream()
    assert told.code == 3 and "broken" in told.err and "--stream " in told.err
    name = told.err.partition("--stream ")[2].split()[0]
    able.reply = working
    done = stream("--stream", name, "--json").json
    assert done["stream"] == name and [task["success"] for task in done["tasks"]] == [True, True, False]
    assert len(cli("runs", "--json").json["runs"]) == 3
    before = len(able.requests)
    assert stream("--stream", name, "--json").json["tasks"] == done["tasks"] and len(able.requests) == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no task"),
        ("{", "tasks.jsonl:1: this is no task"),
        ('{"a": 1}', "tasks.jsonl:1: there is no text"),
        ('{"text": "x"}\n[1]', "tasks.jsonl:2"),
        ('{"text": " "}', "tasks.jsonl:1"),
    ],
)
def test_a_file_that_is_no_stream(stream: Run, tasks: Path, text: str, says: str) -> None:
    tasks.write_text(text)
    told = stream()
    assert told.code == 2 and says in told.err and "remedy" in told.err


def test_what_does_not_go_together(cli: Cli, team: Path, tasks: Path) -> None:
    assert "leave them out" in cli("run", team, "a task", "--tasks", tasks).err
    assert "--tasks FILE" in cli("run", team, "--stream", "x").err
    assert "has no topology" in cli("run", team, "--topology", "local").err
    assert cli("run", team, "--tasks", "none.jsonl").code == 2


def test_a_stream_of_other_tasks_is_not_gone_on_with(stream: Run, tasks: Path) -> None:
    name = stream("--json").json["stream"]
    tasks.write_text('{"text": "Something else."}')
    told = stream("--stream", name)
    assert told.code == 2 and "not the one" in told.err


def test_the_paper_has_no_topology_and_no_embedder(cli: Cli, team: Path) -> None:
    for option in ("--topology", "local"), ("--embedder", "hashing"):
        told = cli("run", team, "--memory", "paper", *option)
        assert told.code == 2 and "--memory lifelong" in told.err
