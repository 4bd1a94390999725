"""How sure an agent is of a prompt, from 0 to 10."""

from memeplex.prompts.versions import HIGHEST

__all__ = ["confidence"]


def confidence(before: float, score: float) -> float:
    """The confidence after a score, both from 0 to 10: it moves towards the score, half of the way at most.

    With the gain g = (score - before) / 10, what is gained weighs w = (10 - before) / 2, the room that is left, and
    what is lost weighs 5 - w = before / 2, what there is to lose. The rule is that of Memetic Agents' code, where a
    loss weighs 1 - w: since w is from 0 to 5, that is below zero under a confidence of 8, and a bad score raised it.
    """
    held = min(max(before, 0.0), HIGHEST)
    gain = (min(max(score, 0.0), HIGHEST) - held) / HIGHEST
    room = (HIGHEST - held) / 2
    return min(max(held + gain * (room if gain > 0 else HIGHEST / 2 - room), 0.0), HIGHEST)
