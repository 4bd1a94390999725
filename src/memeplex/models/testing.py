"""Models that need no model: scripted, computed and recorded replies.

Their replies are parsed, repaired and validated exactly as a real model's are. Usage is estimated from the
texts, so that it is the same in every run. ``FunctionModel`` and ``RecordedModel`` depend on content alone: a
process that resumes a run gets the replies that the first one would have got.
"""

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from memeplex.errors import ModelError, RequestForbiddenError, UserError
from memeplex.messages import clean_text
from memeplex.models.base import ChatMessage, Completion, Model, ModelOptions, Settings
from memeplex.models.generator import Generator, Reply, Request
from memeplex.models.structured import json_schema
from memeplex.models.tokens import estimate, estimate_messages
from memeplex.usage import Purpose, Usage

__all__ = ["Call", "FunctionModel", "RecordedModel", "ScriptedModel", "create_recorded"]

DEFAULT_WINDOW = 8192

Answer = str | BaseModel | Mapping[str, Any]
Function = Callable[[Sequence[ChatMessage], type[BaseModel] | None, Settings], Answer | Awaitable[Answer]]


def _text(answer: Answer) -> str:
    if isinstance(answer, BaseModel):
        return clean_text(answer.model_dump_json())
    return clean_text(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def _usage(messages: Sequence[ChatMessage], text: str) -> Usage:
    return Usage(input=estimate_messages(messages), output=estimate(text), calls=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that a ``ScriptedModel`` has had. ``schema`` is what the reply was asked to satisfy."""

    messages: tuple[ChatMessage, ...]
    settings: Settings
    schema: dict[str, object] | None


class ScriptedModel(Generator):
    """Gives the replies of a list, in order; an exception in the list is raised.

    ``replies`` may be a mapping from ``Purpose``, so that the order of unlike calls does not matter.
    ``calls`` holds every request. A list that is used up raises ``ModelError``.
    """

    remembers = False

    def __init__(
        self,
        replies: Sequence[Answer | Exception] | Mapping[Purpose, Sequence[Answer | Exception]],
        *,
        name: str = "scripted",
        window: int = DEFAULT_WINDOW,
        billions: float | None = None,
    ) -> None:
        super().__init__(name, window=window, billions=billions)
        self.calls: list[Call] = []
        self._replies = dict(replies) if isinstance(replies, Mapping) else list(replies)
        self._given: dict[Purpose | None, int] = {}

    async def send(self, request: Request) -> Reply | None:
        """The next reply of the script."""
        purpose = request.settings.purpose if isinstance(self._replies, dict) else None
        script = self._replies.get(request.settings.purpose, ()) if isinstance(self._replies, dict) else self._replies
        given = self._given.get(purpose, 0)
        schema = (request.format or {}).get("json_schema")
        self.calls.append(
            Call(
                messages=tuple(request.messages),
                settings=request.settings,
                schema=schema["schema"] if isinstance(schema, dict) else None,
            )
        )
        if given >= len(script):
            raise ModelError(
                f"{self.name} has no reply left for {request.settings.purpose.value!r}, after {given}",
                remedy="give the script more replies, by purpose where calls are unlike: {'answer': [...], …}",
            )
        self._given[purpose] = given + 1
        answer = script[given]
        if isinstance(answer, Exception):
            raise answer
        text = _text(answer)
        return Reply(text=text, usage=_usage(request.messages, text))


class FunctionModel(Generator):
    """Gives what ``function(messages, output, settings)`` returns: a text, a mapping or a Pydantic object.

    The function may be async. ``output`` is the class asked for, or ``None`` where a text is wanted. It is
    called again, with the correction appended, when its reply is not valid.
    """

    remembers = False

    def __init__(
        self,
        function: Function,
        *,
        name: str = "function",
        window: int = DEFAULT_WINDOW,
        billions: float | None = None,
    ) -> None:
        super().__init__(name, window=window, billions=billions)
        self._function = function

    async def send(self, request: Request) -> Reply | None:
        """What the function makes of the request."""
        answer = self._function(request.messages, request.output, request.settings)
        text = _text(await answer if inspect.isawaitable(answer) else answer)
        return Reply(text=text, usage=_usage(request.messages, text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """One line of a recording."""

    key: str
    text: str
    usage: Usage
    finish: Literal["stop", "length"] = "stop"


_lines: TypeAdapter[_Recorded] = TypeAdapter(_Recorded)


def request_key(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> str:
    """What a request is found by: a hash of messages, schema and settings; the purpose does not count."""
    generation = [settings.max_tokens, settings.temperature, settings.seed]
    plain = [[m["role"], m["content"]] for m in messages]
    content = [plain, json_schema(output) if output else None, generation]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


class RecordedModel(Generator):
    """Replays the replies of a file, and records what is missing where an ``inner`` model is given.

    The file holds one JSON object a line. A line is written whole and flushed before the reply is handed out;
    a last line cut short by a crash is dropped. The recorded usage is replayed, with no seconds.

    Raises:
        UserError: the file is not a recording, or is missing and there is no inner model.
    """

    remembers = False

    def __init__(self, path: Path | str, inner: Model | None = None, *, name: str = "", window: int = 0) -> None:
        self.path = Path(path)
        self.inner = inner
        window = window or (inner.window if inner else DEFAULT_WINDOW)
        super().__init__(name or f"recorded:{self.path}", window=window, billions=inner.billions if inner else None)
        self._replies = self._load()

    def _load(self) -> dict[str, _Recorded]:
        if not self.path.exists():
            if self.inner is None:
                raise UserError(f"no recording at {self.path}", remedy="record one: RecordedModel(path, inner)")
            return {}
        replies: dict[str, _Recorded] = {}
        for number, line in enumerate(self._read().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break
            try:
                reply = _lines.validate_json(line)
            except ValidationError as error:
                raise UserError(f"{self.path}:{number}: not a line of a recording") from error
            replies[reply.key] = reply
        return replies

    def _read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror})", remedy="give a recording") from error

    def _append(self, reply: _Recorded) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = _lines.dump_json(reply) + b"\n"
        with self.path.open("ab+") as file:
            end = file.tell()
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            if whole < end:
                file.truncate(whole)
            file.write(line)
            file.flush()
        self._replies[reply.key] = reply

    async def send(self, request: Request) -> Reply | None:
        """The recorded reply.

        Raises:
            RequestForbiddenError: there is none.
        """
        found = self._replies.get(request_key(request.messages, request.output, request.settings))
        if found is None:
            start = " ".join(request.messages[-1]["content"].split())[:60] if request.messages else ""
            raise RequestForbiddenError(
                f"{self.path} holds no reply to this {request.settings.purpose.value} request: {start!r}",
                remedy="record it: RecordedModel(path, inner) with a real model as inner",
            )
        return Reply(text=found.text, usage=found.usage, finish=found.finish)

    async def answer(
        self, messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings
    ) -> Completion[Any]:
        """From the recording; asks the inner model, and records, when the request is new.

        Raises:
            RequestForbiddenError: the request is new, and there is no inner model.
        """
        key = request_key(messages, output, settings)
        if self.inner is None or key in self._replies:
            return await super().answer(messages, output, settings)
        fresh = await self.inner.generate(messages, output, settings)
        spent = fresh.usage
        usage = Usage(input=spent.input, cached=spent.cached, output=spent.output, calls=spent.calls)
        self._append(_Recorded(key=key, text=fresh.text, usage=usage, finish=fresh.finish))
        return fresh

    async def count(self, text: str) -> int:
        """An estimate, with an inner model too: prompts must be fitted alike when recording and replaying."""
        return estimate(text)

    async def aclose(self) -> None:
        """Close the inner model, if there is one."""
        if self.inner is not None:
            await self.inner.aclose()


def create_recorded(name: str, options: ModelOptions) -> Model:
    """``recorded:FILE``: replays an earlier run.

    Raises:
        UserError: there is no such file, or it is not a recording.
    """
    return RecordedModel(name.partition(":")[2], name=name, window=options.window or 0)
