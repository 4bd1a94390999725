"""``memory conflicts``: what an agent's long-term memories contradict each other in."""

from typing import Any

from memeplex.cli.output import cut, table, tell, tell_json
from memeplex.cli.reading import read_store
from memeplex.errors import UnknownNameError, UserError
from memeplex.memory.archive import Archive
from memeplex.memory.tiers.atomic import ATOMIC, Conflict, as_held, conflicts
from memeplex.memory.topology import joined
from memeplex.storage import Record, Store

__all__ = ["list_conflicts"]

_TEXT = 40


def list_conflicts(agent: str, store: str | None, *, as_json: bool) -> None:
    """Subject, predicate, what holds, and what does not, with times."""

    async def found(opened: Store) -> tuple[str, list[Conflict]]:
        owner = await _owner(opened, agent)
        return owner, await conflicts(Archive(opened.records), owner)

    owner, listed = read_store(store, found)
    if as_json:
        tell_json({"owner": owner, "conflicts": [_json(conflict) for conflict in listed]})
        return
    rows = [row for conflict in listed for row in _rows(conflict)]
    if rows:
        table(("subject", "predicate", "object", "from", "until", "trust", "id"), rows, numbers=("trust",))
    else:
        tell(f"nothing in the memories of {owner} contradicts anything else there")


async def _owner(store: Store, agent: str) -> str:
    """The owner of an agent's memories, by its name alone where that is enough."""
    owners = [name for name, kinds in (await store.records.owners()).items() if ATOMIC in kinds]
    if agent in owners:
        return agent
    named = [name for name in owners if name.endswith(f"/{joined(agent)}")]
    if len(named) > 1:
        raise UserError(f"several agents are named {agent!r}: {', '.join(named)}", remedy="give TEAM/AGENT")
    if not named:
        remedy = "" if owners else "no agent has any yet: memeplex run TEAM --memory tiers"
        raise UnknownNameError("agent with long-term memories", agent, owners[:20], remedy=remedy)
    return named[0]


def _rows(conflict: Conflict) -> list[tuple[Any, ...]]:
    return [_row(conflict.current), *(_row(other, again=True) for other in conflict.others)]


def _row(record: Record, *, again: bool = False) -> tuple[Any, ...]:
    held = as_held(record)
    until = f"{held.valid_until:%Y-%m-%d %H:%M}" if held.valid_until else ""
    names = ("", "") if again else (cut(held.subject, _TEXT), cut(held.predicate, _TEXT))
    return (
        *names,
        cut(held.object, _TEXT),
        f"{held.valid_from:%Y-%m-%d %H:%M}",
        until,
        f"{record.trust:.2f}",
        record.id,
    )


def _json(conflict: Conflict) -> dict[str, Any]:
    return {
        "subject": conflict.subject,
        "predicate": conflict.predicate,
        "current": conflict.current.model_dump(mode="json"),
        "others": [other.model_dump(mode="json") for other in conflict.others],
    }
