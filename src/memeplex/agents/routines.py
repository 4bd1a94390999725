"""What an agent does in each of its states, before it is available again.

Source: Memetic Agents, "State Description". A routine can be done again from its beginning, whatever an earlier one did
not live to finish: it ends the same, and nothing is there twice.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from memeplex.agents.lifecycle import State
from memeplex.learning import Situation
from memeplex.memory.tiers.memorising import MEMORISE
from memeplex.memory.tiers.short_term import as_chunk, by_conversation
from memeplex.messages import one_line
from memeplex.telemetry import Event, MemoryConsolidated, PromptRevised, subscribe

if TYPE_CHECKING:
    from memeplex.agents.life import Life

__all__ = ["ROUTINES", "situations"]

_SITUATION = 2000


async def sleep(life: "Life") -> str:
    """Working memory becomes short-term memory. The queue keeps what waits, and lets go of what is kept there now."""
    taken = await life.queue.taken()
    count = await life.tiers.sleep()
    over = [letter for letter in taken if letter.message.conversation not in life.tiers.working]
    await life.queue.drop(over, cause="slept over")
    return f"{count} conversations put into short-term memory"


async def memorise(life: "Life") -> str:
    """Short-term memories and feedback become long-term memories and reflections."""
    done, failed = list[str](), list[str]()

    def watch(event: Event) -> None:
        if isinstance(event, MemoryConsolidated) and event.job == MEMORISE:
            (done if event.status == "done" else failed).append(event.cause)

    with subscribe(watch):
        life.spend(await life.tiers.memorise(stop=life.woken))
    told = f"{len(done)} conversations memorised"
    return told if not failed else f"{told}, {len(failed)} failed: {one_line(failed[-1], 120)}"


async def learn(life: "Life") -> str:
    """Reflections become a new version of a prompt, if it proves itself on conversations that they are not from."""
    told = list[str]()

    def watch(event: Event) -> None:
        if isinstance(event, PromptRevised):
            told.append(f"{event.prompt}: {event.status}, {one_line(event.cause, 120)}")

    with subscribe(watch):
        life.spend(await life.learning.learn(await situations(life)))
    return "; ".join(told) or "nothing to learn yet"


async def situations(life: "Life") -> list[Situation]:
    """What a prompt can be tried on: the conversations that are still whole, by what they began with."""
    found = list[Situation]()
    for conversation, records in (await by_conversation(life.tiers.archive, life.owner)).items():
        said = [one for record in records for one in as_chunk(record).messages if one.new and one.content.strip()]
        if said and said[0].role == "user":
            found.append(Situation(id=conversation, text=said[0].content[:_SITUATION]))
    return found


async def socialise(life: "Life") -> str:
    """What others have shown of their prompts is taken in, as a conversation apart."""
    count = await life.hear_social()
    met = f"with {life.peer.name}" if life.peer is not None else "nobody to meet"
    return f"{met}; {count} social messages heard"


ROUTINES: Mapping[State, Callable[["Life"], Awaitable[str]]] = {
    State.LEARNING: learn,
    State.MEMORISING: memorise,
    State.SOCIALISING: socialise,
    State.SLEEPING: sleep,
    State.SHUTTING_DOWN: sleep,
}
"""The routine of each state; each says in a few words what came of it."""
