"""The sections of a prompt: what each is for, and how it is filled in.

Source: Memetic Agents, "Evolution of the Architecture": sections that the agent may change, sections that are generated
from its capabilities, and sections whose form must stay as it is.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from jinja2 import Environment, StrictUndefined, Template, UndefinedError

__all__ = ["Filled", "Kind", "Section", "parse", "placeholders"]

_FENCE = re.compile(r"<\s*(/?)\s*(task|memory|message|proposal|turns|experience)\s*>", re.IGNORECASE)
_RULE = re.compile(r"^[^\S\n]*---[^\S\n]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_HEADING = re.compile(r"# +(?P<title>[^()]*[^() ])(?: +\((?P<kind>\w+)\))? *")


class Kind(StrEnum):
    """What may become of a section.

    ``editable`` text is the agent's to improve. ``procedural`` text is made anew from what the agent is able to do, and
    ``immutable`` text never changes: the form of the answer, rules of safety, the blocks that hold data.
    """

    EDITABLE = "editable"
    PROCEDURAL = "procedural"
    IMMUTABLE = "immutable"


class Filled(str):
    """A section filled in. Its blocks of data are ours and stay what they are when it fills a variable itself."""


def _fenced(value: object) -> object:
    """Text that fills a variable cannot close, or open, the block of data that it stands in, nor draw our rule."""
    if not isinstance(value, str) or isinstance(value, Filled):
        return value
    return _RULE.sub("- - -", _FENCE.sub(r"<\1 \2>", value))


_environment = Environment(  # noqa: S701 - prompts are plain text, not HTML
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=_fenced
)


@lru_cache(maxsize=512)
def _template(text: str) -> Template:
    return _environment.from_string(text)


def placeholders(text: str) -> frozenset[str]:
    """The names in a text that stand as ``{{ name }}``."""
    return frozenset(_PLACEHOLDER.findall(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section: its text, and the line breaks (``gap``) that part it from the next.

    Procedural and immutable text is a Jinja template of ours. Editable text is written by models, and never a template:
    the placeholders that version 1 has (``names``) are put in, all else is what it says.
    """

    title: str
    kind: Kind
    text: str
    gap: str = ""
    names: frozenset[str] = frozenset()

    def filled(self, variables: Mapping[str, object]) -> str:
        """The text with its variables filled in, and the gap.

        Raises:
            UndefinedError: a variable is missing.
        """
        if self.kind is Kind.EDITABLE:
            return "".join(self._pieces(variables)) + self.gap
        return _template(self.text + self.gap).render(variables)

    def _pieces(self, variables: Mapping[str, object]) -> Iterator[str]:
        # Models write it: neither can it open a block of data outside of those that are ours.
        end = 0
        for found in _PLACEHOLDER.finditer(self.text):
            if found[1] not in self.names:
                continue
            if found[1] not in variables:
                raise UndefinedError(f"'{found[1]}' is undefined")
            yield str(_fenced(self.text[end : found.start()]))
            yield str(_fenced(str(variables[found[1]])))
            end = found.end()
        yield str(_fenced(self.text[end:]))


def parse(text: str) -> tuple[Section, ...]:
    """The sections of a Markdown text, cut by its first-level headings; what stands before the first is a remark.

    The kind stands behind the title, as in ``# system (editable)``. A section without one is immutable.

    Raises:
        ValueError: a heading is no heading of ours, or there twice.
    """
    found: list[tuple[str, Kind, list[str]]] = []
    for line in text.split("\n"):
        if not line.startswith("# "):
            if found:
                found[-1][2].append(line)
            continue
        heading = _HEADING.fullmatch(line)
        if heading is None or heading["title"] in {title for title, _, _ in found}:
            raise ValueError(f"{line!r} is no heading of a section, or is there twice")
        found.append((heading["title"], Kind(heading["kind"] or Kind.IMMUTABLE), []))
    bodies = ["\n".join(lines) + "\n" for _, _, lines in found]
    # Nothing follows the last one.
    bodies[-1:] = [body.rstrip() for body in bodies[-1:]]
    return tuple(_section(title, kind, body) for (title, kind, _), body in zip(found, bodies, strict=True))


def _section(title: str, kind: Kind, body: str) -> Section:
    text = body.strip()
    gap = body[len(body.rstrip()) :] if text else ""
    names = placeholders(text) if kind is Kind.EDITABLE else frozenset[str]()
    return Section(title=title, kind=kind, text=text, gap=gap, names=names)
