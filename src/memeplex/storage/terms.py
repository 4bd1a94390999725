"""Search terms: the same words for every store, whatever its own tokenizer makes of a script.

Case, width and accents are folded. Chinese, Japanese, Thai and their like are written without spaces; each run of them
gives its characters and its pairs, so that a word of one or more characters is found inside a sentence.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from datetime import datetime

__all__ = ["query_terms", "searchable", "terms"]

_MONTHS = "January February March April May June July August September October November December".split()

# Vowel signs of Indic and South-East Asian scripts are part of the word, though they are no letters.
_WORD = re.compile(
    "(?:[^\\W_]|[\u0900-\u0963\u0966-\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd"
    "\u102b-\u103e\u17b6-\u17d3\u3099\u309a])+"
)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)
_FOLDED = str.maketrans({"ı": "i", "ł": "l", "đ": "d", "ø": "o", "\u0640": None})
_SPACED = {code: " " for code in range(128) if not chr(code).isalnum()}
_LONGEST = 64
"""Characters of a term at most: longer ones are no words, but data."""
_STOP = frozenset(
    "a about after all also am an and any are as at be because been before being but by can could did do does doing "
    "for from had has have having he her hers him his how i if in into is it its just me more most my no nor not of on "
    "or our out over own s she should so some such t than that the their them then there these they this those to too "
    "under up very was we were what when where which while who whom why will with would you your".split()
)


def terms(text: str) -> list[str]:
    """The terms of a text, in order, repeated as often as it repeats them."""
    if text.isascii():
        # In half the time that the expression takes.
        return [word[:_LONGEST] for word in text.lower().translate(_SPACED).split()]
    return [term[:_LONGEST] for word in _WORD.findall(_fold(text)) for term in _split(word)]


def searchable(text: str, author: str, created: datetime) -> str:
    """All terms by which a record is found: who said it, what, and on which day."""
    day = f"{created.day} {_MONTHS[created.month - 1]} {created.year}"
    return " ".join(terms(f"{author} {text} {day}"))


def query_terms(text: str, without: Collection[str] = ()) -> list[str]:
    """The terms to look for, each once: no stop words, nor those ``without``, unless the text has nothing else."""
    found = [term[:_LONGEST] for word in _WORD.findall(_fold(text)) for term in _wanted(word)]
    return list(dict.fromkeys([term for term in found if term not in _STOP and term not in without] or found))


def _fold(text: str) -> str:
    # Composed first, so that half-width and full-width forms meet; decomposed next, so that accents can go.
    apart = unicodedata.normalize("NFKD", text.casefold()).translate(_FOLDED)
    kept = "".join(c for c in apart if not _accent(c))
    return unicodedata.normalize("NFC", kept)


def _accent(char: str) -> bool:
    # Thai vowels and the voicing marks of Japanese are marks too, but part of the word.
    return unicodedata.combining(char) != 0 and not ("\u0900" <= char <= "\u17ff" or "\u3040" <= char <= "\u30ff")


def _split(word: str) -> Iterator[str]:
    for part, unspaced in _parts(word):
        yield part if not unspaced else part[0]
        if unspaced:
            for i in range(1, len(part)):
                yield part[i]
                yield part[i - 1 : i + 1]


def _wanted(word: str) -> Iterator[str]:
    for part, unspaced in _parts(word):
        if unspaced and len(part) > 1:
            yield from (part[i : i + 2] for i in range(len(part) - 1))
        else:
            yield part


def _parts(word: str) -> Iterator[tuple[str, bool]]:
    position = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > position:
            yield word[position : run.start()], False
        yield run.group(), True
        position = run.end()
    if position < len(word):
        yield word[position:], False
