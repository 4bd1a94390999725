"""run and resume: what is printed, written and stored."""

import asyncio
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli.conftest import Cli, Endpoint
from support import act

from memeplex import Agent, Team
from memeplex.cli import models as cli_models
from memeplex.models.testing import FunctionModel
from memeplex.storage import open_store, opened_store
from memeplex.teams import MaxTurns, RunResult, read_team


def stored(url: object, run: str) -> Any:
    async def read() -> Any:
        store = open_store(str(url))
        try:
            return await store.run(run), await store.turns(run), await store.versions(run)
        finally:
            await store.aclose()

    return asyncio.run(read())


def test_the_case_study_ends_with_its_document(cli: Cli, record: Callable[..., str], home: Path) -> None:
    model = record("data-pipeline")
    said = cli("run", "data-pipeline", "--model", model, "--out", "results")
    assert said.code == 0
    for part in ("## Summary", "## Plan", "## Resources", "## Specification", "onsensus was reached", "memory update"):
        assert part in said.out
    assert f"Written by {model}" in said.out and "Traceback" not in said.err
    lines = said.err.splitlines()
    assert any(line.startswith("turn 1 of at most 40, BOA (discussion): ") for line in lines)
    assert any(line.startswith("  memory of BOA, version 1, updated: ") for line in lines)
    names = {"design.md", "document.json", "specification.json", "transcript.jsonl", "memories.json", "run.json"}
    assert {path.name for path in Path("results").iterdir()} == names
    document = json.loads(Path("results/document.json").read_text())
    jsonschema.validate(document, read_team("data-pipeline").output or {})
    assert json.loads(Path("results/specification.json").read_text()) == document["specification"]
    whole = json.loads(Path("results/run.json").read_text())
    assert len(Path("results/transcript.jsonl").read_text().splitlines()) == whole["turns"]
    assert json.loads(Path("results/memories.json").read_text()) == whole["memories"]


def test_a_moderated_run_that_meets_its_limit_gives_the_last_proposal(
    cli: Cli, record: Callable[..., str], home: Path
) -> None:
    """Turn 7 is the integrator's; the two after it are about the proposal, and none themselves."""
    limited = home / "limited.yaml"
    library = files("memeplex.teams").joinpath("library/data-pipeline.yaml").read_text("utf-8")
    limited.write_text(library.replace("max_turns: 40", "max_turns: 10"))
    flags = (limited, "--model", record(limited))
    told = cli("run", *flags, "--json", "--out", "results").json
    assert told["outcome"]["status"] == "no_consensus" and told["turns"] == 10 and told["document"] is None
    proposal = told["outcome"]["details"]["proposal"]
    assert (told["answer"], told["answer_kind"]) == (proposal, "proposal")
    turns = [json.loads(line) for line in Path("results/transcript.jsonl").read_text().splitlines()]
    assert [turn["speaker"] for turn in turns if turn["content"] == proposal] == ["KIA"]
    marked = f"## Last proposal, not agreed on\n\n{proposal}\n"
    assert Path("results/design.md").read_text() == f"# data-pipeline\n\n{marked}"
    shown = cli("run", *flags)
    assert shown.out.startswith(marked) and "limit: this is the last proposal, and no document" in shown.out
    assert cli("run", *flags, "--quiet").out == marked


