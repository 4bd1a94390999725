"""Who owns a record: a function from agent, team and kind.

Source: Scaling Teams or Scaling Time?, section 3 and appendix A: local (private stores), shared (one common store) and
hybrid (episodes stay local; procedures and coordination statistics are shared).
"""

import hashlib
import re
from typing import Literal

__all__ = ["Topology", "joined", "owner_of"]

Topology = Literal["local", "shared", "hybrid"]

_PRIVATE = frozenset({"episode", "retrieval"})
"""Kinds that stay with the agent in the hybrid topology."""

_LONGEST = 160
_SPECIAL = re.compile("[%/\x00-\x1f\x7f\ud800-\udfff]")


def owner_of(topology: Topology, *, agent: str, team: str, kind: str) -> str:
    """The owner of an agent's records of a kind. No two teams, and no two agents of one, share an owner by accident."""
    if topology == "shared" or (topology == "hybrid" and kind not in _PRIVATE):
        return joined(team)
    return joined(team, agent)


def joined(*names: str) -> str:
    """Names as one key that a store takes, whatever is in them: no other names give the same."""
    key = "/".join(_escaped(name) for name in names)
    if len(key) <= _LONGEST:
        return key
    # The sign of a hash is no escape of ours, so that no name can be written like it.
    return f"{key[:80]}%~{hashlib.sha256(key.encode()).hexdigest()}"


def _escaped(name: str) -> str:
    # A slash in a name must not make it another's, nor a character that stores leave out.
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", name) or "%"
