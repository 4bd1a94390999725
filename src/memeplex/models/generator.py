"""The common part of our models: from single raw replies to text or a validated object.

A model supplies ``send``: one request, one raw reply. What to do with an empty, invalid or truncated reply is
decided here, once for all models.
"""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal

from pydantic import BaseModel

from memeplex.errors import (
    EmptyReplyError,
    ModelError,
    RefusalError,
    StructuredOutputError,
)
from memeplex.messages import one_line
from memeplex.models.base import Answering, ChatMessage, Completion, Output, Settings
from memeplex.models.structured import Mode, Verdict, json_schema, judge, response_format
from memeplex.models.tokens import estimate
from memeplex.telemetry import ModelCalled, ReplyRetried, emit
from memeplex.usage import Usage

__all__ = ["Generator", "Reply", "Request"]

ATTEMPTS = 3
"""Replies asked for at most, the first included."""

_SHOWN = 2000
"""Characters of a bad reply that are shown back to the model."""

_SHORT = 1000
"""Characters of a reply that is parsed at once: to repair and validate a longer one may take a while."""
_LONGEST = 32
"""Characters a token at most, averaged over a reply. What is longer comes of an endpoint that ignores ``max_tokens``:
a few megabytes would hold up every later count, cut and repair."""

_WEAKER = {Mode.SCHEMA: Mode.JSON, Mode.JSON: Mode.PROMPT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``format`` is the wire's ``response_format``; ``thrifty`` asks to think less.

    ``output`` is the class asked for, for models that do not speak the wire format.
    """

    messages: Sequence[ChatMessage]
    settings: Settings
    output: type[BaseModel] | None = None
    format: dict[str, object] | None = None
    thrifty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One raw reply. ``refusal`` is why the model, or a filter, did not answer."""

    text: str
    usage: Usage
    finish: Literal["stop", "length"] = "stop"
    refusal: str = ""


def _tell_schema(messages: Sequence[ChatMessage], schema: dict[str, Any]) -> list[ChatMessage]:
    """At the very end, so that the prompt's beginning stays cached."""
    told = "Answer with JSON that satisfies this JSON Schema, and nothing else:\n" + json.dumps(
        schema, ensure_ascii=False
    )
    last = messages[-1] if messages else None
    if last is None or last["role"] != "user":
        return [*messages, ChatMessage(role="user", content=told)]
    return [*messages[:-1], ChatMessage(role="user", content=f"{last['content']}\n\n{told}")]


@dataclass(slots=True)
class _Asking(Generic[Output]):
    """One call's way through its attempts."""

    messages: Sequence[ChatMessage]
    settings: Settings
    window: int
    thrifty: bool = False
    remind: bool = False
    usage: Usage = field(default_factory=Usage)
    replies: list[str] = field(default_factory=list)
    salvaged: Completion[Output] | None = None

    def _grow(self, factor: int) -> None:
        # Half the window at most: an endpoint refuses a reply that could not fit beside its prompt.
        most = max(self.settings.max_tokens, self.window // 2)
        self.settings = replace(self.settings, max_tokens=min(self.settings.max_tokens * factor, most))

    def adapt(self) -> None:
        """Make room for a model that spends its tokens on thinking."""
        self.thrifty = True
        self._grow(4)

    def correct(self, original: Sequence[ChatMessage], reply: Reply, error: str) -> None:
        """Show the reply back, or give a truncated one more room."""
        if reply.finish == "length":
            self._grow(2)
            self.messages = original
            return
        self.remind = True
        fault = f"That reply is not valid: {error}. Answer again, with the corrected JSON only."
        shown = ChatMessage(role="assistant", content=reply.text[:_SHOWN])
        self.messages = [*original, shown, ChatMessage(role="user", content=fault)]

    def take(self, reply: Reply, verdict: Verdict[Output], model: str) -> Completion[Output] | None:
        """The completion, if the reply will do.

        A truncated object that a repair has closed may have lost its end. It is kept aside, and does only
        when more room did not help.
        """
        self.usage += reply.usage
        self.replies.append(reply.text)
        if verdict.value is not None:
            cut = reply.finish == "length" and verdict.repaired
            first = self.salvaged is None
            self.salvaged = Completion(
                text=reply.text, output=verdict.value, usage=self.usage, finish=reply.finish, model=model
            )
            if not (cut and first):
                return self.salvaged
        return None


class Generator(Answering):
    """Text or a validated object out of single raw replies, with bounded retries.

    A subclass supplies ``send``. ``remembers`` says whether an instance keeps what it learnt about its
    endpoint.
    """

    remembers: ClassVar[bool] = True

    def __init__(self, name: str, *, window: int, billions: float | None = None) -> None:
        self.name = name
        self.window = window
        self.billions = billions
        self._mode = Mode.SCHEMA
        self._remind = False

    @abstractmethod
    async def send(self, request: Request) -> Reply | None:
        """One request. ``None`` says that the endpoint does not take this ``format``."""

    async def answer(
        self, messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings
    ) -> Completion[Any]:
        """At most 3 replies are asked for, or 2 when no object is wanted.

        Raises:
            EmptyReplyError: nothing came back, also with more room and less thinking.
            RefusalError: the model, or a filter in front of it, refused.
            StructuredOutputError: no reply satisfied the schema of ``output``.
        """
        if output is None:
            return await self._text(messages, settings)
        return await self._object(messages, output, settings)

    async def count(self, text: str) -> int:
        """Tokens in ``text``; an estimate that errs high."""
        return estimate(text)

    async def aclose(self) -> None:
        """Give back connections; the model can be used again afterwards."""

    def _retried(self, settings: Settings, reason: str) -> None:
        emit(ReplyRetried(model=self.name, purpose=settings.purpose, reason=reason))

    async def _call(self, request: Request) -> Reply | None:
        reply = await self.send(request)
        if reply is None:
            return None
        emit(ModelCalled(model=self.name, purpose=request.settings.purpose, usage=reply.usage))
        if len(reply.text) > (most := request.settings.max_tokens * _LONGEST):
            self._retried(request.settings, f"the reply is cut to {most:,} of {len(reply.text):,} characters")
            reply = replace(reply, text=reply.text[:most], finish="length")
        if reply.refusal:
            refusal = RefusalError(f"{self.name} refused: {one_line(reply.refusal)}")
            refusal.usage = reply.usage
            raise refusal
        return reply

    def _empty(self, asking: _Asking[Any]) -> EmptyReplyError:
        error = EmptyReplyError(
            f"{self.name} sent an empty reply, also with {asking.settings.max_tokens} tokens to spend",
            remedy="turn thinking off for this model, or raise max_tokens",
        )
        error.usage = asking.usage
        return error

    async def _text(self, messages: Sequence[ChatMessage], settings: Settings) -> Completion[None]:
        asking: _Asking[Any] = _Asking(messages, settings, self.window)
        while True:
            reply = await self._call(Request(messages=messages, settings=asking.settings, thrifty=asking.thrifty))
            if reply is None:
                raise ModelError(f"{self.name} refuses a response_format that was not sent")
            asking.usage += reply.usage
            if reply.text.strip():
                return Completion(
                    text=reply.text, output=None, usage=asking.usage, finish=reply.finish, model=self.name
                )
            if asking.thrifty:
                raise self._empty(asking)
            asking.adapt()
            self._retried(settings, "empty reply")

    async def _formatted(self, asking: _Asking[Output], output: type[Output], schema: dict[str, Any]) -> Reply:
        """One reply, in the surest mode that the endpoint takes."""
        while True:
            mode = self._mode
            told = mode is not Mode.SCHEMA or asking.remind or self._remind
            request = Request(
                messages=_tell_schema(asking.messages, schema) if told else asking.messages,
                settings=asking.settings,
                output=output,
                format=response_format(mode, output.__name__, schema),
                thrifty=asking.thrifty,
            )
            reply = await self._call(request)
            if reply is not None:
                return reply
            if mode is Mode.PROMPT:
                raise ModelError(f"{self.name} refuses a response_format that was not sent")
            # From the local variable: of two calls side by side, each may find this out.
            self._mode = _WEAKER[mode]
            self._retried(asking.settings, f"response_format {mode} is not supported")

    async def _object(
        self, messages: Sequence[ChatMessage], output: type[Output], settings: Settings
    ) -> Completion[Output]:
        schema = json_schema(output)
        asking: _Asking[Output] = _Asking(messages, settings, self.window)
        error = ""
        for attempt in range(1, ATTEMPTS + 1):
            reply = await self._formatted(asking, output, schema)
            verdict = await _judged(reply.text, output)
            if completion := asking.take(reply, verdict, self.name):
                return completion
            if not reply.text.strip():
                error = "empty reply"
                if asking.thrifty:
                    raise self._empty(asking)
                asking.adapt()
            else:
                error = verdict.error if reply.finish == "stop" else "the reply is cut at max_tokens"
                # An endpoint that ignores response_format needs the schema in the prompt from now on.
                self._remind |= self.remembers and verdict.blank and reply.finish == "stop"
                # So does one that gives up a schema in silence, as llama.cpp does with keywords it does not know.
                asking.remind |= verdict.blank
                asking.correct(messages, reply, error)
            if attempt < ATTEMPTS:
                self._retried(settings, error)
        if asking.salvaged is not None:
            return replace(asking.salvaged, usage=asking.usage)
        failure = StructuredOutputError(
            f"{self.name} sent no valid {output.__name__} in {ATTEMPTS} replies; the last fault: {error}",
            replies=asking.replies,
            remedy="a simpler schema, a larger max_tokens, or a stronger model",
        )
        failure.usage = asking.usage
        raise failure


async def _judged(text: str, output: type[Output]) -> Verdict[Output]:
    """``judge``, and the event loop goes on meanwhile."""
    return judge(text, output) if len(text) <= _SHORT else await asyncio.to_thread(judge, text, output)
