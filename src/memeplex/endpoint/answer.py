"""What an endpoint answers over HTTP, and the typed error for what went wrong."""

import json
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

__all__ = ["Answer", "amount", "failure", "load", "mapping", "masked", "too_long"]

_CONTEXT = re.compile(
    r"context.{0,20}(length|window|size|limit)|maximum context|exceed.{0,40}(context|window)|n_ctx"
    r"|prompt is too long|too many (input )?tokens|too large to process",
    re.I | re.S,
)


_MOST = 2**53
"""Beyond it, a count is none."""

_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


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
    # JSON as Python reads it holds NaN, infinities, and numbers of any length.
    return int(value) if isinstance(value, int | float) and 0 <= value < _MOST else None


def load(text: str) -> dict[str, object]:
    """The JSON object in a text; an empty one if there is none."""
    # Not Pydantic: it refuses lone surrogates, which some models do write.
    try:
        return mapping(json.loads(text.removeprefix("\ufeff")))
    except (ValueError, RecursionError):
        return {}


def masked(text: str, secret: str) -> str:
    """Without the secret, also where control characters that a terminal swallows stand within it."""
    if not secret:
        return text
    bare = _CONTROLS.sub("", text)
    return bare.replace(secret, "***") if secret in bare else text


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
    return one_line(masked(text, secret), 200)


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
    if 300 <= status < 400:
        there = one_line(masked(clean_text(answer.headers.get("Location", "")), secret), 200)
        return ModelError(
            message, remedy=f"use the address that it points to: {there}" if there else "mend the address"
        )
    if 200 <= status < 300:
        return ModelError(f"{where}: the answer holds no reply: {detail}", remedy="does the address end in /v1?")
    return ModelError(message)
