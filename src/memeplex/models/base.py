"""The protocol of a language model."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar, overload

from pydantic import BaseModel, Field

from memeplex.endpoint.address import EndpointOptions
from memeplex.usage import Purpose, Usage

__all__ = ["Answering", "ChatMessage", "Completion", "Model", "ModelOptions", "Settings", "derive_seed", "is_small"]

T = TypeVar("T")
Output = TypeVar("Output", bound=BaseModel)


class ChatMessage(TypedDict):
    """One message of a prompt, as it goes over the wire."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to generate. ``None`` leaves a choice to the model's own defaults.

    ``purpose`` is what the call is for: usage is split by it, and an embedded model keeps a prompt cache for
    each. ``max_tokens`` bounds the reply.
    """

    purpose: Purpose = Purpose.ANSWER
    max_tokens: int = 512
    temperature: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(Generic[T]):
    """A reply: its text, the validated object when one was asked for, and what it cost, retries included."""

    text: str
    output: T
    usage: Usage
    finish: Literal["stop", "length"]
    model: str


class Model(Protocol):
    """A language model: messages in, text or a validated object out.

    ``name`` is what ``create_model`` was given; ``window`` is the longest prompt and reply together, in tokens;
    ``billions`` is the number of parameters where it is known, which sizes the defaults of memory.
    """

    name: str
    window: int
    billions: float | None

    @overload
    async def generate(
        self, messages: Sequence[ChatMessage], output: None = None, settings: Settings = ...
    ) -> Completion[None]: ...
    @overload
    async def generate(
        self, messages: Sequence[ChatMessage], output: type[Output], settings: Settings = ...
    ) -> Completion[Output]: ...

    @overload
    async def generate(
        self, messages: Sequence[ChatMessage], output: type[Output] | None, settings: Settings = ...
    ) -> Completion[Output] | Completion[None]: ...

    async def count(self, text: str) -> int:
        """Tokens in ``text``; where the model's own tokenizer is out of reach, an estimate that errs high."""
        ...

    async def aclose(self) -> None:
        """Give back connections and threads."""
        ...


class Answering(ABC):
    """``Model.generate`` with its types, for classes that supply ``answer``."""

    @overload
    async def generate(
        self, messages: Sequence[ChatMessage], output: None = None, settings: Settings = ...
    ) -> Completion[None]: ...
    @overload
    async def generate(
        self, messages: Sequence[ChatMessage], output: type[Output], settings: Settings = ...
    ) -> Completion[Output]: ...
    @overload
    async def generate(
        self, messages: Sequence[ChatMessage], output: type[Output] | None, settings: Settings = ...
    ) -> Completion[Output] | Completion[None]: ...
    async def generate(
        self, messages: Sequence[ChatMessage], output: type[BaseModel] | None = None, settings: Settings = Settings()
    ) -> Completion[Any]:
        """As ``Model.generate``; ``answer`` says what it raises."""
        return await self.answer(messages, output, settings)

    @abstractmethod
    async def answer(
        self, messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings
    ) -> Completion[Any]:
        """Text, or an object of the class ``output``."""


def is_small(billions: float | None) -> bool:
    """Whether a model of that many parameters is small: up to two billion. One of unknown size is not."""
    return billions is not None and billions <= 2.0


def derive_seed(seed: int, *parts: object) -> int:
    """A seed of 31 bits for one call out of the run's seed: the same parts give the same seed in any process."""
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class ModelOptions(EndpointOptions):
    """What one model name stands for, from a configuration file or the caller. Everything is optional.

    ``body`` is sent along with every request (vendor settings such as ``top_p``).
    """

    window: int | None = Field(default=None, gt=0)
    billions: float | None = None
    temperature: float | None = None
    body: dict[str, Any] = Field(default_factory=dict)
