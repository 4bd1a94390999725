"""An agent, and what it reads when it speaks."""

from memeplex.agents.agent import Agent, Layout
from memeplex.agents.ask import Ask

__all__ = ["Agent", "Ask", "Layout"]