def test_a_team_that_reaches_its_limit_has_ended_as_it_should(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    """Exit code 5 is for a task that is longer than the context alone."""
    team.write_text(f"{team.read_text()}  max_tokens: 1\n")
    told = cli("run", team, "--model", endpoint.model, "--json")
    assert told.code == 0 and told.json["outcome"]["details"]["reason"] == "max_tokens" and told.json["turns"] == 1
    assert cli("run", team, "Dig. " * 9000, "--model", endpoint.model).code == 5


def test_json_is_one_object_and_nothing_else(process: Cli, duo: tuple[str, ...]) -> None:
    said = process("run", *duo, "--json", "--store", "runs.db")
    assert said.code == 0
    told = said.json
    assert told["status"] == "finished" and told["outcome"]["status"] == "completed" and told["document"] is None
    assert told["answer"].startswith("B decides: ") and told["answer_kind"] == "message"
    assert told["turns"] == 4 and set(told["memories"]) == {"A", "B"}
    assert told["usage"]["total"]["calls"] == sum(u["calls"] for u in told["usage"]["by_purpose"].values())
    assert set(told["usage"]["by_purpose"]) == {"answer", "memory update"}
    assert told["cached_share"] == 0 and told["memory_share"] == 0 and told["seconds"] > 0
    assert told["model"] == duo[2]
    run, turns, _ = stored("runs.db", told["run"])
    assert run.status == "finished" and len(turns) == 4


def test_quiet_is_the_result_alone(cli: Cli, duo: tuple[str, ...]) -> None:
    said = cli("run", *duo, "--quiet")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("B decides: ") and said.out.count("\n") == 1


def test_overrides_are_part_of_the_stored_team(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    team.write_text(team.read_text().replace("role: You plan.", "role: You plan.\n    memory: none"))
    flags = ("--memory", "intrinsic,mode=notes,policy=always", "--template", "generic", "--seed", 7, "--max-turns", 2)
    said = cli(
        "run", team, "Dig.", "--model", endpoint.model, *flags, "--layout", "paper", "--sequential", "--json",
        "--store", "o.db",
    )  # fmt: skip
    run, turns, versions = stored("o.db", said.json["run"])
    assert said.code == 0 and run.seed == 7 and run.task.text == "Dig." and len(turns) == 2
    spec = run.spec
    assert spec["memory"] == {"kind": "intrinsic", "mode": "notes", "policy": "always"}
    assert spec["agents"][0]["memory"] == "none" and spec["agents"][1]["memory"] is None
    assert (spec["layout"], spec["overlap"], spec["template"]) == ("paper", False, "generic")
    assert spec["termination"]["max_turns"] == 2 and spec["model"] == endpoint.model
    assert {version.agent for version in versions} == {"B"}


def test_memory_none_is_for_all(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    team.write_text(team.read_text().replace("role: You plan.", "role: You plan.\n    memory: paper"))
    said = cli("run", team, "--model", endpoint.model, "--memory", "none", "--json", "--quiet")
    assert said.code == 0 and said.json["memories"] == {}
    assert set(said.json["usage"]["by_purpose"]) == {"answer"}


def test_a_template_on_the_command_line_comes_before_the_teams(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    plain = team.read_text()
    team.write_text(plain.replace("name: duo", "name: duo\ntemplate: generated"))
    flags = ("run", team, "--model", endpoint.model, "--store", "t.db", "--json", "--memory")
    run = cli(*flags, "intrinsic,template=generic").json
    assert "template" not in run["usage"]["by_purpose"]
    assert stored("t.db", run["run"])[0].spec["template"] is None
    told = cli("run", team, "--model", endpoint.model, "--template", "manual")
    assert told.code == 2 and "the template of A is manual, but it has no slots" in told.err
    assert "write slots for the agent" in told.err


def test_a_task_can_be_read_from_standard_input(process: Cli, endpoint: Endpoint, team: Path) -> None:
    said = process("run", team, "-", "--model", endpoint.model, "--store", "i.db", "--json", input="Dig a tünnel.\n")
    assert stored("i.db", said.json["run"])[0].task.text == "Dig a tünnel.\n"


def test_resume_of_a_finished_run_gives_the_same_result(cli: Cli, duo: tuple[str, ...], home: Path) -> None:
    first = cli("run", *duo, "--json").json
    (home / "cassette.jsonl").unlink()
    again = cli("resume", first["run"], "--json", "--out", "late")
    assert again.code == 0
    assert {**again.json, "seconds": 0} == {**first, "seconds": 0}
    assert Path("late/transcript.jsonl").exists()


def test_resume_of_a_run_from_python_shows_it_if_it_is_finished(cli: Cli) -> None:
    """Its team was not kept, which matters only as long as there is something to go on with."""
    agents = [Agent(name, role="You say.", model=FunctionModel(act)) for name in "AB"]
    team = Team(name="pair", agents=agents, termination=MaxTurns(2))

    async def run(**more: Any) -> RunResult:
        async with opened_store("p.db") as store:
            return await team.run("Dig.", store=store, **more)

    done, stopped = asyncio.run(run()), asyncio.run(run(stop=lambda: True))
    told = cli("resume", done.run, "--store", "p.db", "--out", "results")
    assert told.code == 0 and told.out.startswith("B decides: ") and "conversation is complete" in told.out
    assert json.loads(Path("results/run.json").read_text())["spec"] == {}
    told = cli("resume", stopped.run, "--store", "p.db")
    assert told.code == 2 and "its team was not kept" in told.err and "Team.resume()" in told.err


def test_the_model_of_the_settings_is_for_teams_that_name_none(
    cli: Cli, duo: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    team, _, model = duo
    monkeypatch.setenv("MEMEPLEX_MODEL", model)
    monkeypatch.setenv("MEMEPLEX_STORE", "env.db")
    assert cli("run", team, "--json").json["model"] == model
    assert Path("env.db").exists()
    Path(team).write_text(f"model: recorded:elsewhere\n{Path(team).read_text()}")
    assert "elsewhere" in cli("run", team).err


def test_the_key_comes_from_the_variable_that_the_file_names(
    cli: Cli, endpoint: Endpoint, team: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / "config" / "memeplex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[models."openai:fake"]\nbase_url = "{endpoint.url}/v1"\nkey_env = "MY_KEY"\nbody = {{top_p = 1}}'
    )
    said = cli("run", team, "--model", "openai:fake")
    assert said.code == 2 and "MY_KEY" in said.err and endpoint.requests == []
    monkeypatch.setenv("MY_KEY", "sesame")
    assert cli("run", team, "--model", "openai:fake").code == 0
    assert endpoint.requests[0]["authorization"] == "Bearer sesame" and endpoint.requests[0]["top_p"] == 1


@pytest.mark.parametrize(
    ("written", "configured", "plain"),
    [("", 0.2, 0.7), ("temperature: 0.9\n", 0.9, 0.9), ("temperature: null\n", 0.2, None)],
)
def test_the_temperature_of_a_models_settings_comes_after_the_team_file_and_before_its_default(
    cli: Cli, endpoint: Endpoint, team: Path, home: Path, written: str, configured: float, plain: float | None
) -> None:
    config = home / "config" / "memeplex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[models."{endpoint.model}"]\ntemperature = 0.2')
    team.write_text(written + team.read_text().replace("You doubt.", "You doubt.\n    temperature: 1.5"))
    flags = ("--memory", "none", "--max-turns", 2)
    assert cli("run", team, "--model", endpoint.model, *flags).code == 0
    assert cli("run", team, "--model", f"{endpoint.url}/v1#other", *flags).code == 0
    assert [request.get("temperature") for request in endpoint.requests] == [configured, 1.5, plain, 1.5]


def test_no_key_is_asked_for_where_none_is_needed(
    cli: Cli, endpoint: Endpoint, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/v1")
    assert cli("run", team, "--model", "openai:fake").code == 0
    assert endpoint.requests[0]["authorization"] is None


def test_a_key_for_openai_goes_to_no_other_endpoint(
    cli: Cli, endpoint: Endpoint, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    assert cli("run", team, "--model", endpoint.model).code == 0
    assert {request["authorization"] for request in endpoint.requests} == {None}


def test_missing_weights_are_fetched_first(cli: Cli, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pull(name: str, *, progress: Callable[[int, int, str], None]) -> Path:
        asked.append(name)
        progress(1, 2, "a source")
        return Path("x")

    monkeypatch.setattr(cli_models, "pull", pull)
    said = cli("run", team, "--model", "local:qwen2.5-coder-0.5b")
    assert asked == ["qwen2.5-coder-0.5b"]
    assert said.code == 3 and "fetching local:qwen2.5-coder-0.5b" in said.err and said.out == ""


def test_the_sentence_about_a_small_model(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    small = f"{endpoint.url}/v1#tiny-0.5b"
    assert f"Written by {small}, a small model: read it as a demonstration, not as advice." in (
        cli("run", team, "--model", small).out
    )


def test_a_moderated_run_that_ends_before_any_proposal_says_so(
    cli: Cli, record: Callable[..., str], home: Path
) -> None:
    limited = home / "limited.yaml"
    library = files("memeplex.teams").joinpath("library/data-pipeline.yaml").read_text("utf-8")
    limited.write_text(library.replace("max_turns: 40", "max_turns: 3"))
    model = record(limited)
    told = cli("run", limited, "--model", model)
    assert "no proposal was made" in told.out and "Last proposal" not in told.out
    assert cli("run", limited, "--model", model, "--json").json["answer_kind"] == "message"
