"""What an endpoint answers over HTTP, and the typed error for what went wrong."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from memeplex.errors import (
    AuthenticationError,
    ContextWindowError,
    ModelError,
    ModelNotFoundError,
    ModelUnavailableError,
)
from memeplex.messages import clean_text, one_line

__all__ = ["Answer", "amount", "failure", "load", "mapping", "too_long"]

_CONTEXT = re.compile(
    r"context.{0,20}(length|window|size|limit)|maximum context|exceed.{0,40}(context|window)|n_ctx"
    r"|prompt is too long|too many (input )?tokens|too large to process",
    re.I | re.S,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    text: str


def mapping(value: object) -> dict[str, object]:
    """``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def amount(value: object) -> int | None:
    """A count in an answer; ``None`` for what no count can be."""
    # JSON as Python reads it holds NaN and infinities.
    return int(value) if isinstance(value, int | float) and 0 <= value < math.inf else None


def load(text: str) -> dict[str, object]:
    """The JSON object in a text; an empty one if there is none."""
    # Not Pydantic: it refuses lone surrogates, which some models do write.
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


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
    error = load(answer.text).get("error")
    told = mapping(error).get("message") or error or load(answer.text).get("message") or answer.text
    text = clean_text(told if isinstance(told, str) else json.dumps(told))
    # Before it is cut: half a key is a secret too.
    return one_line(text.replace(secret, "***") if secret else text, 200)


def failure(answer: Answer, where: str, *, secret: str = "", key_name: str | None = None) -> ModelError:
    """The typed error for an answer that holds no reply. ``secret`` is kept out of its message."""
    error = mapping(load(answer.text).get("error"))
    status = answer.status
    if status == 200:
        # OpenRouter and others wrap an error of the model behind them in a success.
        status = amount(error.get("code")) or (502 if error else 200)
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
