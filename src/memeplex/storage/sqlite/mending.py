"""Putting a store's rows in order after damage: what cannot be read goes, and no run is left with holes in it.

A run that has lost a turn or a memory, or may have, is cut back to what is whole and counts as interrupted: it is then
as if it had been broken off there, and a resume goes on from there. A finished one that has lost nothing after all ends
at once, as it did.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memeplex.errors import DamagedError
from memeplex.messages import Turn, TurnKind
from memeplex.storage.base import MemoryVersion
from memeplex.storage.changes import EVERYBODY
from memeplex.storage.damage import legible
from memeplex.storage.records import Origin, Record
from memeplex.storage.rows import read_audit, read_record, read_runs, select
from memeplex.storage.sqlite.jobs import read_job
from memeplex.storage.sqlite.salvage import Hole, Salvage
from memeplex.storage.sqlite.write import SQLiteWrite

__all__ = ["Mended", "mend"]

ACTOR = "memeplex doctor"


@dataclass(kw_only=True)
class Mended:
    """What became of the rows. ``lost`` counts by table what is known to be missing; there may be more.

    ``runs`` are lost whole; ``cut`` are cut back, to so many turns; ``owners`` have lost their names.
    """

    lost: Counter[str] = field(default_factory=Counter)
    runs: set[str] = field(default_factory=set)
    cut: dict[str, int] = field(default_factory=dict)
    owners: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether anything had to be done."""
        return bool(+self.lost or self.runs or self.cut or self.owners)


def mend(
    db: sqlite3.Connection, found: Mapping[str, Salvage] | None = None, known: Mapping[str, set[str]] | None = None
) -> Mended:
    """Put the rows in order.

    ``found`` says what has been seen of each table, where it was not whole, and ``known`` which ids there were.
    """
    done, found, known = Mended(), found or {}, known or {}
    holes = {table: seen.holes for table, seen in found.items()}
    db.execute("pragma foreign_keys = off")
    hurt = _drop_unreadable(db, done)
    _orphans(db, known.get("runs", set()), done)
    _runs(db, holes, hurt, done)
    _owners(db, done)
    _records(db, holes, known, done)
    for table, seen in found.items():
        done.lost[table] = max(done.lost[table], seen.refused)
    if done.changed or found:
        _audited(db)
    db.commit()
    db.execute("pragma foreign_keys = on")
    return done


# ---- what cannot be read


def _turn(row: sqlite3.Row) -> None:
    with legible("", "a turn"):
        if Turn.model_validate_json(row["body"]).index != row["idx"]:
            raise ValueError("it is another")


def _version(row: sqlite3.Row) -> None:
    with legible("", "a memory"):
        MemoryVersion.model_validate_json(row["body"])


def _run(row: sqlite3.Row) -> None:
    for error in read_runs("", [dict(row)]).damaged.values():
        raise error


def _revision(row: sqlite3.Row) -> None:
    with legible("", "a revision"):
        Record.model_validate_json(row["body"])
        for origin in (row["origin"], row["ended"]):
            if origin is not None:
                Origin.model_validate_json(origin)


_READERS: dict[str, tuple[str, Callable[[sqlite3.Row], object]]] = {
    "turns": ("select * from turns", _turn),
    "memory_versions": ("select * from memory_versions", _version),
    "runs": ("select * from runs", _run),
    "records": (select("where true"), read_record),
    "revisions": ("select * from revisions", _revision),
    "jobs": ("select * from jobs", read_job),
    "audit": ("select * from audit", lambda row: read_audit(dict(row))),
}
_KEYS = {
    "turns": ("run", "idx"),
    "memory_versions": ("run", "agent", "turn"),
    "runs": ("id",),
    "records": ("id",),
    "revisions": ("record", "revision"),
    "jobs": ("id",),
    "audit": ("id",),
}


def _drop_unreadable(db: sqlite3.Connection, done: Mended) -> dict[str, set[str]]:
    """Delete rows that are whole for the database and cannot be read; gives the runs that this hurts, by the table."""
    hurt: dict[str, set[str]] = {table: set() for table in _KEYS}
    # An outcome is the one part that a run can do without: it comes out again.
    for row in _unreadable(db, "runs"):
        db.execute("update runs set outcome = null where id = ?", (row["id"],))
        hurt["runs"].add(row["id"])
    for table, names in _KEYS.items():
        where = " and ".join(f"{name} = ?" for name in names)
        for row in _unreadable(db, table):
            if table == "turns":
                # What stands behind it does not count either: the run is cut there.
                hurt[table].add(row["run"])
                continue
            db.execute(f"delete from {table} where {where}", [row[name] for name in names])
            done.lost[table] += 1
            if table == "runs":
                done.runs.add(row["id"])
            elif table == "memory_versions":
                hurt[table].add(row["run"])
    return hurt


