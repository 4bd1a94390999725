"""What a command finds records by: its embedder, closed with it, and a word where meaning could not be searched."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from memeplex.cli.config import Embedders, load_settings
from memeplex.cli.output import say
from memeplex.memory.archive import Archive
from memeplex.storage import Store
from memeplex.telemetry import EmbeddingFailed, Event, subscribe

__all__ = ["opened_archive", "words_only_told"]


@asynccontextmanager
async def opened_archive(store: Store, embedder: str | None) -> AsyncIterator[Archive]:
    """The records of a store, with the embedder that is named; else with the settings', else with the embedded one.

    Raises:
        UnknownNameError: nothing has that name.
        MissingExtraError: it needs an extra that is not installed.
        AuthenticationError: it needs a key, and there is none.
    """
    settings = load_settings()
    embedders = Embedders(settings)
    name = embedder if embedder is not None else settings.embedder or "auto"
    try:
        yield Archive(store.records, embedders.get(name))
    finally:
        await embedders.aclose()


@contextmanager
def words_only_told(*, quiet: bool = False) -> Iterator[None]:
    """Say why records are kept or found by their words alone; each reason once."""
    told: set[str] = set()

    def tell(event: Event) -> None:
        if isinstance(event, EmbeddingFailed) and event.cause not in told and not quiet:
            told.add(event.cause)
            say(f"embedder {event.embedder}: {event.cause}")

    with subscribe(tell):
        yield
