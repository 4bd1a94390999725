"""The prompts of one owner: which version is in use, and how another comes into use.

A changing call is one row of the audit. Numbers are given once; what has been decided stays in the store.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from memeplex.errors import ConflictError, PromptError, StorageError, UnknownNameError
from memeplex.prompts.prompt import Prompt
from memeplex.prompts.versions import HEAD, PROMPT, Cause, Head, Ref, Status, Version, as_version, key_of
from memeplex.storage import Record, Records
from memeplex.telemetry import FilePassedOver, emit

__all__ = ["Chosen", "Library", "Prompts", "first_version"]

_PAGE = 500

Prompts = Callable[[Prompt], Awaitable[Prompt]]
"""Gives the version to use, for the first one."""


async def first_version(first: Prompt) -> Prompt:
    """The prompts of somebody who has no store: each is what its file says."""
    return first


class Library:
    """What one owner's prompts have become. ``actor`` is who asks for a change, ``cause`` why."""

    def __init__(self, records: Records, owner: str) -> None:
        self.records = records
        self.owner = owner

    async def current(self, first: Prompt) -> Prompt:
        """The version in use. Version 1 is always the file as it now is."""
        return await self.prompt(first, (await self.head(first.name)).adopted)

    async def prompt(self, first: Prompt, number: int) -> Prompt:
        """One version, in the frame of the file.

        Raises:
            UnknownNameError: there is none of that number.
            StorageError: it does not fit the file any more, or is not what was written.
        """
        return first if number == 1 else (await self.version(first.name, number)).prompt(first)

    async def began_with(self, first: Prompt) -> bool:
        """Whether a prompt's history begins with the text that its file holds now."""
        return (await self.version(first.name, 1)).texts == first.editable

    async def head(self, name: str) -> Head:
        """How a prompt stands; at version 1 if nothing was ever decided on it."""
        record = await self.records.by_key(self.owner, HEAD, name)
        return _as_head(record) if record else Head(name=name)

    async def version(self, name: str, number: int) -> Version:
        """One version as it is kept.

        Raises:
            UnknownNameError: there is none of that number.
        """
        record = await self.records.by_key(self.owner, PROMPT, key_of(name, number))
        if record is None:
            remedy = "nothing was made from it yet: it is what its file says" if number == 1 else ""
            remedy = remedy or f"memeplex prompts lineage {self.owner} {name} shows what there is"
            raise UnknownNameError(f"version of the prompt {name} of {self.owner}", str(number), remedy=remedy)
        return as_version(record, await self.head(name))

    async def versions(self, name: str) -> list[Version]:
        """All versions of a prompt that are kept, in their order; none as long as there is only the file."""
        head = await self.head(name)
        found = [one for one in await self._all(PROMPT) if one.key.rpartition("@")[0] == name]
        return sorted((as_version(one, head) for one in found), key=lambda version: version.number)

    async def names(self) -> list[str]:
        """The prompts of which more than the file is kept."""
        versions = {one.key.rpartition("@")[0] for one in await self._all(PROMPT)}
        return sorted(versions | {one.key for one in await self._all(HEAD)})

    async def propose(
        self,
        first: Prompt,
        candidate: Prompt,
        *,
        actor: str,
        cause: Cause,
        why: str = "",
        parents: Sequence[Ref] = (),
        evidence: Sequence[str] = (),
        scores: Mapping[str, float] | None = None,
        confidence: float = 0.0,
        source: str = "",
        model: str = "",
        prompt: str = "",
    ) -> Version:
        """Keep a new version, for somebody to decide on. The same proposal twice is one.

        ``parents`` are what it was made from, by default the version in use. ``model`` and ``prompt`` wrote it.

        Raises:
            PromptError: more than editable text is different, or nothing is.
        """
        if strange := first.unlike(candidate):
            raise PromptError(
                f"the prompt {first.name}: {', '.join(map(repr, strange))} may not be changed",
                remedy=f"change only {', '.join(first.editable) or 'nothing'}",
            )
        head = await self.head(first.name)
        texts = first.revised(candidate.editable).editable
        if texts == (await self.prompt(first, head.adopted)).editable:
            raise PromptError(f"the prompt {first.name} of {self.owner} says this already", remedy="change something")
        version = Version(
            owner=self.owner,
            name=first.name,
            number=head.last + 1,
            texts=texts,
            parents=tuple(parents) or (Ref(owner=self.owner, name=first.name, number=head.adopted),),
            author=actor,
            cause=cause,
            evidence=tuple(evidence),
            scores=dict(scores or {}),
            confidence=confidence,
            frame=first.frame,
            source=source,
        )
        return await self._keep(first, version, actor=actor, why=why, model=model, prompt=prompt)

    async def adopt(self, name: str, number: int, *, actor: str, cause: str = "") -> Version:
        """Put a proposed version to use, in place of the one that it was made from.

        Raises:
            ConflictError: another version has come into use since.
            PromptError: the prompt is pinned, or this version was decided on before.
        """
        version = await self.version(name, number)
        base = next((one.number for one in version.parents if (one.owner, one.name) == (self.owner, name)), 1)

        def adopted(head: Head) -> Head:
            _undecided(head, number)
            _movable(head, self.owner)
            if head.adopted != base:
                raise ConflictError(
                    f"version {number} of the prompt {name} was made from version {base}, and {head.adopted} is in use",
                    yours=version.ref,
                    theirs=Ref(owner=self.owner, name=name, number=head.adopted),
                )
            superseded = (*head.superseded, head.adopted)
            return head.model_copy(update={"adopted": number, "superseded": superseded})

        return version.model_copy(update={"status": (await self._decide(name, adopted, actor, cause)).status(number)})

    async def reject(self, name: str, number: int, *, actor: str, cause: str = "") -> Version:
        """Turn a proposed version down. It stays, so that it can be seen what was tried.

        Raises:
            PromptError: this version was decided on before.
        """
        version = await self.version(name, number)

        def rejected(head: Head) -> Head:
            _undecided(head, number)
            return head.model_copy(update={"rejected": (*head.rejected, number)})

        return version.model_copy(update={"status": (await self._decide(name, rejected, actor, cause)).status(number)})

    async def rollback(self, name: str, to: int | None = None, *, actor: str, cause: str = "") -> Head:
        """Go back to a version that was in use before, byte for byte; by default to what the present one was made from.

        Raises:
            PromptError: the prompt is pinned, or that version was never in use.
        """
        head = await self.head(name)
        if to is None:
            if head.adopted == 1:
                raise PromptError(f"the prompt {name} of {self.owner} is at version 1; nothing came before it")
            present = await self.version(name, head.adopted)
            to = next((one.number for one in present.parents if (one.owner, one.name) == (self.owner, name)), 1)
        if to != 1:
            await self.version(name, to)

        def rolled(head: Head) -> Head:
            _movable(head, self.owner)
            if head.status(to) is not Status.SUPERSEDED:
                raise PromptError(
                    f"version {to} of the prompt {name} is {head.status(to)}; only one that was in use comes back",
                    remedy="memeplex prompts approve takes a proposal",
                )
            superseded = (*(number for number in head.superseded if number != to), head.adopted)
            return head.model_copy(update={"adopted": to, "superseded": superseded})

        return await self._decide(name, rolled, actor, cause)

    async def pin(self, name: str, pinned: bool = True, *, actor: str, cause: str = "") -> Head:
        """Keep a prompt at the version it is at, or let it go on."""
        return await self._decide(name, lambda head: head.model_copy(update={"pinned": pinned}), actor, cause)

    async def _keep(self, first: Prompt, version: Version, *, actor: str, why: str, model: str, prompt: str) -> Version:
        """Keep a new version under the first number that is free; with the first one of all, the file as it now is."""
        while True:
            there = await self.records.by_key(self.owner, PROMPT, key_of(version.name, version.number))
            if there is not None:
                known = as_version(there, await self.head(version.name))
                same = (known.texts, known.parents) == (version.texts, version.parents)
                if same and known.status is Status.PROPOSED:
                    return known
                version = version.model_copy(update={"number": version.number + 1})
                continue
            records = [version.record(model=model, prompt=prompt)]
            if await self.records.by_key(self.owner, PROMPT, key_of(version.name, 1)) is None:
                texts = first.editable
                start = Version(owner=self.owner, name=version.name, number=1, texts=texts, frame=first.frame)
                # Made anew, so that it has the later id.
                records = [start.record(), version.record(model=model, prompt=prompt)]
            added = await self.records.add(records, actor=actor, cause=why or version.cause)
            if records[-1].id in added.new:
                return version

    async def _decide(self, name: str, change: Callable[[Head], Head], actor: str, cause: str) -> Head:
        """Change a head; where somebody else was first, as it is after that, if that is still possible."""
        while True:
            record = await self.records.by_key(self.owner, HEAD, name)
            before = _as_head(record) if record else Head(name=name)
            after = change(before)
            if record is None:
                if (await self.records.add([after.record(self.owner)], actor=actor, cause=cause)).new:
                    return after
                continue
            if after == before:
                return before
            try:
                new = record.model_copy(update={"text": after.line, "payload": after.model_dump(mode="json")})
                await self.records.edit(new, actor=actor, cause=cause)
            except ConflictError:
                continue
            return after

    async def _all(self, kind: str) -> list[Record]:
        found: list[Record] = []
        while page := await self.records.page(self.owner, [kind], limit=_PAGE, after=found[-1].id if found else ""):
            found += page
        return found