def _unreadable(db: sqlite3.Connection, table: str) -> list[sqlite3.Row]:
    sql, reader = _READERS[table]
    return [row for row in db.execute(sql) if not _readable(row, reader)]


def _readable(row: sqlite3.Row, reader: Callable[[sqlite3.Row], object]) -> bool:
    try:
        reader(row)
    except DamagedError:
        return False
    return True


# ---- runs


def _orphans(db: sqlite3.Connection, known: set[str], done: Mended) -> None:
    """What belongs to runs that are lost goes with them."""
    for table in ("turns", "memory_versions"):
        orphans = f"from {table} where run not in (select id from runs)"
        done.runs |= {row[0] for row in db.execute(f"select distinct run {orphans}")}
        done.lost[table] += db.execute(f"delete {orphans}").rowcount
    done.runs |= known - _ids(db, "runs")
    done.lost["runs"] = len(done.runs)


def _runs(
    db: sqlite3.Connection, holes: Mapping[str, Sequence[Hole]], hurt: Mapping[str, set[str]], done: Mended
) -> None:
    gaps = "select run from turns group by run having count(*) != max(idx) + 1"
    gapped = {row[0] for row in db.execute(gaps)} | hurt["runs"] | hurt["turns"]
    for run in sorted(_ids(db, "runs")):
        forgetful = run in hurt["memory_versions"] or _within(run, holes.get("memory_versions", ()))
        if forgetful or run in gapped or _within(run, holes.get("turns", ())):
            _cut(db, run, forgetful, done)


def _within(run: str, holes: Iterable[Hole]) -> bool:
    """Whether rows of a run may be missing in a hole."""
    for low, high in holes:
        begun = low is None or str(low[0]) <= run
        ended = high is None or run <= str(high[0])
        # A run whose first turn follows the hole has lost nothing in it.
        after = high is not None and high[:2] == (run, 0) and (low is None or low[0] != run)
        if begun and ended and not after:
            return True
    return False


def _cut(db: sqlite3.Connection, run: str, forgetful: bool, done: Mended) -> None:
    """Leave the turns before the first that is missing, and the memories that go with them."""
    rows = db.execute("select idx, body from turns where run = ? order by idx", (run,)).fetchall()
    spoilt = (at for at, row in enumerate(rows) if row["idx"] != at or not _readable(row, _turn))
    whole = next(spoilt, len(rows))
    turns = [Turn.model_validate_json(row["body"]) for row in rows[:whole]]
    bodies = db.execute("select body from memory_versions where run = ? order by turn, agent", (run,))
    versions = [MemoryVersion.model_validate_json(row["body"]) for row in bodies]
    dropped = [version for version in versions if version.turn >= _reach(version, turns, versions, forgetful)]
    ends = [rows[-1]["idx"] + 1 if rows else 0]
    ends += [version.turn + 1 for version in versions if version.status != "consolidated"]
    db.execute("delete from turns where run = ? and idx >= ?", (run, whole))
    gone = [(run, version.agent, version.turn) for version in dropped]
    db.executemany("delete from memory_versions where run = ? and agent = ? and turn = ?", gone)
    db.execute("update runs set status = 'interrupted', outcome = null where id = ?", (run,))
    done.lost["turns"] += max(ends) - whole
    done.lost["memory_versions"] += len(gone)
    done.cut[run] = whole


def _reach(version: MemoryVersion, turns: Sequence[Turn], versions: Sequence[MemoryVersion], forgetful: bool) -> int:
    """The first turn from which on the versions of this one's agent do not count."""
    if not forgetful:
        return len(turns)
    held = {one.turn for one in versions if one.agent == version.agent}
    if any(one.turn < 0 for one in versions) and not any(turn < 0 for turn in held):
        # Its template is lost, and what it noted is in the slots of that.
        return -1
    own = (turn.index for turn in turns if turn.speaker == version.agent and turn.kind is TurnKind.MESSAGE)
    return next((index for index in own if index not in held), len(turns))


