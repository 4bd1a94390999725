"""``doctor``: what works here, and what the chosen model can do, tried with every schema in use."""

import asyncio
import os
import platform
import shutil
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from memeplex.cli.config import Models, Settings, config_file, load_settings
from memeplex.cli.models import fetch_missing
from memeplex.cli.output import clean, say, table, tell, tell_json
from memeplex.cli.probes import PROBES, Probe, text_call
from memeplex.errors import MemeplexError, ModelError
from memeplex.models import Model
from memeplex.models.weights import DEFAULT
from memeplex.storage import file_of, opened_store
from memeplex.storage.damage import repairing
from memeplex.storage.sqlite.checking import faults_of
from memeplex.storage.sqlite.faults import explained

__all__ = ["Check", "examine"]

FAILED = 3
_LEAST = 100 * 2**20
_OK, _WARN, _FAIL, _SKIPPED = "ok", "warning", "fails", "not tried"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at. ``needed``: nothing works as it should without it."""

    what: str
    status: str
    found: str
    remedy: str = ""
    needed: bool = False


def examine(model: str | None, store: str | None, *, as_json: bool) -> int:
    """Look at everything; gives the exit code."""
    checks = [_machine(), _config()]
    settings = load_settings() if checks[-1].status == _OK else None
    name = model or (settings.model if settings else None) or f"local:{DEFAULT}"
    if settings is not None:
        checks.append(asyncio.run(_store(settings.store(store))))
        checks += _model(name, settings)
    failed = any(check.status == _FAIL and check.needed for check in checks)
    if as_json:
        tell_json({"ok": not failed, "model": name, "checks": [asdict(check) for check in checks]})
    else:
        rows = [(c.what, c.status, clean(c.found, one_line=True), clean(c.remedy, one_line=True)) for c in checks]
        table(("check", "", "found", "what to do"), rows)
        tell()
        tell(f"{name}: {'something needed does not work' if failed else 'everything needed works'}")
    return FAILED if failed else 0


def _machine() -> Check:
    found = f"Python {platform.python_version()}, {platform.platform(terse=True)}, {os.cpu_count()} cores"
    return Check(what="machine", status=_OK, found=found)


def _config() -> Check:
    try:
        load_settings()
    except MemeplexError as error:
        return Check(what="configuration", status=_FAIL, found=str(error), remedy=error.remedy, needed=True)
    found = str(config_file()) if config_file().exists() else f"none at {config_file()}; none is needed"
    return Check(what="configuration", status=_OK, found=found)


async def _store(url: str) -> Check:
    """Open it, look through its file, take its write lock, change nothing; and look for room."""
    path = file_of(url)
    try:
        if path is not None and path.is_file():
            with explained(path):
                wrong = await asyncio.to_thread(faults_of, path)
            if wrong:
                found = f"{path}: the file is damaged: {wrong[0]}"
                return Check(what="store", status=_FAIL, found=found, remedy=repairing(path), needed=True)
        async with opened_store(url) as store:
            runs = await store.runs(limit=10**9)
            await store.end_run("", "finished")
            with store.lock("doctor"):
                pass
            shown = store.url
    except MemeplexError as error:
        return Check(what="store", status=_FAIL, found=str(error), remedy=error.remedy, needed=True)
    if runs.damaged:
        found = f"{shown}: {len(runs.damaged)} runs cannot be read: {', '.join(sorted(runs.damaged)[:3])}"
        remedy = "restore them from a copy of the store" + (f", or {repairing(path)}" if path else "")
        return Check(what="store", status=_WARN, found=found, remedy=remedy)
    return _room(path, len(runs)) if path else Check(what="store", status=_OK, found=shown)


def _room(path: Path, runs: int) -> Check:
    free = shutil.disk_usage(path.parent).free
    found = f"{path}, {runs} runs, {free >> 20:,} MiB free"
    if free < _LEAST:
        return Check(what="store", status=_WARN, found=found, remedy="free some space, or move it with --store")
    return Check(what="store", status=_OK, found=found)


def _model(name: str, settings: Settings) -> list[Check]:
    try:
        fetch_missing([name])
        return asyncio.run(_probe(name, settings))
    except MemeplexError as error:
        return [Check(what="model", status=_FAIL, found=str(error), remedy=error.remedy, needed=True)]


async def _probe(name: str, settings: Settings) -> list[Check]:
    async with AsyncExitStack() as stack:
        models = Models(settings)
        stack.push_async_callback(models.aclose)
        model = models.get(name)
        first = await _try(text_call, model)
        checks = [first]
        for probe in PROBES:
            if first.status == _FAIL:
                checks.append(Check(what=probe.what, status=_SKIPPED, found="", needed=False))
            else:
                checks.append(await _try(probe, model))
        return checks


async def _try(probe: Probe, model: Model) -> Check:
    needed = probe.needed(model)
    say(f"trying {model.name}: {probe.what}")
    try:
        found = await probe.call(model)
    except ModelError as error:
        remedy = probe.instead if not error.remedy else error.remedy
        status = _FAIL if needed else _WARN
        return Check(what=probe.what, status=status, found=str(error), remedy=remedy, needed=needed)
    return Check(what=probe.what, status=_OK, found=found, needed=needed)
