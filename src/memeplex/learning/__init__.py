"""How agents improve their prompts: by reflection on what they have been through."""

from memeplex.learning.confidence import confidence
from memeplex.learning.evidence import choose
from memeplex.learning.peer import Peer
from memeplex.learning.reflection import LEARNING, Learning, LearningSettings
from memeplex.learning.trial import Judge, Score, Scorer, Situation
from memeplex.memory.tiers.reflections import REFLECTION, Reflection, as_reflection, unused

__all__ = [
    "LEARNING",
    "REFLECTION",
    "Judge",
    "Learning",
    "LearningSettings",
    "Peer",
    "Reflection",
    "Score",
    "Scorer",
    "Situation",
    "as_reflection",
    "choose",
    "confidence",
    "unused",
]
