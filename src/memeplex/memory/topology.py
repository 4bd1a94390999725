"""Who owns a record: a function from agent, team and kind.

Source: Scaling Teams or Scaling Time?, section 3 and appendix A: local (private stores), shared (one common store) and
hybrid (episodes stay local; procedures and coordination statistics are shared).
"""

from typing import Literal

__all__ = ["Topology", "owner_of"]

Topology = Literal["local", "shared", "hybrid"]

_PRIVATE = frozenset({"episode", "retrieval"})
"""Kinds that stay with the agent in the hybrid topology."""


def owner_of(topology: Topology, *, agent: str, team: str, kind: str) -> str:
    """The owner of an agent's records of a kind. No two teams, and no two agents of one, share an owner by accident."""
    if topology == "shared" or (topology == "hybrid" and kind not in _PRIVATE):
        return _escaped(team)
    return f"{_escaped(team)}/{_escaped(agent)}"


def _escaped(name: str) -> str:
    # A slash in a name must not make it another's.
    return name.replace("%", "%25").replace("/", "%2F")
