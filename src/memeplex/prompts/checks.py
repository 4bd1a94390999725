"""What a model's new text for a prompt has to pass before anybody tries it out."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator

from memeplex.errors import PromptError
from memeplex.prompts.prompt import Prompt

__all__ = ["faults", "room"]

_RUN = 5
"""So many words in a row that stand in the evidence too are copied from it."""
_LEAST = 2
"""Words of a text."""
_SHORT = 600
"""Characters that a section may have, however short it was before."""

_CODE = re.compile(r"\A\s*```\w*\n(.*?)\n?```\s*\Z", re.DOTALL)
_WORD = re.compile(r"\w+")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_INJECTIONS = {
    "it tells a model to leave its instructions": re.compile(
        r"\b(ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}"
        r"\b(instructions?|rules?|prompts?|guidelines|above|previous|prior|earlier)\b",
        re.IGNORECASE,
    ),
    "it gives away its prompt or its memory": re.compile(
        r"\b(reveal|print|repeat|output|show|leak|disclose|send|post|forward)\b[^.\n]{0,40}"
        r"\b(system prompt|prompts?|instructions|passwords?|api keys?|secrets?|credentials|memor(?:y|ies))\b",
        re.IGNORECASE,
    ),
    "it gives a model another identity": re.compile(
        r"\b(you are now|from now on,? you are|new (system )?(prompt|instructions)|developer mode|jailbreak)\b",
        re.IGNORECASE,
    ),
    "it wants to be spread": re.compile(
        r"\b(copy|spread|pass|include|insert|propagate|replicate)\b[^.\n]{0,40}"
        r"\b(this (prompt|text|message|sentence|instruction)|other agents|every (agent|prompt|message))\b",
        re.IGNORECASE,
    ),
    "it has marks of a chat format": re.compile(
        r"<\|[^|\n]{1,40}\|>|\[/?INST\]|<</?SYS>>|^\s*(system|user|assistant|human)\s*:|^#+\s*(system|user|assistant)\b",
        re.IGNORECASE | re.MULTILINE,
    ),
    "it has marks of a block of data": re.compile(
        r"<\s*/?\s*(task|memory|message|proposal|turns|experience)\s*>|^\s*---\s*$", re.IGNORECASE | re.MULTILINE
    ),
    "it has marks of a template": re.compile(r"\{%|%\}|\{#|#\}"),
    "it leads elsewhere": re.compile(r"\b(?:https?|ftp|file|data|javascript):|\bwww\.", re.IGNORECASE),
}


def faults(old: Prompt, new: Prompt, *, evidence: Iterable[str] = (), longest: float = 2.0) -> list[str]:
    """What is wrong with the new text, in words; nothing, if it may be tried.

    Each section may be ``longest`` times as long as before, or 600 characters. It has words and all its placeholders,
    is no JSON and no code block, has no marks of an injection, and no run of five words or more that ``evidence`` has
    and the old text has not.
    """
    found: list[str] = [f"{title!r} may not be changed" for title in old.unlike(new)]
    try:
        old.revised({title: new.editable[title] for title in old.editable if title in new.editable})
    except PromptError as error:
        found.append(str(error))
    known = set(_runs(old.text))
    copied = {run for text in evidence for run in _runs(text)} - known
    for title, text in new.editable.items():
        before = old.editable.get(title, "")
        if text == before:
            continue
        if len(text) > (most := room(before, longest)):
            found.append(f"it has {len(text)} characters, and {most} are the most")
        if len(_WORD.findall(text)) < _LEAST:
            found.append("it has hardly a word")
        found += [*_form(text), *_injected(text, before)]
        if shared := next((run for run in _runs(text) if run in copied), None):
            found.append(f"it copies its evidence: {' '.join(shared)!r}")
    return found


def room(before: str, longest: float) -> int:
    """How many characters may take the place of a text."""
    return max(int(longest * len(before)), _SHORT)


def _form(text: str) -> Iterator[str]:
    inner = code[1] if (code := _CODE.match(text)) else text
    if code or inner.lstrip().startswith(("{", "[")):
        yield "it is code or data, not a text for a prompt"
        return
    try:
        json.loads(inner)
    except ValueError:
        return
    yield "it is JSON, not a text for a prompt"


def _injected(text: str, before: str) -> Iterator[str]:
    if _HIDDEN.search(text):
        yield "it has characters that cannot be seen"
    # Letters that only look like others, and characters between them, must not hide a word.
    flat, held = (_HIDDEN.sub("", unicodedata.normalize("NFKC", one)) for one in (text, before))
    for fault, pattern in _INJECTIONS.items():
        allowed = {match[0] for match in pattern.finditer(held)}
        if any(match[0] not in allowed for match in pattern.finditer(flat)):
            yield fault


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = [word.casefold() for word in _WORD.findall(unicodedata.normalize("NFKC", text))]
    for start in range(len(words) - _RUN + 1):
        yield tuple(words[start : start + _RUN])
