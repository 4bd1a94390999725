"""Talking to language models.

A name says where a model runs: ``local:qwen2.5-coder-0.5b`` in this process, ``openai:NAME``, ``ollama:NAME`` or
``http://host/v1#NAME`` at any OpenAI-compatible endpoint, ``recorded:FILE`` from an earlier run, and
``anthropic:NAME`` (or any other vendor) with the extra ``providers``.
"""

from memeplex.errors import UnknownNameError
from memeplex.models.base import ChatMessage, Completion, Model, ModelOptions, Settings, derive_seed, is_small
from memeplex.models.structured import schema_model
from memeplex.registry import Registry

__all__ = [
    "ChatMessage",
    "Completion",
    "Model",
    "ModelOptions",
    "Settings",
    "create_model",
    "derive_seed",
    "is_small",
    "model_providers",
    "schema_model",
]

model_providers = Registry(
    "model provider",
    "memeplex.models",
    {
        "http": "memeplex.models.openai:create_endpoint",
        "https": "memeplex.models.openai:create_endpoint",
        "local": "memeplex.models.local:create",
        "ollama": "memeplex.models.openai:create_ollama",
        "openai": "memeplex.models.openai:create_openai",
        "recorded": "memeplex.models.testing:create_recorded",
    },
)
"""Factories by the part of a model's name before the first colon: ``(name, options) -> Model``."""


def create_model(name: str, options: ModelOptions | None = None) -> Model:
    """The model of that name. Nothing is fetched and no connection is opened before the first call.

    Raises:
        UnknownNameError: the name has no provider in front, or an unknown one.
        MissingExtraError: the provider needs an extra that is not installed.
        ModelNotFoundError: the weights of a local model are not in the cache folder.
    """
    provider, colon, rest = name.partition(":")
    if not (colon and rest):
        raise UnknownNameError("model", name, remedy="write PROVIDER:NAME, such as local:qwen2.5-coder-0.5b")
    if provider in model_providers:
        model: Model = model_providers.load(provider)(name, options or ModelOptions())
        return model
    from memeplex.models.providers import create_vendor

    return create_vendor(name, options or ModelOptions())
