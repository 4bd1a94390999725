"""Context construction: what an agent gets to read when it speaks.

Source: Intrinsic Memory Agents, equation 1 and appendix A, Algorithm 1: the task, the memory, then the newest turns
that fit, in order. The task, the memory and the newest turn are always there; when even these are too much, the
memory is condensed, then cut between its blocks, then the turn is shortened, and an event says so.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from memeplex.errors import ContextBudgetError, ContextWindowError, MemeplexError
from memeplex.memory import Recollection, condense
from memeplex.messages import Turn
from memeplex.models import Model
from memeplex.telemetry import ContextCut, emit

__all__ = ["Context", "construct_context", "newest_that_fit", "stepped_start", "too_small", "within"]

Count = Callable[[str], Awaitable[int]]

LEAST = 24
"""Tokens that must remain for memory and conversation beside the task."""
SHARE = 0.6
"""Share of what the task leaves that the conversation may take where the window moves in steps. It leaves room for
any role and memory, so that the window is the same for all agents of one budget."""
KEEP = 0.6
"""Share of the window that is kept when it moves."""


@dataclass(frozen=True, slots=True)
class Context:
    """A memory and the newest turns that fit beside the task."""

    memory: Recollection
    turns: tuple[Turn, ...]


def newest_that_fit(sizes: Sequence[int], room: int) -> int:
    """Where the newest turns that fit into ``room`` tokens begin: Algorithm 1's loop, stopping at the first that
    does not fit."""
    start = len(sizes)
    while start and sizes[start - 1] <= room:
        start -= 1
        room -= sizes[start]
    return start


def stepped_start(sizes: Sequence[int], room: int) -> int:
    """Where a window begins that moves in steps: when it is full, it is cut to ``KEEP`` of ``room`` at once.

    It depends on the turns alone, so all agents see the same beginning, and the model's prompt cache outlives
    many turns.
    """
    start = held = 0
    for end, size in enumerate(sizes):
        held += size
        if held > room:
            while start < end and held > room * KEEP:
                held -= sizes[start]
                start += 1
    return start


async def construct_context(
    *,
    agent: str,
    fixed: int,
    recollection: Recollection,
    turns: Sequence[Turn],
    sizes: Sequence[int],
    budget: int,
    stepped: int | None,
    count: Count,
) -> Context:
    """The context of ``budget`` tokens, of which task, role and instruction take ``fixed``.

    ``sizes`` are the turns' tokens, as they will be printed. With ``stepped``, the window holds at most so many tokens
    and moves in steps.

    Raises:
        ContextBudgetError: the task leaves no room for anything else.
    """
    room = budget - fixed
    if room < LEAST:
        raise ContextBudgetError(
            f"{agent}: task and role take {fixed} tokens of a context budget of {budget}", needed=fixed, budget=budget
        )
    memory = recollection
    taken = await count(memory.text) if memory.text else 0
    last = sizes[-1] if sizes else 0
    if taken + last > room:
        memory = await _smaller(agent, memory, taken, max(room - last, room // 3), count)
        taken = await count(memory.text) if memory.text else 0
        if taken + last > room:
            newest = await _shortened(agent, turns[-1], last, room - taken, count)
            return Context(memory, (newest,))
    start = newest_that_fit(sizes, room - taken)
    if stepped is not None:
        start = max(start, stepped_start(sizes, stepped))
    return Context(memory, tuple(turns[start:]))


def too_small(
    error: ContextBudgetError, refused: Sequence[ContextWindowError], *, agent: str, model: Model, reply: int
) -> MemeplexError:
    """Whose fault it is that a task does not fit: the window's, the endpoint's that refused, or the budget's."""
    if error.needed <= model.window - reply:
        return refused[0] if refused else error
    return ContextBudgetError(
        f"{agent}: task and role take {error.needed} tokens, and the window of {model.name} is {model.window}",
        needed=error.needed,
        budget=error.budget,
        remedy="shorten the task, or use a model with a larger window",
    )


async def _smaller(agent: str, memory: Recollection, size: int, room: int, count: Count) -> Recollection:
    """The memory in ``room`` tokens: condensed, else cut between blocks, never gone altogether."""
    if size <= room:
        return memory
    blocks, target, now = list(memory.blocks), room, size
    for _ in range(3):
        if not (smaller := condense(blocks, target)):
            break
        blocks = smaller
        now = await count("\n".join(blocks))
        if now <= room:
            emit(ContextCut(agent=agent, what="memory condensed", before=size, after=now))
            return replace(memory, blocks=tuple(blocks))
        target = target * room // now
    while len(blocks) > 1 and now > room:
        blocks.pop(0)
        now = await count("\n".join(blocks))
    while now > room and len(blocks[0]) > 1:
        blocks[0] = blocks[0][: len(blocks[0]) * 3 // 4]
        now = await count(blocks[0])
    emit(ContextCut(agent=agent, what="memory cut", before=size, after=now))
    return replace(memory, blocks=tuple(blocks))


async def _shortened(agent: str, turn: Turn, size: int, room: int, count: Count) -> Turn:
    """The newest turn in ``room`` tokens: its beginning and its end."""
    text, keep = turn.content, len(turn.content) // 2
    after = size
    while after > room and keep > 0:
        keep = keep * 3 // 4
        text = f"{turn.content[:keep]} … {turn.content[len(turn.content) - keep :]}"
        after = await count(printed(turn.model_copy(update={"content": text})))
    emit(ContextCut(agent=agent, what="turn cut", before=size, after=after))
    return turn.model_copy(update={"content": text})


def printed(turn: Turn) -> str:
    """A turn as the layouts print it, which is what is counted."""
    return f"\n[{turn.speaker}] {turn.content}\n"


async def within(text: str, room: int, count: Count) -> str:
    """The beginning of a text, of so many tokens at most, as far as it can be cut."""
    while len(text) > 40 and await count(text) > room:
        text = text[: len(text) * 4 // 5]
    return text
