"""The stores that one suite runs on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memeplex.storage import Store, open_store


@pytest.fixture(params=["sqlite"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, without its name."""
    return f"{request.param}:///{tmp_path}/"


@pytest.fixture
async def store(fresh: str) -> AsyncIterator[Store]:
    """An empty store."""
    opened = open_store(f"{fresh}one.db")
    yield opened
    await opened.aclose()


@pytest.fixture
async def other(fresh: str) -> AsyncIterator[Store]:
    """Another empty store of the same kind."""
    opened = open_store(f"{fresh}two.db")
    yield opened
    await opened.aclose()
