"""``prompts``: what agents' prompts have become, and what a human decides on them."""

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, TypeVar

from memeplex.cli.output import cut, say, table, tell, tell_json
from memeplex.cli.reading import read_store
from memeplex.cli.records import actor
from memeplex.errors import StorageError, UnknownNameError, UserError
from memeplex.prompts import HEAD, PROMPT, Head, Library, Prompt, Ref, Status, Version, changes, lineage
from memeplex.storage import Store

__all__ = ["decide", "list_prompts", "pin_prompt", "roll_back", "show_changes", "show_lineage", "show_prompt"]

T = TypeVar("T")

_FILES = "memeplex.autonoms"
_OWN = ("reasoning", "system")
"""Prompts whose version 1 a team file holds."""
_TEXT = 60


def list_prompts(owner: str | None, store: str | None, *, as_json: bool) -> None:
    """Every prompt of which more is kept than its file."""

    async def listed(opened: Store) -> list[dict[str, Any]]:
        counts = await opened.records.owners()
        known = [name for name, kinds in counts.items() if {PROMPT, HEAD} & set(kinds)]
        if owner is not None and owner not in known:
            remedy = "" if known else "no prompt has changed yet: all are what their files say"
            raise UnknownNameError("owner of prompts that have changed", owner, known[:20], remedy=remedy)
        libraries = [Library(opened.records, one) for one in known if owner in (None, one)]
        return [await _standing(library, name) for library in libraries for name in await library.names()]

    found = read_store(store, listed)
    if as_json:
        tell_json({"prompts": found})
    elif not found:
        tell("no prompt has changed yet: all are what their files say")
    else:
        rows = [
            (
                one["owner"],
                one["prompt"],
                one["version"],
                one["versions"],
                _listed(one["waiting"]),
                f"{one['confidence']:g}",
                "yes" if one["pinned"] else "",
            )
            for one in found
        ]
        titles = ("owner", "prompt", "in use", "versions", "waiting", "confidence", "pinned")
        table(titles, rows, numbers=("in use", "versions", "confidence"))
        for one in found:
            if one["damaged"]:
                say(f"damaged: {one['damaged']}")


async def _standing(library: Library, name: str) -> dict[str, Any]:
    head, damaged, versions = await library.head(name), "", list[Version]()
    try:
        versions = await library.versions(name)
    except StorageError as error:
        # One that cannot be read spoils no list of many.
        damaged = str(error)
    present = next((one for one in versions if one.number == head.adopted), None)
    return {
        "owner": library.owner,
        "prompt": name,
        "version": head.adopted,
        "versions": max(len(versions), 1),
        "waiting": [one.number for one in versions if one.status is Status.PROPOSED],
        "confidence": present.confidence if present else 0.0,
        "pinned": head.pinned,
        "damaged": damaged,
    }


def show_prompt(owner: str, name: str, number: int | None, store: str | None, *, as_json: bool) -> None:
    """One version, by default the one in use."""

    async def shown(library: Library) -> Version:
        return await _version(library, name, (await library.head(name)).adopted if number is None else number)

    version = _of(owner, store, shown)
    if as_json:
        tell_json(version.model_dump(mode="json"))
        return
    tell(f"{name} of {owner}, version {version.number}, {version.status}, confidence {version.confidence:g} of 10")
    made = f"made from {_listed(_parent(one, version.ref) for one in version.parents)}, " if version.parents else ""
    by = f" by {version.author}" if version.author else ""
    tell(f"{made}cause: {version.cause}{by}, {version.created:%Y-%m-%d %H:%M} UTC")
    if version.scores:
        tell("scores: " + _listed(f"{key} {value:g}" for key, value in version.scores.items()))
    if version.evidence:
        tell(f"evidence: {_listed(version.evidence)}")
    for title, text in version.texts.items():
        tell(f"\n# {title}")
        tell(text or "(empty)")


def show_changes(
    owner: str, name: str, older: int | None, newer: int | None, store: str | None, *, as_json: bool
) -> None:
    """What changed between two versions."""

    async def compared(library: Library) -> tuple[int, int, list[str]]:
        last = await _version(library, name, newer or (await library.head(name)).adopted)
        own = [one.number for one in last.parents if (one.owner, one.name) == (owner, name)]
        if older is None and not own:
            raise UserError(f"version {last.number} of {name} is the first: nothing came before it")
        first = await _version(library, name, older or own[0])
        return first.number, last.number, changes(first, last)

    first, last, lines = _of(owner, store, compared)
    if as_json:
        tell_json({"owner": owner, "prompt": name, "from": first, "to": last, "diff": lines})
    else:
        tell("\n".join(lines) or f"versions {first} and {last} are the same")


