"""Prompt text is a file: Markdown, cut into named sections by its first-level headings.

What a model, a peer or a user wrote is never evaluated as a template: it fills a variable, or stands in an editable
section, whose text is plain. A variable that is missing is an error.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files

from memeplex.errors import PromptError
from memeplex.messages import clean_text
from memeplex.models import ChatMessage
from memeplex.prompts.sections import Filled, Kind, Section, parse, placeholders

__all__ = ["Prompt"]

_HOUSE = "memeplex."
_END = "\n"
_LONGEST = 20_000
"""Characters of an editable section at most, whoever writes it."""


@dataclass(frozen=True)
class Prompt:
    """One version of a prompt: its sections in order. Version 1 is the file, or the text that it was made from."""

    name: str
    sections: tuple[Section, ...]
    number: int = 1

    @classmethod
    def parse(cls, name: str, text: str) -> "Prompt":
        """A prompt out of the text of a file."""
        return cls(name, parse(text))

    @classmethod
    def load(cls, package: str, name: str) -> "Prompt":
        """The file ``name.md`` inside a package. Prompts of other packages than ours have the package in their name."""
        text = files(package).joinpath(f"{name}.md").read_text("utf-8")
        return cls.parse(name if package.startswith(_HOUSE) else f"{package}/{name}", text)

    @classmethod
    def of(cls, name: str, title: str, text: str) -> "Prompt":
        """A prompt of one editable section, such as an agent's role. It may be empty, and becomes a variable."""
        return cls(name, (Section(title=title, kind=Kind.EDITABLE, text=text, names=placeholders(text)),))

    @cached_property
    def text(self) -> str:
        """The whole prompt as Markdown."""
        return "".join(f"# {one.title} ({one.kind})\n{one.text}{one.gap or _END}" for one in self.sections)

    @cached_property
    def editable(self) -> dict[str, str]:
        """The texts that may change, by the titles of their sections."""
        return {one.title: one.text for one in self.sections if one.kind is Kind.EDITABLE}

    @cached_property
    def frame(self) -> str:
        """A hash of all that may not change: two versions of a prompt have the same."""
        return _hash([_fixed(one) for one in self.sections])

    @cached_property
    def digest(self) -> str:
        """A hash of the whole prompt."""
        return _hash([[*_fixed(one), one.text] for one in self.sections])

    @property
    def label(self) -> str:
        """Which version this is, for provenance: name, number, and the beginning of its hash."""
        return f"{self.name}@{self.number}+{self.digest[:8]}"

    def section(self, title: str, **variables: object) -> str:
        """One section, filled in.

        Raises:
            KeyError: there is no such section.
            UndefinedError: a variable is missing.
        """
        return Filled(self._titled(title).filled(variables).strip())

    def messages(self, **variables: object) -> list[ChatMessage]:
        """The prompt for a model: a message of all sections whose titles begin with ``system``, then one of ``user``.

        The sections of a message follow one another as in the file, as if there were no headings between them.
        """
        messages: list[ChatMessage] = []
        for role in ("system", "user"):
            of_role = [one.filled(variables) for one in self.sections if one.title.split()[0] == role]
            if of_role:
                messages.append({"role": role, "content": Filled("".join(of_role).strip())})
        return messages

    def revised(self, texts: Mapping[str, str], *, number: int = 0) -> "Prompt":
        """This prompt with other texts in some of its editable sections, by their titles.

        Raises:
            PromptError: there is no such section, it is not editable, or the text cannot stand in it.
        """
        new = {title: self._fit(title, text) for title, text in texts.items()}
        sections = tuple(replace(one, text=new.get(one.title, one.text)) for one in self.sections)
        return Prompt(self.name, sections, number or self.number)

    def unlike(self, other: "Prompt") -> list[str]:
        """The titles of sections that may not change and are different, missing or additional in another prompt."""
        mine, theirs = ({one.title: _fixed(one) for one in prompt.sections} for prompt in (self, other))
        found = [title for title in dict.fromkeys((*mine, *theirs)) if mine.get(title) != theirs.get(title)]
        return found or ([] if self.frame == other.frame else ["their order"])

    def _titled(self, title: str) -> Section:
        for one in self.sections:
            if one.title == title:
                return one
        raise KeyError(title)

    def _fit(self, title: str, text: str) -> str:
        if title not in self.editable:
            raise PromptError(
                f"the section {title!r} of the prompt {self.name} cannot be changed",
                remedy=f"what can be changed: {', '.join(self.editable) or 'nothing'}",
            )
        text, section = clean_text(text), self._titled(title)
        if text == section.text:
            return text
        if not text.strip():
            raise PromptError(f"the section {title!r} of the prompt {self.name} would be empty", remedy="give a text")
        if len(text) > _LONGEST:
            raise PromptError(
                f"{len(text)} characters are too many for the section {title!r} of the prompt {self.name}",
                remedy=f"give {_LONGEST} at most",
            )
        if missing := section.names - placeholders(text):
            names = ", ".join(f"{{{{ {name} }}}}" for name in sorted(missing))
            raise PromptError(f"the section {title!r} of the prompt {self.name} lacks {names}", remedy="put it in")
        return text


def _fixed(section: Section) -> list[object]:
    """What of a section may not change."""
    text = sorted(section.names) if section.kind is Kind.EDITABLE else section.text
    return [section.title, section.kind, section.gap, text]


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
