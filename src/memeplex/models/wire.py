"""Reading what an OpenAI-compatible endpoint answers: replies, usage, and what went wrong."""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from memeplex.errors import (
    AuthenticationError,
    ContextWindowError,
    ModelError,
    ModelNotFoundError,
    ModelUnavailableError,
)
from memeplex.messages import clean_text
from memeplex.models.generator import Reply
from memeplex.models.structured import one_line
from memeplex.models.tokens import Counter
from memeplex.usage import Usage

__all__ = [
    "Answer",
    "failure",
    "field_refused",
    "format_refused",
    "read_reply",
    "too_long",
    "without_thoughts",
]

_FORMAT = re.compile(r"response_format|json_schema|json_object|grammar|guided|structured.?output", re.I)
_CONTEXT = re.compile(
    r"context.{0,20}(length|window|size|limit)|maximum context|exceed.{0,40}(context|window)|n_ctx"
    r"|prompt is too long|too many (input )?tokens",
    re.I | re.S,
)
_REFUSED = re.compile(r"not support|unsupported|unknown|unrecogni[sz]ed|not permitted|not allowed", re.I)
_OPTIONAL = ("reasoning_effort", "max_tokens", "temperature", "seed")
_THOUGHTS = re.compile(r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>\s*|\Z)", re.S)
_THOUGHTS_END = re.compile(r"\A(?:(?!<think).)*?</think>\s*", re.S)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    text: str


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _amount(value: object) -> int | None:
    # JSON as Python reads it holds NaN and infinities.
    return int(value) if isinstance(value, int | float) and 0 <= value < math.inf else None


def _load(text: str) -> dict[str, object]:
    # Not Pydantic: it refuses lone surrogates, which some models do write.
    try:
        return _mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def without_thoughts(text: str) -> str:
    """A reply without the ``<think>…</think>`` in front; an unclosed one leaves nothing."""
    if found := _THOUGHTS.match(text):
        return text[found.end() :]
    # Some chat templates open the tag in the prompt, so that only its end is in the reply.
    return _THOUGHTS_END.sub("", text, count=1) if "</think>" in text else text


def _content(value: object) -> str:
    if isinstance(value, list):
        return "".join(str(_mapping(part).get("text") or "") for part in value)
    return value if isinstance(value, str) else ""


def _usage(data: Mapping[str, object], seconds: float, text: str, prompt: Callable[[], int], counter: Counter) -> Usage:
    told = _mapping(data.get("usage"))
    sent = _amount(told.get("prompt_tokens"))
    output = _amount(told.get("completion_tokens"))
    cached = _amount(_mapping(told.get("prompt_tokens_details")).get("cached_tokens"))
    if cached is None:
        cached = _amount(_mapping(data.get("timings")).get("cache_n"))
    return Usage(
        input=prompt() if sent is None else sent,
        cached=cached or 0,
        output=counter(text) if output is None else output,
        calls=1,
        seconds=seconds,
    )


def read_reply(answer: Answer, seconds: float, prompt: Callable[[], int], counter: Counter) -> Reply | None:
    """The reply in an answer with status 200; ``None`` when there is none in it.

    ``prompt`` and ``counter`` count tokens where the endpoint does not say.
    """
    data = _load(answer.text)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    choice = _mapping(choices[0])
    message = _mapping(choice.get("message"))
    text = clean_text(without_thoughts(_content(message.get("content"))))
    refusal = clean_text(_content(message.get("refusal")))
    if choice.get("finish_reason") == "content_filter":
        refusal = refusal or "the endpoint's content filter stopped the reply"
    finish: Literal["stop", "length"] = "length" if choice.get("finish_reason") == "length" else "stop"
    usage = _usage(data, seconds, text, prompt, counter)
    return Reply(text=text, usage=usage, finish=finish, refusal=refusal)


def format_refused(answer: Answer) -> bool:
    """Whether the endpoint says that it does not take the ``response_format``."""
    return answer.status == 501 or (answer.status in (400, 422) and bool(_FORMAT.search(answer.text)))


def field_refused(answer: Answer, sent: Collection[str]) -> str:
    """The optional field, among those sent, that the endpoint says it does not know; else nothing."""
    if answer.status not in (400, 422) or not _REFUSED.search(answer.text):
        return ""
    return next((key for key in _OPTIONAL if key in sent and re.search(rf"\b{key}\b", answer.text)), "")


def too_long(text: str) -> bool:
    """Whether an error speaks of a prompt that is longer than the window."""
    return bool(_CONTEXT.search(text))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from either form of the header."""
    value = headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _detail(answer: Answer, secret: str) -> str:
    error = _load(answer.text).get("error")
    told = _mapping(error).get("message") or error or _load(answer.text).get("message") or answer.text
    text = clean_text(told if isinstance(told, str) else json.dumps(told))
    # Before it is cut: half a key is a secret too.
    return one_line(text.replace(secret, "***") if secret else text, 200)


def failure(answer: Answer, where: str, *, secret: str = "", key_name: str | None = None) -> ModelError:
    """The typed error for an answer that holds no reply. ``secret`` is kept out of its message."""
    error = _mapping(_load(answer.text).get("error"))
    status = answer.status
    if status == 200:
        # OpenRouter and others wrap an error of the model behind them in a success.
        status = _amount(error.get("code")) or (502 if error else 200)
    detail = _detail(answer, secret)
    message = f"{where}: HTTP {status}, {detail or 'no reason given'}"
    if status in (401, 403):
        remedy = f"set the environment variable {key_name}" if key_name else "check the api_key"
        return AuthenticationError(message, remedy=remedy)
    if status in (400, 413, 422, 500) and too_long(answer.text):
        return ContextWindowError(message, remedy="lower context_tokens, or set the model's window")
    if status in (408, 429) or status >= 500:
        return ModelUnavailableError(message, retry_after=_retry_after(answer.headers))
    if status == 404:
        return ModelNotFoundError(message, remedy="check the model's name and the address")
    if status == 200:
        return ModelError(f"{where}: the answer holds no reply: {detail}", remedy="does the address end in /v1?")
    return ModelError(message)
