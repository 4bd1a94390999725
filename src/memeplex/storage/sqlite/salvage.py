"""What a damaged file still holds, put into the tables of a new one.

Rows are told by their shape: tables are strict, and no two of them, nor an index, look alike. So the schema of the
damaged file need not be readable.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field

from memeplex.storage.sqlite.pages import Pages, Row, Value

__all__ = ["Hole", "Salvage", "Shape", "fill", "ids", "shapes"]

_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "TEXT": (str,), "REAL": (int, float), "BLOB": (bytes,)}

Key = tuple[Value, ...]
Hole = tuple[Key | None, Key | None]
"""Between which two keys rows of a table may be missing; ``None`` is its beginning or its end."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A table, as its rows lie in the file; ``columns`` are names, types, and whether they may be null."""

    table: str
    columns: tuple[tuple[str, str, bool], ...]
    keys: int
    rowid: int | None
    clustered: bool

    def values(self, row: Row) -> tuple[Value, ...] | None:
        """The row's values, if it is of this table."""
        if len(row.values) != len(self.columns) or (row.rowid is None) != self.clustered:
            return None
        values = list(row.values)
        if self.rowid is not None:
            if values[self.rowid] is not None:
                return None
            values[self.rowid] = row.rowid
        for value, (_, kind, nullable) in zip(values, self.columns, strict=True):
            if not (nullable if value is None else isinstance(value, _TYPES[kind])):
                return None
        return tuple(values)


@dataclass
class Salvage:
    """What has been seen of one table: first and last keys of its parts, its holes, and how many rows do not fit it."""

    parts: list[tuple[Key, Key]] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    refused: int = 0


def shapes(db: sqlite3.Connection) -> list[Shape]:
    """The tables of a store."""
    listed = db.execute("select name, wr from pragma_table_list where schema = 'main' and type = 'table' and strict")
    return [_shape(db, name, bool(clustered)) for name, clustered in listed.fetchall()]


def _shape(db: sqlite3.Connection, table: str, clustered: bool) -> Shape:
    # Generated columns are not in the file. A table without rowids begins with its key.
    rows = [row for row in db.execute(f"pragma table_xinfo({table})") if not row["hidden"]]
    keys = sorted((row for row in rows if row["pk"]), key=lambda row: int(row["pk"]))
    if clustered:
        rows = [*keys, *(row for row in rows if not row["pk"])]
    alias = None if clustered or keys[0]["type"] != "INTEGER" else rows.index(keys[0])
    columns = tuple((row["name"], row["type"], not row["notnull"] and not row["pk"]) for row in rows)
    return Shape(table=table, columns=columns, keys=len(keys), rowid=alias, clustered=clustered)


def fill(db: sqlite3.Connection, pages: Pages) -> dict[str, Salvage]:
    """Put all rows that can be read into the tables of ``db``; gives what was seen of each."""
    known = shapes(db)
    found = {shape.table: Salvage() for shape in known}
    # The named ones first: of a row that is there twice, the one in its table's own tree is kept.
    for root in sorted(pages.roots, key=lambda root: root not in pages.named.values()):
        _plant(db, known, pages.walk(root), found)
    for table, seen in found.items():
        seen.holes += _between(seen.parts, empty=pages.is_empty(pages.named.get(table, 0)))
    return found


def _plant(db: sqlite3.Connection, known: list[Shape], rows: Iterator[Row | None], found: dict[str, Salvage]) -> None:
    """Insert the rows of one tree, which is of the table that its first rows are of."""
    shape, first, last = None, None, None
    broken = False
    for row in rows:
        values = None
        if row is not None:
            shape = shape or next((one for one in known if one.values(row) is not None), None)
            values = shape.values(row) if shape else None
        if shape is None or values is None or not _insert(db, shape, values):
            broken = True
            if shape is not None and row is not None:
                found[shape.table].refused += 1
            continue
        key = values[: shape.keys] if shape.clustered else (values[shape.rowid or 0],)
        if broken:
            found[shape.table].holes.append((last, key))
        first, last, broken = first or key, key, False
    if shape is not None and first is not None and last is not None:
        found[shape.table].parts.append((first, last))
        if broken:
            found[shape.table].holes.append((last, None))


def _insert(db: sqlite3.Connection, shape: Shape, values: tuple[Value, ...]) -> bool:
    names = ", ".join(name for name, _, _ in shape.columns)
    marks = ", ".join("?" * len(values))
    sql = f"insert into {shape.table} ({names}) values ({marks}) on conflict do nothing"
    try:
        db.execute(sql, values)
    except sqlite3.Error:
        # A value that its column refuses: JSON that is none, for instance.
        return False
    return True


def ids(pages: Pages, table: str) -> set[str]:
    """The ids that the index of a table knows, whether or not their rows are there."""
    root = pages.named.get(f"sqlite_autoindex_{table}_1", 0)
    rows = pages.walk(root) if root else ()
    return {row.values[0] for row in rows if row is not None and row.values and isinstance(row.values[0], str)}


def _between(parts: list[tuple[Key, Key]], *, empty: bool) -> list[Hole]:
    """Where rows may be missing between the parts of a table. A whole one has one part, or is known to be empty."""
    if not parts:
        return [] if empty else [(None, None)]
    if len(parts) == 1:
        return []
    parts = sorted(parts, key=lambda part: [(value is not None, value) for value in part[0]])
    edges: list[Key | None] = [None, *(key for part in parts for key in part), None]
    return list(zip(edges[::2], edges[1::2], strict=True))
