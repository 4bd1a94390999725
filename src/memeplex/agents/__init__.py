"""An agent, what it reads when it speaks, and how it lives."""

from memeplex.agents.agent import Agent, Layout
from memeplex.agents.ask import Ask
from memeplex.agents.lifecycle import State

__all__ = ["Agent", "Ask", "Layout", "State"]
