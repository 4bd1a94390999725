"""Whom an agent can meet to compare prompts with."""

from typing import Protocol

from memeplex.messages import Message

__all__ = ["Peer"]


class Peer(Protocol):
    """Another agent, as the one that meets it sees it: in this process, in another one, or over a network."""

    name: str

    async def receive(self, message: Message) -> None:
        """Take a message; when this returns, it is durable. What the peer has to say comes as a message, too."""
        ...
