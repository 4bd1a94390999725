"""Teams of language model agents that each keep a structured memory of their own.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memeplex.agents import Agent
    from memeplex.messages import Conversation, Outcome, Task, Turn
    from memeplex.models import Model, ModelOptions, Settings, create_model
    from memeplex.storage import open_store
    from memeplex.teams import RunResult, Team, load_team, run_sync
    from memeplex.telemetry import subscribe

__version__ = "0.1.0"

_HOMES = {
    "Agent": "agents",
    "Conversation": "messages",
    "Model": "models",
    "ModelOptions": "models",
    "Outcome": "messages",
    "RunResult": "teams",
    "Settings": "models",
    "Task": "messages",
    "Team": "teams",
    "Turn": "messages",
    "create_model": "models",
    "load_team": "teams",
    "open_store": "storage",
    "run_sync": "teams",
    "subscribe": "telemetry",
}

__all__ = [
    "Agent",
    "Conversation",
    "Model",
    "ModelOptions",
    "Outcome",
    "RunResult",
    "Settings",
    "Task",
    "Team",
    "Turn",
    "create_model",
    "load_team",
    "open_store",
    "run_sync",
    "subscribe",
]


def __getattr__(name: str) -> object:
    if home := _HOMES.get(name):
        return getattr(import_module(f"memeplex.{home}"), name)
    raise AttributeError(f"module 'memeplex' has no attribute {name!r}")
