"""What of a reply is its agent's own to say."""

import re
from collections.abc import Collection

from memeplex.telemetry import ReplyCut, emit

__all__ = ["own_words"]

_NAME = re.compile(r"^\[([^\]\n]{1,64})\]:?", re.MULTILINE)
_MEMORY = re.compile(
    r"(?:Your memory:\s*)?<\s*(memory|experience)\b[^>]*>.*?(?:<\s*/\s*\1\s*>|\Z)\s*"
    r"|\A.*?<\s*/\s*(?:memory|experience)\s*>\s*",
    re.DOTALL | re.IGNORECASE,
)


def own_words(text: str, *, names: Collection[str], agent: str) -> str:
    """The reply without a name in front, and without the lines in which a model goes on to speak for others.

    The blocks of memory that small models copy from their prompt go too: nobody else is to see it. If a reply is
    nothing else, nothing is left.
    """
    said = _MEMORY.sub("", text).strip()
    # A label of its own in the middle says nothing, and what follows it is its own.
    said = _NAME.sub(lambda found: "" if found[1] == agent else found[0], said).strip() or said
    if (front := _NAME.match(said)) and front[1] in names:
        said = said[front.end() :].lstrip() or said
    for line in _NAME.finditer(said):
        if line.start() and line[1] in names:
            kept = said[: line.start()].rstrip()
            emit(ReplyCut(agent=agent, reason=f"it speaks for {line[1]}", before=len(said), after=len(kept)))
            return kept
    return said