class Chosen:
    """The prompts that somebody works with for a while: each is looked up once, and stays what it is until the end.

    ``numbers`` are the versions that an earlier process of the same work had used.
    """

    def __init__(self, library: Library, numbers: Mapping[str, int] | None = None) -> None:
        self._library = library
        self._numbers = dict(numbers or {})
        self._found: dict[str, Prompt] = {}

    async def __call__(self, first: Prompt) -> Prompt:
        """The version to use."""
        if first.name not in self._found:
            number = self._numbers.get(first.name)
            found = await (self._library.current(first) if number is None else self._library.prompt(first, number))
            if found.number > 1 and not await self._library.began_with(first):
                emit(FilePassedOver(owner=self._library.owner, prompt=first.name, version=found.number))
            self._found[first.name] = found
        return self._found[first.name]


def _as_head(record: Record) -> Head:
    try:
        return Head.model_validate(record.payload)
    except ValueError as error:
        raise StorageError(f"the record {record.id} of {record.owner} does not say how its prompt stands") from error


def _movable(head: Head, owner: str) -> None:
    if head.pinned:
        raise PromptError(
            f"the prompt {head.name} of {owner} is pinned at version {head.adopted}",
            remedy=f"memeplex prompts pin {owner} {head.name} --off",
        )


def _undecided(head: Head, number: int) -> None:
    if (status := head.status(number)) is not Status.PROPOSED:
        remedy = {
            Status.SUPERSEDED: "memeplex prompts rollback goes back to it",
            Status.ADOPTED: "memeplex prompts rollback leaves it",
            Status.REJECTED: "propose it again, if it deserves another try",
        }[status]
        raise PromptError(f"version {number} of the prompt {head.name} is {status} already", remedy=remedy)
