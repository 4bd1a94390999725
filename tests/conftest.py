"""What every test shares: one event loop library, and no request to a real model by accident."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from memeplex.endpoint.gate import requests_allowed

settings.register_profile("memeplex", deadline=None)
settings.load_profile("memeplex")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def requests_forbidden(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fixtures that start a fake server allow requests again, with ``requests_allowed()``."""
    with requests_allowed(request.node.get_closest_marker("local_model") is not None):
        yield
