"""Prompt text is a file: Markdown, cut into named sections by its first-level headings.

A section is a Jinja template of ours and is never made from anything that a model, a peer or a user wrote: such
text only ever fills a variable. A variable that is missing is an error.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from memeplex.models import ChatMessage

__all__ = ["Prompt"]


_FENCE = re.compile(r"<\s*(/?)\s*(task|memory|message|proposal|turns|experience)\s*>", re.IGNORECASE)
_RULE = re.compile(r"^[^\S\n]*---[^\S\n]*$", re.MULTILINE)


class _Section(str):
    """A section filled in. Its blocks of data are ours and stay what they are when it fills a variable itself."""


def _fenced(value: object) -> object:
    """Text that fills a variable cannot close, or open, the block of data that it stands in, nor draw our rule."""
    if not isinstance(value, str) or isinstance(value, _Section):
        return value
    return _RULE.sub("- - -", _FENCE.sub(r"<\1 \2>", value))


_environment = Environment(  # noqa: S701 - prompts are plain text, not HTML
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_fenced
)


class Prompt:
    """The sections of one prompt. ``name`` is ``package/file``."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @classmethod
    def load(cls, package: str, name: str) -> "Prompt":
        """The file ``name.md`` inside a package."""
        return cls(f"{package}/{name}", files(package).joinpath(f"{name}.md").read_text("utf-8"))

    @cached_property
    def sections(self) -> Mapping[str, Template]:
        """Templates by heading, in the order of the file."""
        found: dict[str, list[str]] = {}
        for line in self.text.splitlines():
            if line.startswith("# "):
                body = found.setdefault(line[2:].strip(), [])
            elif found:
                body.append(line)
        return {title: _environment.from_string("\n".join(body).strip()) for title, body in found.items()}

    def section(self, title: str, **variables: object) -> str:
        """One section, filled in."""
        return _Section(self.sections[title].render(variables).strip())

    def messages(self, **variables: object) -> list[ChatMessage]:
        """The sections ``system`` and ``user``, filled in, as a prompt for a model."""
        return [
            {"role": role, "content": self.section(role, **variables)}
            for role in ("system", "user")
            if role in self.sections
        ]
