"""What an agent is given the floor for."""

from dataclasses import dataclass, field

from pydantic import BaseModel

from memeplex.messages import TurnKind
from memeplex.usage import Ledger

__all__ = ["Ask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What an agent is given the floor for. ``flag`` and ``content`` are for turns that no model writes."""

    speaker: str
    kind: TurnKind = TurnKind.MESSAGE
    stage: str = ""
    instruction: str = "Say what you have to say next."
    output: type[BaseModel] | None = None
    max_tokens: int | None = None
    proposal: str = ""
    criteria: tuple[str, ...] = ()
    flag: str = ""
    content: str = ""
    usage: Ledger = field(default_factory=Ledger)