# ---- records


def _owners(db: sqlite3.Connection, done: Mended) -> None:
    """Names for owners that are known by their numbers alone: as a revision or the audit has them, or new ones."""
    sql = """select owner, (select json_extract(body, '$.owner') from revisions v where v.owner = o.owner limit 1),
     (select a.owner from records r join audit a on a.id = r.audit where r.owner = o.owner and a.owner != ? limit 1)
     from (select owner from records union select owner from revisions) o where owner not in (select id from owners)"""
    for number, revised, audited in db.execute(sql, (EVERYBODY,)).fetchall():
        name = revised or audited
        if not name or db.execute("select 1 from owners where name = ?", (name,)).fetchone():
            name = f"lost/{number}"
        db.execute("insert into owners (id, name) values (?, ?)", (number, name))
        done.owners.append(name)


def _records(
    db: sqlite3.Connection, holes: Mapping[str, Sequence[Hole]], known: Mapping[str, set[str]], done: Mended
) -> None:
    # What a page of deleted rows has brought back is forgotten still; what has lost its last revision is gone as well.
    db.execute(
        "delete from records where exists (select 1 from revisions v where v.record = records.id"
        " and v.ended is not null and v.revision >= records.revision)"
    )
    last = """ended is null and record not in (select id from records) and not exists
     (select 1 from revisions later where later.record = revisions.record and later.revision > revisions.revision)"""
    gone = Origin(actor=ACTOR, action="repair", cause="its last revision is lost").model_dump_json()
    unfinished = db.execute(f"update revisions set ended = ? where {last}", (gone,)).rowcount
    done.lost["records"] = max(done.lost["records"], unfinished)
    for table in ("records", "jobs"):
        done.lost[table] = max(done.lost[table], len(known.get(table, set()) - _ids(db, table)))
    if holes.get("revisions"):
        sql = "select max(revision - 1 - (select count(*) from revisions v where v.record = r.id), 0) from records r"
        done.lost["revisions"] += sum(row[0] for row in db.execute(sql))
    foreign = """delete from vectors where not exists (select 1 from records r join embedders e on e.id = embedder
     where r.num = record and r.owner = vectors.owner and length(vector) = 4 * dimension)"""
    done.lost["vectors"] += db.execute(foreign).rowcount + _warped(db)
    if holes.get("vectors") and db.execute("select 1 from embedders").fetchone():
        bare = db.execute("select count(*) from records where num not in (select record from vectors)").fetchone()[0]
        done.lost["vectors"] = max(done.lost["vectors"], bare)


def _ids(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[0] for row in db.execute(f"select id from {table}")}


def _warped(db: sqlite3.Connection) -> int:
    """Delete vectors that are not of length 1 any more; they can be made again."""
    import numpy as np

    def warped(blob: bytes) -> bool:
        with np.errstate(all="ignore"):
            return not abs(float(np.linalg.norm(np.frombuffer(blob, "<f4"))) - 1) < 0.01

    rows = db.execute("select record, vector from vectors")
    gone = [(row[0],) for row in rows if warped(row[1])]
    db.executemany("delete from vectors where record = ?", gone)
    return len(gone)


def _audited(db: sqlite3.Connection) -> None:
    """Index all words anew, in a change with an audit row after all others: the clock of arrays goes by those."""
    clock = """select max((select coalesce(max(id), 0) from audit), (select coalesce(max(max(changed, removed)), 0)
     from owners), (select coalesce(max(changed), 0) from vectors), (select coalesce(max(audit), 0) from records))"""
    db.execute("delete from sqlite_sequence where name = 'audit'")
    db.execute(f"insert into sqlite_sequence (name, seq) values ('audit', ({clock}))")
    db.execute("insert into words (words) values ('delete-all')")
    db.commit()
    owners: list[tuple[str]] = db.execute("select name from owners").fetchall()
    with SQLiteWrite(db, EVERYBODY, ACTOR, "repair", "") as write:
        for (owner,) in owners:
            rows = db.execute(select("where owner = ?"), (write.number_of(owner),))
            write.index(owner, [(row["num"], read_record(row)) for row in rows])
        write.records = max(1, db.execute("select count(*) from records").fetchone()[0])
