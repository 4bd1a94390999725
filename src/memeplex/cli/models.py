"""``models``: what is there, and fetching it; a missing embedded model is fetched before a run."""

from collections.abc import Sequence
from pathlib import Path

from memeplex.cli.output import console, say, table, tell, tell_json
from memeplex.models.local import check_runtime
from memeplex.models.weights import DEFAULT, cached_path, known_models, pull

__all__ = ["fetch", "fetch_missing", "list_models", "pull_model", "show_path"]

_LOCAL = "local:"


def list_models(*, as_json: bool) -> None:
    """Known embedded models, and whether their weights are there."""
    entries = [
        {
            "name": f"{_LOCAL}{name}",
            "size": weights.size,
            "licence": weights.licence,
            "default": name == DEFAULT,
            "pulled": cached_path(name).is_file(),
            "path": str(cached_path(name)),
        }
        for name, weights in known_models().items()
    ]
    if as_json:
        tell_json({"models": entries})
        return
    rows = [
        (
            e["name"],
            f"{int(str(e['size'])) / 1e6:,.0f} MB",
            e["licence"],
            _standing(e),
            e["path"] if e["pulled"] else "",
        )
        for e in entries
    ]
    table(("model", "size", "licence", "", "path"), rows, numbers=("size",))


def _standing(entry: dict[str, object]) -> str:
    here = "here" if entry["pulled"] else "not pulled"
    return f"{here}, default" if entry["default"] else here


def pull_model(name: str, *, as_json: bool, quiet: bool) -> None:
    """Get a model and say where it is."""
    try:
        path = fetch(name.removeprefix(_LOCAL), quiet=quiet)
    except KeyboardInterrupt:
        say(f"stopped; what has come stays. Go on with: memeplex models pull {name}")
        raise
    if as_json:
        tell_json({"name": name, "path": str(path), "size": path.stat().st_size})
    else:
        tell(str(path))


def show_path(name: str, *, as_json: bool) -> None:
    """Where a model lies or would lie."""
    path = cached_path(name.removeprefix(_LOCAL))
    if as_json:
        tell_json({"name": name, "path": str(path), "pulled": path.is_file()})
    else:
        tell(str(path))


def fetch_missing(names: Sequence[str], *, quiet: bool = False) -> None:
    """Get the weights of those embedded models among ``names`` that are known and not there."""
    for name in names:
        model = name.removeprefix(_LOCAL)
        if name.startswith(_LOCAL) and model in known_models() and not cached_path(model).is_file():
            check_runtime()
            if not quiet:
                say(f"fetching {name}, once")
            fetch(model, quiet=quiet)


def fetch(name: str, *, quiet: bool = False) -> Path:
    """Pull a model, with a progress bar on standard error."""
    import sys

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(sys.stderr), disable=quiet, transient=True) as bar:
        task = bar.add_task(name, total=None)

        def advance(done: int, total: int, source: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{name} from {source}")

        return pull(name, progress=advance)