def show_lineage(owner: str, name: str, store: str | None, *, as_json: bool) -> None:
    """Where all versions come from."""

    async def traced(library: Library) -> list[Version]:
        found = list((await lineage(library.records, owner, name)).values())
        return found or [await _version(library, name, 1)]

    versions = _of(owner, store, traced)
    if as_json:
        tell_json({"owner": owner, "prompt": name, "versions": [one.model_dump(mode="json") for one in versions]})
        return
    home = Ref(owner=owner, name=name, number=1)
    rows = [
        (
            _parent(one.ref, home),
            one.status,
            _listed(_parent(parent, one.ref) for parent in one.parents),
            one.cause,
            one.author,
            f"{one.confidence:g}",
            _listed(f"{key} {value:g}" for key, value in one.scores.items()),
            cut(one.text, _TEXT),
        )
        for one in versions
    ]
    titles = ("version", "status", "made from", "cause", "by", "confidence", "scores", "text")
    table(titles, rows, numbers=("confidence",))


def roll_back(owner: str, name: str, to: int | None, cause: str, store: str | None, *, as_json: bool) -> None:
    """Go back to a version that was in use before."""
    head = _of(owner, store, lambda library: library.rollback(name, to, actor=actor(), cause=cause))
    _tell_head(owner, head, as_json=as_json)


def decide(
    owner: str, name: str, number: int | None, cause: str, store: str | None, *, approve: bool, as_json: bool
) -> None:
    """Put a proposal to use, or turn it down."""

    async def decided(library: Library) -> Version:
        act = library.adopt if approve else library.reject
        return await act(name, number or await _waiting(library, name), actor=actor(), cause=cause)

    version = _of(owner, store, decided)
    if as_json:
        tell_json(version.model_dump(mode="json"))
    else:
        tell(f"version {version.number} of {name} of {owner} is {version.status}")


def pin_prompt(owner: str, name: str, cause: str, store: str | None, *, pinned: bool, as_json: bool) -> None:
    """Keep a prompt at its version, or let it go on."""

    async def done(library: Library) -> Head:
        if name not in (*_OWN, *_files()):
            await _version(library, name, 1)
        return await library.pin(name, pinned, actor=actor(), cause=cause)

    # What has not changed yet can be pinned too, so that it never will.
    head = read_store(store, lambda opened: done(Library(opened.records, owner)), make=True)
    _tell_head(owner, head, as_json=as_json)


def _tell_head(owner: str, head: Head, *, as_json: bool) -> None:
    if as_json:
        tell_json({"owner": owner, **head.model_dump(mode="json")})
    else:
        tell(f"{owner}: {head.line}")


def _of(owner: str, store: str | None, work: Callable[[Library], Awaitable[T]]) -> T:
    return read_store(store, lambda opened: work(Library(opened.records, owner)))


async def _waiting(library: Library, name: str) -> int:
    """The one proposal that waits."""
    found = [one.number for one in await library.versions(name) if one.status is Status.PROPOSED]
    if len(found) == 1:
        return found[0]
    what = f"versions {_listed(found)} are" if found else "no version is"
    remedy = "name one of them" if found else f"memeplex prompts lineage {library.owner} {name} shows what there is"
    raise UserError(f"{what} waiting for {name} of {library.owner}", remedy=remedy)


async def _version(library: Library, name: str, number: int) -> Version:
    """A version as it is kept; version 1 of a prompt that has not changed is its file."""
    try:
        return await library.version(name, number)
    except UnknownNameError:
        if number != 1 or await library.versions(name):
            raise
        if name in _files():
            texts = Prompt.load(_FILES, name).editable
            return Version(owner=library.owner, name=name, number=1, texts=texts, status=Status.ADOPTED)
        if name in _OWN:
            raise UnknownNameError(
                "change of the prompt",
                name,
                remedy=f"it is what the team file says; {library.owner} has not changed it",
            ) from None
        raise UnknownNameError("prompt", name, sorted((*_OWN, *_files()))) from None


def _files() -> list[str]:
    """The names of the prompts that come with the package, and that agents may improve."""
    return [path.name.removesuffix(".md") for path in files(_FILES).iterdir() if path.name.endswith(".md")]


def _parent(one: Ref, child: Ref) -> str:
    """A version, by its number where the owner and the prompt go without saying."""
    return str(one.number) if (one.owner, one.name) == (child.owner, child.name) else str(one)


def _listed(items: Any) -> str:
    return ", ".join(map(str, items))
