"""The command line in this process and in real ones, with recorded models and a fake endpoint, in a home of its own."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import act

from memeplex.cli import main
from memeplex.cli import models as cli_models
from memeplex.endpoint.gate import requests_allowed
from memeplex.models.testing import FunctionModel, RecordedModel
from memeplex.teams import load_team, read_team

TEAM = """\
name: duo
task: Build a bridge.
agents:
  - name: A
    role: You plan.
  - name: B
    role: You doubt.
termination:
  max_turns: 4
"""


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Said]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No key, no setting and no file of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("MEMEPLEX_", "OPENAI_")):
            monkeypatch.delenv(name)
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_models, "pull", _no_pull)
    return tmp_path


def _no_pull(name: str, **about: object) -> Path:
    raise AssertionError(f"{name} was to be fetched")


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """One command, in this process."""

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return call


@pytest.fixture
def process() -> Cli:
    """One command, in a process of its own."""

    def call(*arguments: object, **more: Any) -> Said:
        done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False, **more)
        return Said(done.returncode, done.stdout, done.stderr)

    return call


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "memeplex", *map(str, arguments)]


@pytest.fixture
def team(home: Path) -> Path:
    """A team of two that speak twice each."""
    path = home / "duo.yaml"
    path.write_text(TEAM)
    return path


@pytest.fixture
def record(home: Path) -> Callable[..., str]:
    """Record a team's run, and give the name of the model that replays it."""

    def recorded(team: object, *, seed: int = 0, reply: Any = act) -> str:
        path = home / "cassette.jsonl"
        model = RecordedModel(path, FunctionModel(reply))
        asyncio.run(load_team(str(team), model=model).run(read_team(str(team)).task, seed=seed))
        return f"recorded:{path}"

    return recorded


@pytest.fixture
def duo(team: Path, record: Callable[..., str]) -> tuple[str, ...]:
    """The arguments of a run of the team of two, on a recorded model."""
    return str(team), "--model", record(team)


@dataclass
class Endpoint:
    """A fake endpoint. ``reply`` makes an answer of a request; from request ``hold`` on, it waits to be released."""

    url: str = ""
    reply: Callable[[dict[str, Any], int], tuple[int, dict[str, Any]]] = field(default=lambda body, n: spoken(body, n))
    hold: int | None = None
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def model(self) -> str:
        return f"{self.url}/v1#fake"


def said(text: str, **more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"choices": [{"message": {"content": text, **more}, "finish_reason": "stop"}]}


def spoken(body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
    """A text that depends on the request alone."""
    digest = hash_of(body["messages"], body.get("seed"))
    return said(f"Decision {digest[:8]} costs {int(digest[8:12], 16)} USD.")


def hash_of(*parts: object) -> str:
    import hashlib

    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.requests.append({**body, "authorization": self.headers.get("Authorization")})
            number = len(endpoint.requests)
            if endpoint.hold is not None and number >= endpoint.hold:
                endpoint.arrived.set()
                endpoint.released.wait(60)
            status, answer = endpoint.reply(body, number)
            data = json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True

        def log_message(self, *about: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.released.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint()) as running, requests_allowed():
        yield running
