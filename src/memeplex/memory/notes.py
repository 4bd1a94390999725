"""Notes: telling what is new, merging without doubles, and condensing to a budget, all without a model.

Sizes are estimated tokens (``models.tokens.estimate``), so that the same notes are condensed in the same way
whichever model reads them.
"""

import re
from collections.abc import Iterable, Sequence

from memeplex.models.tokens import estimate

__all__ = ["condense", "key_terms", "merge", "novelty", "supported"]

_WORD = re.compile(r"[^\W_]+(?:[.,'’-][^\W_]+)*")
_WIDE = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_FILLERS = frozenset(
    "a an and are as at be been being but by can for from had has have in into is it its of on or our so that the "
    "their them then there these they this those to was we were which will with would you your".split()
)


def words(text: str) -> set[str]:
    """All words that carry meaning, case-folded; scripts without spaces give pairs of characters."""
    found: set[str] = set()
    for match in _WORD.findall(text):
        word = match.casefold()
        if run := _WIDE.search(word):
            wide = run.group()
            found.update(wide[i : i + 2] for i in range(max(len(wide) - 1, 1)))
        elif word not in _FILLERS:
            found.add(word)
    return found


def key_terms(text: str) -> set[str]:
    """The words that tell one message from another: with a digit, capitalised, or of more than four letters."""
    marked = {m.casefold() for m in _WORD.findall(text) if m[0].isupper() or any(c.isdigit() for c in m)}
    return {word for word in words(text) if word in marked or len(word) > 4 or _WIDE.search(word)}


def novelty(text: str, known: Iterable[str]) -> float:
    """The share of a text's key terms that none of the known texts has, from 0 to 1."""
    terms = key_terms(text)
    if not terms:
        return 0.0
    return len(terms.difference(*map(words, known))) / len(terms)


def supported(note: str, source: str) -> bool:
    """Whether at least half of a note's words come from the source: what was made up, or copied from the
    instructions, is no note."""
    own = words(note)
    return bool(own) and 2 * len(own & words(source)) >= len(own)


def merge(notes: Sequence[str], new: Iterable[str]) -> list[str]:
    """Append what is new. A note that says no more than another goes; a fuller one takes the other's place."""
    merged = list(notes)
    for note in new:
        note = " ".join(note.split()).strip("-•* ")
        own = words(note)
        if not own or any(own <= words(other) for other in merged):
            continue
        places = [i for i, other in enumerate(merged) if words(other) < own]
        if places:
            merged[places[0]] = note
            merged = [other for i, other in enumerate(merged) if i not in places[1:]]
        else:
            merged.append(note)
    return merged


def condense(notes: Sequence[str], budget: int) -> list[str]:
    """The same notes in at most ``budget`` estimated tokens.

    First the filler words go, oldest note first; then, one by one, the note whose words the others cover most.
    The newest note goes last, cut to size if it is too long even alone.
    """
    kept = list(notes)
    for i, note in enumerate(kept):
        if _size(kept) <= budget:
            return kept
        kept[i] = " ".join(w for w in note.split() if w.casefold().strip(".,;:") not in _FILLERS) or note
    while len(kept) > 1 and _size(kept) > budget:
        kept.pop(min(range(len(kept) - 1), key=lambda i: _own_words(kept, i)))
    while kept and _size(kept) > budget and kept[0]:
        kept[0] = _beginning(kept[0], len(kept[0]) * 3 // 4)
    return [note for note in kept if note]


def _beginning(text: str, length: int) -> str:
    """At most ``length`` characters, ending between words if there are any, and never within a number."""
    cut = text[:length]
    return (cut.rpartition(" ")[0] or cut.rstrip("0123456789.,")).rstrip()


def _size(notes: Sequence[str]) -> int:
    return estimate("\n".join(notes)) if notes else 0


def _own_words(notes: Sequence[str], index: int) -> tuple[int, int]:
    others = set().union(*(words(note) for i, note in enumerate(notes) if i != index))
    return len(words(notes[index]) - others), index
