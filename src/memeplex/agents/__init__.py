"""An agent, and what it reads when it speaks."""

from memeplex.agents.agent import Agent, Ask, Layout

__all__ = ["Agent", "Ask", "Layout"]
