"""Where a version comes from, through all its parents, and what it changed."""

from difflib import unified_diff

from memeplex.prompts.library import Library
from memeplex.prompts.prompt import Prompt
from memeplex.prompts.versions import PROMPT, Ref, Version, as_version, key_of
from memeplex.storage import Records

__all__ = ["changes", "lineage"]


async def lineage(records: Records, owner: str, name: str) -> dict[Ref, Version]:
    """Every version of a prompt, and all of other owners that they come from: a graph, whose edges are ``parents``.

    Parents stand before their children. One that is not kept any more is only named.
    """
    found = {version.ref: version for version in await Library(records, owner).versions(name)}
    wanted = [parent for version in found.values() for parent in version.parents]
    while wanted:
        ref = wanted.pop()
        if ref in found:
            continue
        record = await records.by_key(ref.owner, PROMPT, key_of(ref.name, ref.number))
        if record is not None:
            found[ref] = as_version(record, await Library(records, ref.owner).head(ref.name))
            wanted += found[ref].parents
    ordered: dict[Ref, Version] = {}
    for ref in sorted(found, key=lambda ref: (found[ref].created, ref.number)):
        _place(ref, found, ordered)
    return ordered


def _place(ref: Ref, found: dict[Ref, Version], ordered: dict[Ref, Version]) -> None:
    """A version, after all that it comes from. No version can be its own parent: numbers are given once."""
    waiting = [ref]
    while waiting:
        missing = [parent for parent in found[waiting[-1]].parents if parent in found and parent not in ordered]
        if missing := [parent for parent in missing if parent not in waiting]:
            waiting.append(missing[0])
        else:
            last = waiting.pop()
            ordered[last] = found[last]


def changes(older: Prompt | Version, newer: Prompt | Version) -> list[str]:
    """What was changed between two versions, as the lines of a unified diff."""
    return list(
        unified_diff(
            _lines(older), _lines(newer), f"version {older.number}", f"version {newer.number}", n=99, lineterm=""
        )
    )


def _lines(version: Prompt | Version) -> list[str]:
    texts = version.editable if isinstance(version, Prompt) else version.texts
    return [line for title, text in texts.items() for line in (f"# {title}", *text.split("\n"))]
