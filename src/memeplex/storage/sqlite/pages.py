"""The pages of a SQLite file, read one by one, whatever state the file is in.

SQLite gives up at the first page that is not right, and the other pages with it. Here every page is taken for what it
says itself, after https://sqlite.org/fileformat2.html: trees that have lost their root or a branch are several trees.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

__all__ = ["Pages", "Row", "Value"]

Value = int | float | str | bytes | None

_MAGIC = b"SQLite format 3\0"
_INDEX_BRANCH, _TABLE_BRANCH, _INDEX_LEAF, _TABLE_LEAF = 2, 5, 10, 13
_BRANCHES = (_INDEX_BRANCH, _TABLE_BRANCH)
_PAGE = 4096
"""SQLite's own size, where the file does not say."""
_DEEPEST = 20
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""The bytes of an integer, by its type."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, or with no ``rowid`` an entry of an index or of a table without rowids."""

    rowid: int | None
    values: tuple[Value, ...]


class _Broken(Exception):  # noqa: N818 - it is no fault here, but what is looked for
    """A page or a cell is not what it says."""


class Pages:
    """All pages of a file, with those that are still in its journal (``-wal``) in place of the older ones.

    The file stays open; who opens it a second time in this process and closes that, loses the locks on it.
    """

    def __init__(self, file: BinaryIO, journal: Path) -> None:
        self._file = file
        length = file.seek(0, 2)
        head = file.read(100) if not file.seek(0) else b""
        head = head if head.startswith(_MAGIC) and len(head) == 100 else bytes(100)
        size, count = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
        # Believed only if it agrees with the number of pages.
        self.size = size if size >= 512 and not size & (size - 1) and size * count == length else _PAGE
        self._usable = self.size - (head[20] if head[20] <= 32 else 0)
        self._newer = _journal(journal, self.size)
        # A last page that was cut off counts too: its first cells may be lost, and its last ones there.
        self.count = max(-(-length // self.size), max(self._newer, default=0))

    def page(self, number: int) -> bytes:
        """A page by its number, which counts from 1; filled up with zeros where the file ends."""
        if number in self._newer:
            return self._newer[number]
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size).ljust(self.size, b"\0")

    @cached_property
    def roots(self) -> list[int]:
        """The pages of trees that are below no other: roots, and what has lost its branch. Page 1 is left out."""
        trees, below = [], set[int]()
        for number in range(2, self.count + 1):
            kind = self.page(number)[0]
            if kind not in (*_BRANCHES, _INDEX_LEAF, _TABLE_LEAF) or number in self._free:
                continue
            trees.append(number)
            if kind in _BRANCHES:
                below |= {child for child in self._children(number) if self.page(child)[0] in self._fitting(kind)}
        return [number for number in trees if number not in below]

    @cached_property
    def named(self) -> dict[str, int]:
        """The roots of tables and indexes by their names, as far as the schema can be read."""
        found = {}
        for row in self.walk(1):
            if row is not None and len(row.values) == 5:
                name, root = row.values[1], row.values[3]
                if isinstance(name, str) and isinstance(root, int) and root:
                    found[name] = root
        return found

    def is_empty(self, number: int) -> bool:
        """Whether the page is a leaf without anything, as of a table that holds nothing."""
        page = self.page(number) if 1 < number <= self.count else b"\0"
        return page[0] in (_INDEX_LEAF, _TABLE_LEAF) and page[3:5] == b"\0\0"

    def walk(self, root: int) -> Iterator[Row | None]:
        """The rows of a tree in order; ``None`` where something is missing."""
        yield from self._walk(root, set(), 0)

    def _walk(self, number: int, seen: set[int], depth: int) -> Iterator[Row | None]:
        if number in seen or not 1 <= number <= self.count or depth > _DEEPEST:
            yield None
            return
        seen.add(number)
        page, start = self.page(number), 100 if number == 1 else 0
        try:
            kind, places, last = self._cells(page, start)
        except _Broken:
            yield None
            return
        for place in places:
            if kind in _BRANCHES:
                yield from self._below(page, place, kind, seen, depth)
            if kind != _TABLE_BRANCH:
                try:
                    yield self._row(page, place, kind)
                except (_Broken, IndexError, struct.error, UnicodeDecodeError):
                    yield None
        if last:
            yield from self._below(page, last, kind, seen, depth)

    def _below(self, page: bytes, place: int, kind: int, seen: set[int], depth: int) -> Iterator[Row | None]:
        child = int.from_bytes(page[place : place + 4], "big")
        if 1 < child <= self.count and self.page(child)[0] in self._fitting(kind):
            yield from self._walk(child, seen, depth + 1)
        else:
            yield None

    @staticmethod
    def _fitting(kind: int) -> tuple[int, int]:
        return (_INDEX_BRANCH, _INDEX_LEAF) if kind in (_INDEX_BRANCH, _INDEX_LEAF) else (_TABLE_BRANCH, _TABLE_LEAF)

    def _cells(self, page: bytes, start: int) -> tuple[int, list[int], int]:
        """What kind a page is, where its cells begin, and where its last pointer stands, if it has one."""
        kind, count = page[start], int.from_bytes(page[start + 3 : start + 5], "big")
        if kind not in (*_BRANCHES, _INDEX_LEAF, _TABLE_LEAF):
            raise _Broken
        first = start + (12 if kind in _BRANCHES else 8)
        if first + 2 * count > self._usable:
            raise _Broken
        places = list(struct.unpack_from(f">{count}H", page, first))
        return kind, places, start + 8 if kind in _BRANCHES else 0

    def _children(self, number: int) -> Iterator[int]:
        page = self.page(number)
        try:
            _, places, last = self._cells(page, 0)
        except _Broken:
            return
        for place in (*places, last):
            child = int.from_bytes(page[place : place + 4], "big")
            if 1 < child <= self.count and child != number:
                yield child

    def _row(self, page: bytes, place: int, kind: int) -> Row:
        if kind == _INDEX_BRANCH:
            place += 4
        length, place = _varint(page, place)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, place = _varint(page, place)
            rowid -= 2**64 if rowid >= 2**63 else 0
        return Row(rowid, _record(self._payload(page, place, length, table=kind == _TABLE_LEAF)))

    def _payload(self, page: bytes, place: int, length: int, *, table: bool) -> bytes:
        usable = self._usable
        if length > usable * self.count:
            raise _Broken
        most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
        if length <= most:
            if place + length > usable:
                raise _Broken
            return page[place : place + length]
        least = (usable - 12) * 32 // 255 - 23
        here = least + (length - least) % (usable - 4)
        here = here if here <= most else least
        parts, left = [page[place : place + here]], length - here
        following = int.from_bytes(page[place + here : place + here + 4], "big")
        while left > 0:
            if not 1 < following <= self.count or following in self._free:
                raise _Broken
            page = self.page(following)
            following = int.from_bytes(page[:4], "big")
            parts.append(page[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
        return b"".join(parts)

    @cached_property
    def _free(self) -> set[int]:
        """Pages that are used no more: what stands in them has been deleted."""
        free: set[int] = set()
        head = self.page(1)
        trunk = int.from_bytes(head[32:36], "big") if head.startswith(_MAGIC) else 0
        while 1 < trunk <= self.count and trunk not in free:
            page = self.page(trunk)
            number = min(int.from_bytes(page[4:8], "big"), self._usable // 4 - 2)
            free |= {trunk, *struct.unpack_from(f">{number}I", page, 8)}
            trunk = int.from_bytes(page[:4], "big")
        return free


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = data[place + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + i + 1
    return value << 8 | data[place + 8], place + 9


def _record(data: bytes) -> tuple[Value, ...]:
    """The values of a record: it must have just the length that it says."""
    place, head = 0, 0
    head, place = _varint(data, 0)
    values: list[Value] = []
    body = head
    while place < head:
        kind, place = _varint(data, place)
        value, body = _value(data, body, kind)
        values.append(value)
    if place != head or body != len(data):
        raise _Broken
    return tuple(values)


def _value(data: bytes, place: int, kind: int) -> tuple[Value, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), place
    if kind in (10, 11):
        raise _Broken
    end = place + (_INTEGERS.get(kind) or (8 if kind == 7 else (kind - 12) // 2))
    if end > len(data):
        raise _Broken
    raw = data[place:end]
    if kind in _INTEGERS:
        return int.from_bytes(raw, "big", signed=True), end
    if kind == 7:
        return float(struct.unpack(">d", raw)[0]), end
    return (raw if kind % 2 == 0 else raw.decode()), end


def _journal(path: Path, size: int) -> dict[int, bytes]:
    """The newest pages of a journal, up to its last whole commit, as SQLite takes them."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    if len(data) < 32 or data[:4] not in (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"):
        return {}
    if int.from_bytes(data[8:12], "big") != size:
        return {}
    order = ">" if data[3] & 1 else "<"
    sums = _sums(data[:24], (0, 0), order)
    committed: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    place = 32
    while place + 24 + size <= len(data) and data[place + 8 : place + 16] == data[16:24]:
        page = data[place + 24 : place + 24 + size]
        sums = _sums(page, _sums(data[place : place + 8], sums, order), order)
        number, after, *_, first, second = struct.unpack_from(">6I", data, place)
        if (first, second) != sums:
            break
        pending[number] = page
        if after:
            # So many pages the file has from then on.
            committed = {n: kept for n, kept in {**committed, **pending}.items() if n <= after}
            pending.clear()
        place += 24 + size
    return committed


def _sums(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & 0xFFFFFFFF
        second = (second + words[i + 1] + first) & 0xFFFFFFFF
    return first, second
