"""Opening a database: looked at, and brought up to date by one process while the others wait."""

from importlib.resources import files
from importlib.resources.abc import Traversable

import psycopg

from memeplex.errors import StorageError, StoreVersionError
from memeplex.storage.postgres.pool import SCHEMA, Db

__all__ = ["bring_up_to_date"]

_LOCK = int.from_bytes(b"memeplex", "big")
_EXTENSION = "vector"
_OLDEST = (0, 8)
"""The first version of pgvector that goes on searching when a filter has taken most of what it found."""

_STATE = f"""select to_regnamespace('{SCHEMA}') is not null, to_regclass('{SCHEMA}.migrations') is not null,
 current_setting('server_encoding'), (select extversion from pg_extension where extname = %s)"""


def bring_up_to_date(db: Db, shown: str) -> None:
    """Apply the migrations that are missing; ``shown`` names the store.

    Raises:
        StorageError: it is no store and cannot become one, or is of a newer version.
        psycopg.Error: the server says no.
    """
    folder = files("memeplex.storage.postgres").joinpath("migrations").iterdir()
    scripts = sorted((f for f in folder if f.name.endswith(".sql")), key=lambda f: f.name)
    # Looked at before anything is locked: a store that is up to date is opened without waiting for anybody.
    if _version(db, shown, len(scripts)) == len(scripts):
        return
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        # Looked at again, since another process may have been here first.
        _migrate(db, shown, scripts, _version(db, shown, len(scripts)))


def _version(db: Db, shown: str, known: int) -> int:
    state = db.execute(_STATE, (_EXTENSION,)).fetchone()
    there, ours, encoding, extension = state or (False, False, "", None)
    if encoding != "UTF8":
        raise StorageError(
            f"store {shown}: the database's encoding is {encoding}, which does not hold every text",
            remedy="create one with: createdb --encoding=UTF8 --template=template0",
        )
    if there and not ours and db.execute(_FOREIGN).fetchone():
        raise StorageError(
            f"store {shown}: the schema {SCHEMA} is of another program", remedy="choose another database with --store"
        )
    if not ours:
        return 0
    ((version,),) = db.execute(f"select coalesce(max(number), 0) from {SCHEMA}.migrations").fetchall()
    if version > known:
        raise StoreVersionError(
            f"{shown} was written by a newer version of memeplex (schema {version}, known {known})",
            remedy="upgrade memeplex, or choose another store with --store",
        )
    _check_extension(shown, extension)
    return int(version)


_FOREIGN = f"select 1 from pg_class where relnamespace = to_regnamespace('{SCHEMA}') limit 1"


def _migrate(db: Db, shown: str, scripts: list[Traversable], version: int) -> None:
    if version == 0:
        db.execute(f"create schema if not exists {SCHEMA}")
        db.execute("create table migrations (number integer primary key, applied timestamptz not null default now())")
        _make_extension(db, shown)
    for number, script in enumerate(scripts[version:], version + 1):
        db.execute(script.read_text("utf-8").encode())
        db.execute("insert into migrations (number) values (%s)", (number,))


def _make_extension(db: Db, shown: str) -> None:
    version = "select extversion from pg_extension where extname = %s"
    found = db.execute(version, (_EXTENSION,)).fetchone()
    if found is None:
        if not db.execute("select 1 from pg_available_extensions where name = %s", (_EXTENSION,)).fetchone():
            raise StorageError(
                f"store {shown}: the server has no extension {_EXTENSION!r}",
                remedy="install pgvector on the server (github.com/pgvector/pgvector), then try again",
            )
        try:
            # Beside our schema, not in it: it is everybody's.
            db.execute(f"create extension {_EXTENSION} schema public")
        except psycopg.errors.InsufficientPrivilege as error:
            raise StorageError(
                f"store {shown}: this role may not create the extension {_EXTENSION!r}",
                remedy=f"have an administrator run, in this database: create extension {_EXTENSION};",
            ) from error
        found = db.execute(version, (_EXTENSION,)).fetchone()
    _check_extension(shown, found[0] if found else None)


def _check_extension(shown: str, version: str | None) -> None:
    if version is None:
        raise StorageError(
            f"store {shown}: the extension {_EXTENSION!r} has been dropped from the database",
            remedy="restore a copy of the database: the vectors went with it",
        )
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise StorageError(
            f"store {shown}: pgvector {version} is older than {'.'.join(map(str, _OLDEST))}",
            remedy=f"upgrade pgvector on the server, and run: alter extension {_EXTENSION} update;",
        )
