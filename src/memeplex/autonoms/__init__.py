"""Small typed subroutines that call a language model and have no agency of their own.

Each is one Python file and one Markdown prompt. They are triggered by procedure, never chosen by an agent.
"""

from memeplex.autonoms.cast_vote import Vote, cast_vote
from memeplex.autonoms.choose_speaker import choose_speaker
from memeplex.autonoms.evaluate_prompt import evaluate_prompt
from memeplex.autonoms.extract_memories import extract_memories
from memeplex.autonoms.give_feedback import give_feedback
from memeplex.autonoms.make_template import make_template
from memeplex.autonoms.patch_memory import patch_memory
from memeplex.autonoms.reflect_on_feedback import reflect_on_feedback
from memeplex.autonoms.reflect_on_memories import reflect_on_memories
from memeplex.autonoms.revise_prompt import revise_prompt
from memeplex.autonoms.rewrite_memory import rewrite_memory
from memeplex.autonoms.take_notes import take_notes

__all__ = [
    "Vote",
    "cast_vote",
    "choose_speaker",
    "evaluate_prompt",
    "extract_memories",
    "give_feedback",
    "make_template",
    "patch_memory",
    "reflect_on_feedback",
    "reflect_on_memories",
    "revise_prompt",
    "rewrite_memory",
    "take_notes",
]
