"""The stores that one suite runs on."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from storage.servers import Server, server

from memeplex.storage import Store, file_of, open_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The session's PostgreSQL server. Where it does not start, tests fail: none is skipped."""
    with server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Gives URLs of empty stores, by their names."""
    with ExitStack() as databases:
        if request.param == "postgresql":
            running: Server = request.getfixturevalue("postgres")
            yield lambda name: databases.enter_context(running.database())
        else:
            yield lambda name: f"sqlite:///{tmp_path}/{name}.db"


@pytest.fixture
async def store(fresh: Callable[[str], str]) -> AsyncIterator[Store]:
    """An empty store."""
    opened = open_store(fresh("one"))
    yield opened
    await opened.aclose()


@pytest.fixture
async def other(fresh: Callable[[str], str]) -> AsyncIterator[Store]:
    """Another empty store of the same kind."""
    opened = open_store(fresh("two"))
    yield opened
    await opened.aclose()


@pytest.fixture
def tamper(store: Store) -> Callable[..., None]:
    """Executes statements on what lies below the store."""

    def execute(*statements: str) -> None:
        path = file_of(store.url)
        db: Any = (
            closing(sqlite3.connect(path, isolation_level=None))
            if path
            else psycopg.connect(store.url, autocommit=True, options="-c search_path=memeplex")
        )
        with db as connection:
            for statement in statements:
                connection.execute(statement)

    return execute
