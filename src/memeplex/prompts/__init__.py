"""Prompts as units of inheritance: files cut into sections, of which only the editable ones ever change."""

from memeplex.prompts.checks import faults
from memeplex.prompts.library import Chosen, Library, first_version
from memeplex.prompts.lineage import changes, lineage
from memeplex.prompts.prompt import Prompt
from memeplex.prompts.sections import Kind, Section
from memeplex.prompts.versions import HEAD, PROMPT, Cause, Head, Ref, Status, Version

__all__ = [
    "HEAD",
    "PROMPT",
    "Cause",
    "Chosen",
    "Head",
    "Kind",
    "Library",
    "Prompt",
    "Ref",
    "Section",
    "Status",
    "Version",
    "changes",
    "faults",
    "first_version",
    "lineage",
]
