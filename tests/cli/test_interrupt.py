"""Ctrl-C and SIGTERM in a real process, at known points: the endpoint holds a reply back until told."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.conftest import Cli, Endpoint, command, serving
from cli.test_run import stored
from support import plain, plain_versions


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], words: str) -> str:
    """Standard error, up to the line with these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"{words!r} was never said")


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_ctrl_c_outside_of_a_run_is_told_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memeplex.cli.runs.library_teams", pressed)
    told = cli("teams", "--json")
    assert told.code == 130 and told.json["error"]["type"] == "Interrupted" and "error: interrupted" in told.err


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_at_the_turn_and_resume_finishes_identically(
    process: Cli, team: Path, sent: signal.Signals
) -> None:
    with serving(Endpoint()) as endpoint:
        whole = process("run", team, "--model", endpoint.model, "--store", "whole.db", "--json").json
    with serving(Endpoint(hold=3)) as endpoint:
        flags = ("--model", endpoint.model, "--store", "cut.db", "--json")
        with running("run", team, *flags) as going:
            assert endpoint.arrived.wait(30)
            going.send_signal(sent)
            line = until(going, "go on with: ")
            endpoint.released.set()
            code, out, err = finish(going)
        cut = json.loads(out)
        assert code == 130 and "Traceback" not in err
        assert f"memeplex resume {cut['run']} --store cut.db" in line
        assert cut["status"] == "interrupted" and cut["outcome"] is None and 1 <= cut["turns"] < 4
        assert stored("cut.db", cut["run"])[0].status == "interrupted"
        done = process("resume", cut["run"], "--store", "cut.db", "--json")
    assert done.code == 0 and done.json["status"] == "finished"
    expected, found = stored("whole.db", whole["run"]), stored("cut.db", cut["run"])
    strip = [("model", None)]
    assert _without(plain(found[1]), strip) == _without(plain(expected[1]), strip)
    assert _without(plain_versions(found[2]), strip) == _without(plain_versions(expected[2]), strip)


def _without(records: list[dict[str, object]], keys: list[tuple[str, object]]) -> list[dict[str, object]]:
    """The two endpoints have different ports, and so different names."""
    return [{**record, **dict(keys)} for record in records]


def test_the_second_signal_stops_at_once_and_the_run_can_still_go_on(process: Cli, team: Path) -> None:
    with serving(Endpoint(hold=2)) as endpoint:
        with running("run", team, "--model", endpoint.model, "--store", "cut.db") as going:
            assert endpoint.arrived.wait(30)
            going.send_signal(signal.SIGINT)
            line = until(going, "go on with: ")
            going.send_signal(signal.SIGINT)
            code, out, err = finish(going)
        assert code == 130 and out == "" and "Traceback" not in err and "go on with: memeplex resume" in err
        endpoint.hold = None
        endpoint.released.set()
        run = line.split("memeplex resume ")[1].split()[0]
        assert stored("cut.db", run)[0].status == "interrupted"
        done = process("resume", run, "--store", "cut.db", "--json")
    assert done.code == 0 and done.json["turns"] == 4


def test_a_run_whose_process_was_killed_is_shown_as_such(process: Cli, team: Path) -> None:
    with (
        serving(Endpoint(hold=2)) as endpoint,
        running("run", team, "--model", endpoint.model, "--store", "cut.db") as going,
    ):
        assert endpoint.arrived.wait(30)
        held = process("runs", "--store", "cut.db", "--json").json["runs"][0]
        assert held["status"] == "running"
        going.kill()
        finish(going)
    told = process("runs", "--store", "cut.db", "--json").json["runs"][0]
    assert told["status"] == "killed"
    assert f"memeplex resume {told['id']} --store cut.db" in process("show", told["id"], "--store", "cut.db").out


@pytest.mark.parametrize("gone", ["stdout", "stderr"])
def test_a_broken_pipe_is_quiet_and_the_run_goes_on(duo: tuple[str, ...], cli: Cli, gone: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, gone: writer}
        done = subprocess.run(command("run", *duo, "--store", "p.db"), timeout=60, check=False, **streams)
    finally:
        os.close(writer)
    told = (done.stdout or b"") + (done.stderr or b"")
    assert done.returncode == 0
    assert not any(word in told for word in (b"Traceback", b"Broken", b"error"))
    assert cli("runs", "--store", "p.db", "--json").json["runs"][0]["status"] == "finished"
