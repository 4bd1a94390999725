"""Reading what an OpenAI-compatible endpoint answers: replies, usage, and what went wrong."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from memeplex.endpoint.answer import Answer, amount, load, mapping
from memeplex.messages import clean_text
from memeplex.models.generator import Reply
from memeplex.models.tokens import Counter
from memeplex.usage import Usage

__all__ = [
    "field_refused",
    "format_refused",
    "read_reply",
    "without_thoughts",
]

_FORMAT = re.compile(r"response_format|json_schema|json_object|grammar|guided|structured.?output", re.I)
_REFUSED = re.compile(r"not support|unsupported|unknown|unrecogni[sz]ed|not permitted|not allowed", re.I)
_OPTIONAL = ("reasoning_effort", "max_tokens", "temperature", "seed")
_THOUGHTS = re.compile(r"(?:\s*<\s*think(?:ing)?\s*>.*?(?:<\s*/\s*think(?:ing)?\s*>\s*|\Z))+", re.S | re.I)
_THOUGHTS_END = re.compile(r"\A(?:(?!<\s*think).)*?<\s*/\s*think(?:ing)?\s*>\s*", re.S | re.I)


def without_thoughts(text: str) -> str:
    """A reply without the ``<think>…</think>`` in front, be it several; an unclosed one leaves nothing."""
    if found := _THOUGHTS.match(text):
        text = text[found.end() :]
    # Some chat templates open the tag in the prompt, so that only its end is in the reply; so it is of nested ones.
    return _THOUGHTS_END.sub("", text, count=1)


def _content(value: object) -> str:
    if isinstance(value, list):
        return "".join(str(mapping(part).get("text") or "") for part in value)
    return value if isinstance(value, str) else ""


def _usage(data: Mapping[str, object], seconds: float, text: str, prompt: Callable[[], int], counter: Counter) -> Usage:
    told = mapping(data.get("usage"))
    sent = amount(told.get("prompt_tokens"))
    output = amount(told.get("completion_tokens"))
    cached = amount(mapping(told.get("prompt_tokens_details")).get("cached_tokens"))
    if cached is None:
        cached = amount(mapping(data.get("timings")).get("cache_n"))
    sent = prompt() if sent is None else sent
    return Usage(
        input=sent,
        cached=min(cached or 0, sent),
        output=counter(text) if output is None else output,
        calls=1,
        seconds=seconds,
    )


def read_reply(answer: Answer, seconds: float, prompt: Callable[[], int], counter: Counter) -> Reply | None:
    """The reply in an answer with status 200; ``None`` when there is none in it.

    ``prompt`` and ``counter`` count tokens where the endpoint does not say.
    """
    data = load(answer.text)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    choice = mapping(choices[0])
    message = mapping(choice.get("message"))
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
