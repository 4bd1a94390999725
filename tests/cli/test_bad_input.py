"""What bad input gets: one line that names the thing, the remedy, an exit code of its own, and no traceback."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Cli, Endpoint, Said, command, said
from cli.test_run import stored
from storage.test_files import as_anybody

from memeplex.cli.output import tell_json
from memeplex.storage import open_store


def refused(told: Said, code: int, *words: str, remedy: str = "") -> None:
    """The whole shape of a failure."""
    assert told.code == code, told.err
    assert "Traceback" not in told.err + told.out
    errors = [line for line in told.err.splitlines() if line.startswith("error: ")]
    remedies = [line for line in told.err.splitlines() if line.startswith("remedy: ")]
    assert len(errors) == 1
    for word in words:
        assert word in errors[0]
    assert len(remedies) == bool(remedy)
    assert not remedy or remedy in remedies[0]


# ---- team files and wrong use


def test_a_team_that_is_not_there(cli: Cli) -> None:
    refused(cli("run", "data-pipelin"), 2, "data-pipelin", remedy="did you mean 'data-pipeline'?")
    refused(cli("run", "missing.yaml"), 2, "missing.yaml", "No such file", remedy="path of a team file")
    refused(cli("run", "a task where a team should stand " * 20), 2, "a task where", remedy="path of a team file")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: x\nagents: [\n", 3, "not valid YAML"),
        ("name: x\nagents:\n  - {name: A, role: r}\ncolour: red\n", 4, "unknown key 'colour'"),
        ("name: x\nagents:\n  - name: A\n    role: r\n    memory: nothing\n", 5, "no memory named 'nothing'"),
        ("name: x\nagents:\n  - {name: A, role: r}\nspeakers: loudest\n", 4, "loudest"),
        ("name: x\nname: y\n", 2, "stands twice"),
        ("a: &a [*a]\n", 0, "refers to itself"),
        ("[" * 5000, 0, "nested too deeply"),
        ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 20)), 0, "alias too often"),
        ("name: 2020-99-99\n", 0, "cannot be"),
        (f"name: {'9' * 5000}\n", 0, "cannot be"),
    ],
)
def test_a_malformed_team_file_is_named_with_its_line(cli: Cli, text: str, line: int, words: str) -> None:
    Path("bad.yaml").write_text(text)
    told = cli("run", "bad.yaml")
    refused(told, 2, f"error: bad.yaml:{line}: " if line else "error: bad.yaml: ", words, remedy=" ")


@pytest.mark.parametrize(
    ("flags", "words", "remedy"),
    [
        (("--model", "gpt"), "'gpt'", "PROVIDER:NAME"),
        (("--model", ""), "''", "PROVIDER:NAME"),
        (("--model", "http://[::1#x"), "address", "http(s)://host/v1#NAME"),
        (("--model", "recorded:."), "cannot be read", "recording"),
        (("--model", "local:nothing"), "'nothing'", "qwen2.5-coder-0.5b"),
        (("--model", "local:/no/such.gguf"), "/no/such.gguf", "GGUF"),
        (("--model", "openai:gpt-4.1"), "needs a key", "OPENAI_API_KEY"),
        (("--memory", "elephant"), "'elephant'", "intrinsic"),
        (("--memory", "intrinsic,mode"), "'mode' is not argument=value", ""),
        (("--memory", "intrinsic,mode=fast"), "mode", ""),
        (("--template", "paper"), "--template", "memeplex run --help"),
        (("--max-turns", "0"), "--max-turns", "memeplex run --help"),
        (("--seed", "-1"), "--seed", "memeplex run --help"),
        (("--colour",), "--colour", "memeplex run --help"),
        (("--store", "mysql://host"), "mysql", ""),
        (("--store", ""), "has no path", "PATH"),
        (("--out", "/dev/null/x"), "/dev/null/x", "--out"),
    ],
)
def test_an_option_that_cannot_be(cli: Cli, team: Path, flags: tuple[str, ...], words: str, remedy: str) -> None:
    told = cli("run", team, *flags)
    code = 3 if "needs a key" in words or ".gguf" in words else 2
    assert told.code == code and words in told.err and remedy in told.err and told.out == ""
    assert "Traceback" not in told.err and sum(line.startswith("error: ") for line in told.err.splitlines()) == 1


def test_a_team_without_a_task(cli: Cli, team: Path) -> None:
    team.write_text(team.read_text().replace("task: Build a bridge.\n", ""))
    refused(cli("run", team), 2, "no task", remedy="memeplex run")


def test_a_command_that_does_not_exist(cli: Cli) -> None:
    refused(cli("rum"), 2, "No such command 'rum'", "'run'", remedy="memeplex --help")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = 1", "unknown key 'colour'"),
        ('[models."openai:x"]\napi_key = "sesame"', "unknown key 'models.openai:x.api_key'"),
        ('[models."openai:x"]\nwindow = -1', "models.openai:x.window"),
        ("model = ", "not valid TOML"),
    ],
)
def test_a_configuration_file_that_is_not_right(cli: Cli, home: Path, text: str, words: str) -> None:
    config = home / "config" / "memeplex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(text)
    told = cli("run", "panel")
    refused(told, 2, "config.toml", words, remedy=" ")
    assert "sesame" not in told.err


# ---- stores


def test_a_store_of_a_newer_version(cli: Cli, duo: tuple[str, ...]) -> None:
    with sqlite3.connect("new.db") as db:
        db.execute("pragma user_version = 99")
    db.close()
    before = Path("new.db").read_bytes()
    refused(cli("run", *duo, "--store", "new.db"), 4, "new.db", "newer version", remedy="upgrade")
    refused(cli("runs", "--store", "new.db"), 4, "newer version", remedy="upgrade")
    assert Path("new.db").read_bytes() == before


@pytest.mark.parametrize("path", ["/dev/null/x.db", "/proc/nowhere/x.db", "."])
def test_a_store_in_an_impossible_place(cli: Cli, duo: tuple[str, ...], path: str) -> None:
    refused(cli("run", *duo, "--store", path), 4, "store", remedy="--store")


def test_a_file_that_is_no_database(cli: Cli, duo: tuple[str, ...]) -> None:
    Path("notes.txt").write_text("Not a database, but somebody's notes. " * 40)
    refused(cli("run", *duo, "--store", "notes.txt"), 4, "not a database", remedy="--store")
    assert Path("notes.txt").read_text().startswith("Not a database")


@pytest.mark.parametrize(
    "damage",
    ["update turns set body = '{}'", "update memory_versions set body = '{}'", "update runs set created = 'x'"],
)
def test_a_damaged_record(cli: Cli, duo: tuple[str, ...], damage: str) -> None:
    run = cli("run", *duo, "--store", "d.db", "--json").json["run"]
    with sqlite3.connect("d.db") as db:
        db.execute(damage)
    db.close()
    for verb in ("show", "resume"):
        refused(cli(verb, run, "--store", "d.db"), 4, "d.db", "cannot be read", remedy="damaged")


def test_a_damaged_run_is_named_beside_the_list_of_the_others(cli: Cli, duo: tuple[str, ...]) -> None:
    damaged, whole = (cli("run", *duo, "--store", "d.db", "--json").json["run"] for _ in range(2))
    with sqlite3.connect("d.db") as db:
        db.execute("update runs set spec = '[]' where id = ?", (damaged,))
    db.close()
    told = cli("runs", "--store", "d.db")
    assert told.code == 0 and whole in told.out and damaged not in told.out
    assert told.err == f"run {damaged} cannot be read; memeplex show {damaged} says why\n"
    listed = cli("runs", "--store", "d.db", "--json").json
    assert ([run["id"] for run in listed["runs"]], listed["damaged"]) == ([whole], [damaged])
    refused(cli("resume", damaged, "--store", "d.db"), 4, f"run {damaged} cannot be read", remedy="damaged")
    told = cli("doctor", "--store", "d.db", "--model", "gpt").out
    assert "1 runs cannot be read" in " ".join(told.split()) and damaged in told
    assert cli("memory", "show", "A", "--store", "d.db").code == 0
    with sqlite3.connect("d.db") as db:
        db.execute("update runs set spec = '[]'")
    db.close()
    assert "no runs that can be read" in cli("runs", "--store", "d.db").out
    refused(cli("memory", "show", "A", "--store", "d.db"), 4, f"run {whole} cannot be read", remedy="damaged")
    assert cli("run", *duo, "--store", "d.db").code == 0


def test_a_missing_turn(cli: Cli, duo: tuple[str, ...]) -> None:
    run = cli("run", *duo, "--store", "d.db", "--json").json["run"]
    with sqlite3.connect("d.db") as db:
        db.execute("delete from turns where idx = 1")
    db.close()
    for verb in ("show", "resume"):
        refused(cli(verb, run, "--store", "d.db"), 4, f"turn 1 of run {run} is missing", remedy="restore a copy")


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        (":memory:", 2, "keep nothing"),
        ("sqlite:///:memory:", 2, "keep nothing"),
        ("~nosuch/x.db", 2, "home folder"),
        ("x" * 300, 4, "too long"),
    ],
)
def test_a_store_of_an_impossible_name(
    cli: Cli, duo: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, path: str, code: int, words: str
) -> None:
    before = set(Path().rglob("*"))
    for arguments in (("runs",), ("show", "x"), ("resume", "x"), ("run", *duo), ("memory", "show", "A")):
        refused(cli(*arguments, "--store", path), code, words, remedy=" ")
    monkeypatch.setenv("MEMEPLEX_STORE", path)
    refused(cli("runs"), code, words, remedy=" ")
    assert set(Path().rglob("*")) == before


def test_a_store_that_cannot_be_written_is_read(process: Cli, cli: Cli, duo: tuple[str, ...], home: Path) -> None:
    run = cli("run", *duo, "--store", "kept/ro.db", "--json").json["run"]
    folder = home / "kept"
    (folder / "ro.db").chmod(0o444)
    folder.chmod(0o555)
    try:
        before = set(folder.iterdir())
        for arguments in (("runs",), ("show", run), ("memory", "show", "A")):
            told = process(*arguments, "--store", "kept/ro.db", preexec_fn=as_anybody)
            assert (told.code, told.err) == (0, "") and told.out
        told = process("run", *duo, "--store", "kept/ro.db", preexec_fn=as_anybody)
        refused(told, 4, "ro.db", remedy="--store")
        assert set(folder.iterdir()) == before
    finally:
        folder.chmod(0o755)


def test_a_store_that_is_not_there_is_not_made_by_reading(cli: Cli) -> None:
    refused(cli("runs", "--store", "typo.db"), 4, "typo.db", remedy="--store")
    told = cli("runs")
    assert told.code == 0 and "no runs yet" in told.out
    refused(cli("show", "2026"), 2, "'2026'", remedy="memeplex runs")
    refused(cli("memory", "show", "A"), 2, "run", remedy="memeplex run")
    assert not any(Path().rglob("*.db"))


def test_a_run_that_another_process_holds(cli: Cli, process: Cli, team: Path, endpoint: Endpoint) -> None:
    endpoint.reply = lambda body, number: said("", refusal="no")
    run = cli("run", team, "--model", endpoint.model, "--store", "held.db", "--json").json["error"]["run"]
    store = open_store("held.db")
    with store.lock(run):
        refused(process("resume", run, "--store", "held.db"), 4, run, "another process", remedy="wait")
    refused(cli("resume", "nope", "--store", "held.db"), 2, "'nope'", remedy="memeplex runs")


# ---- models


def test_an_endpoint_out_of_reach(process: Cli, team: Path) -> None:
    told = process("run", team, "--model", "http://127.0.0.1:1/v1#x", "--store", "s.db")
    refused(told, 3, "127.0.0.1:1", "cannot be reached", remedy="memeplex resume ")
    assert "is the server running" in told.err and "--store s.db" in told.err


def test_a_wrong_key(cli: Cli, endpoint: Endpoint, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.reply = lambda body, number: (401, {"error": {"message": "Incorrect API key: sesame"}})
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/v1")
    told = cli("run", team, "--model", "openai:fake")
    refused(told, 3, "401", "Incorrect API key", remedy="OPENAI_API_KEY")
    assert "sesame" not in told.err and "memeplex resume" in told.err
    refused(cli("run", team, "--model", endpoint.model), 3, "401", remedy="key_env")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (said(""), "empty"),
        (said("", refusal="I will not."), "I will not"),
        ((404, {"error": {"message": "no such model"}}), "no such model"),
        ((200, {"choices": []}), "no reply"),
    ],
)
def test_a_model_that_does_not_answer(cli: Cli, endpoint: Endpoint, team: Path, answer: object, words: str) -> None:
    good = endpoint.reply
    endpoint.reply = lambda body, number: good(body, number) if number < 4 else answer  # type: ignore[return-value]
    told = cli("run", team, "--model", endpoint.model, "--memory", "none", "--store", "k.db", "--json")
    assert told.code == 3 and words in told.err.lower() + told.err
    error = told.json["error"]
    assert error["exit_code"] == 3 and f"memeplex resume {error['run']}" in error["remedy"]
    run, turns, _ = stored("k.db", error["run"])
    assert run.status == "failed" and len(turns) == 3
    endpoint.reply = good
    gone_on = cli("resume", error["run"], "--store", "k.db", "--json")
    assert gone_on.code == 0 and gone_on.json["turns"] == 4


def test_a_model_that_repeats_itself(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    endpoint.reply = lambda body, number: said("Yes.")
    team.write_text(team.read_text().replace("max_turns: 4", "max_turns: 40"))
    told = cli("run", team, "--model", endpoint.model, "--json")
    assert told.code == 6 and told.json["outcome"]["status"] == "stalled" and "Traceback" not in told.err


def test_characters_that_no_store_and_no_terminal_can_hold(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    endpoint.reply = lambda body, number: said(f"a\ud800b\0c{number} \x1b]0;title\x07\x1b[2J[red]x[/red]\u202e")
    told = cli("run", team, "--model", endpoint.model, "--store", "u.db", "--json")
    assert told.code == 0
    contents = {turn.content[:4] for turn in stored("u.db", told.json["run"])[1]}
    assert contents == {"a\ufffdbc"}
    shown = cli("show", told.json["run"], "--turns", "--memory", "A", "--store", "u.db")
    for text in (told.err, shown.out):
        assert "[red]x[/red]" in text and not {"\x1b", "\x07", "\0", "\u202e"} & set(text) and "title" not in text


def test_a_context_smaller_than_the_task(cli: Cli, endpoint: Endpoint, team: Path) -> None:
    team.write_text(team.read_text() + "context_tokens: 64\n")
    told = cli("run", team, "x " * 400, "--model", endpoint.model)
    refused(told, 5, "tokens of a context budget of 64", remedy="context_tokens")
    assert "memeplex resume" not in told.err and endpoint.requests == []


def test_a_full_disk(process: Cli, endpoint: Endpoint, team: Path) -> None:
    """No file may grow past 300 KB; what was written before stays, and the run goes on once there is room."""
    team.write_text(team.read_text().replace("max_turns: 4", "max_turns: 30"))
    arguments = command("run", team, "--model", endpoint.model, "--store", "full.db", "--json")
    limited = ["sh", "-c", 'ulimit -f 600; exec "$@"', "sh", *arguments]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    told = Said(done.returncode, done.stdout, done.stderr)
    refused(told, 4, "full.db", remedy="memeplex resume ")
    assert "nothing committed is lost" in told.err
    run = told.json["error"]["run"]
    kept = stored("full.db", run)[1]
    assert 0 < len(kept) < 30
    gone_on = process("resume", run, "--store", "full.db", "--json")
    assert gone_on.code == 0 and gone_on.json["turns"] == 30
    assert list(stored("full.db", run)[1][: len(kept)]) == list(kept)


# ---- how it is told


def test_with_json_the_error_is_an_object_too(cli: Cli) -> None:
    told = cli("run", "nope", "--json")
    error = told.json["error"]
    assert (error["type"], error["exit_code"], told.code) == ("UnknownNameError", 2, 2)
    assert error["message"] in told.err and error["remedy"] in told.err
    assert cli("runs", "--bogus", "--json").json["error"]["type"] == "UsageError"


def test_controls_in_json_are_escaped_and_say_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    text = "a\x9b31m\x7f\u202eb\nc"
    tell_json({"text": text})
    out = capfd.readouterr().out
    assert json.loads(out) == {"text": text} and not {"\x9b", "\x7f", "\u202e"} & set(out)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_stream_that_is_closed_from_the_start(team: Path, closed: str) -> None:
    for arguments, code in ((command("run", "nope"), 2), (command("run", team, "-"), 2)):
        done = subprocess.run(
            ["sh", "-c", f'"$@" {closed}', "sh", *arguments], input="", capture_output=True, text=True, check=False
        )
        assert done.returncode == code and "internal error" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("teams",), ("--help",), ("runs", "--json"), ("show", "x", "--json")])
def test_a_standard_output_that_is_full(arguments: tuple[str, ...], unbuffered: str) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environ
        )
    what = ("no run named",) if "show" in arguments else ("cannot be written", "No space left")
    refused(Said(done.returncode, "", done.stderr), 2 if "show" in arguments else 1, *what, remedy=" ")
    assert "Exception ignored" not in done.stderr and "internal error" not in done.stderr


def test_a_standard_error_that_is_full_keeps_no_result_back() -> None:
    with Path("/dev/full").open("w") as full:
        for arguments, code in ((("runs",), 0), (("show", "x"), 2)):
            done = subprocess.run(command(*arguments), stdout=subprocess.PIPE, stderr=full, text=True, check=False)
            assert done.returncode == code and ("no runs yet" in done.stdout) == (code == 0)


@pytest.mark.parametrize("arguments", [("show", b"a\xff"), ("run", "panel", b"caf\xe9"), ("runs", b"--store=\xff.db")])
def test_an_argument_that_is_no_text(arguments: tuple[str | bytes, ...]) -> None:
    done = subprocess.run([*command(), *arguments], capture_output=True, text=True, check=False)
    words = f"argument {len(arguments)} is not text"
    refused(Said(done.returncode, done.stdout, done.stderr), 2, words, "\\udc", remedy="UTF-8")


def test_debug_shows_the_traceback_wherever_it_stands(cli: Cli) -> None:
    for arguments in (("--debug", "run", "nope"), ("run", "nope", "--debug")):
        told = cli(*arguments)
        assert told.code == 2 and "Traceback" in told.err and told.err.splitlines()[-2].startswith("error: ")


def test_a_fault_of_ours_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*about: object) -> None:
        raise RuntimeError("ouch\nsecond line")

    monkeypatch.setattr("memeplex.cli.runs.library_teams", broken)
    told = cli("teams", "--json")
    refused(told, 1, "internal error: RuntimeError: ouch second line", remedy="run again with --debug")
    assert json.loads(told.out)["error"]["exit_code"] == 1


def test_a_name_that_a_terminal_would_obey(cli: Cli, team: Path) -> None:
    team.write_text('name: t\nagents:\n  - name: "A\\e\\\\pwned"\n    role: x\n')
    refused(cli("run", team, "x"), 2, "duo.yaml:3", "invisible characters", remedy="mend")


def test_what_looks_like_a_key_is_not_repeated(cli: Cli, home: Path, team: Path) -> None:
    config = home / "config" / "memeplex" / "config.toml"
    config.parent.mkdir(parents=True)
    for key in ("sk-realkey123", "gsk_realkey123"):
        config.write_text(f'[models."openai:x"]\nkey_env = "{key}"')
        told = cli("run", team, "--model", "openai:x", "--json")
        assert told.code == 2 and "realkey" not in told.out + told.err and "key_env" in told.err
    config.write_text('[models."openai:x"]\nkey_env = "MY_KEY"')
    assert "MY_KEY" in cli("run", team, "--model", "openai:x").err


@pytest.mark.parametrize("line", ["timeout = inf", "body = {d = 2020-01-01}", "body = {d = nan}", "window = 1"])
def test_settings_that_no_request_can_have(cli: Cli, home: Path, team: Path, line: str) -> None:
    config = home / "config" / "memeplex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[models."http://127.0.0.1:1/v1#x"]\n{line}')
    refused(cli("run", team, "--model", "http://127.0.0.1:1/v1#x"), 2, "config.toml", line.split()[0], remedy="known")


def test_a_task_on_standard_input_is_utf_8(process: Cli, team: Path, home: Path) -> None:
    (home / "task.txt").write_bytes(b"\xff\xfehi")
    with (home / "task.txt").open() as task:
        refused(process("run", team, "-", "--model", "gpt", stdin=task), 2, "not UTF-8", remedy="iconv")


def test_json_says_all_whatever_the_encoding(process: Cli, team: Path, record: Callable[..., str]) -> None:
    team.write_text(team.read_text().replace("bridge", "橋 Zoë"))
    model = record(team)
    told = process("run", team, "--model", model, "--json", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert told.code == 0 and "?" not in told.out
    shown = process("show", told.json["run"], "--json", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert "橋 Zoë" in shown.json["task"]
