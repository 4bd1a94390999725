"""Agents that work together: who speaks, when it is over, and the loop between."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from memeplex.embeddings import Embedder
from memeplex.endpoint.client import close_connections
from memeplex.memory.archive import shared_embedder
from memeplex.models import Model, create_model
from memeplex.teams.answer import Answer, answer_of
from memeplex.teams.moderated import Moderated
from memeplex.teams.session import RunResult
from memeplex.teams.speakers import (
    Cast,
    Chain,
    Graph,
    ModelChosen,
    Random,
    RoundRobin,
    SpeakerPolicy,
    Star,
    Tree,
)
from memeplex.teams.spec import AgentSpec, TeamSpec, build_team, library_teams, read_team
from memeplex.teams.team import Team, new_run_id
from memeplex.teams.termination import Flagged, MaxTokens, MaxTurns, Stalled, Termination

__all__ = [
    "AgentSpec",
    "Answer",
    "Cast",
    "Chain",
    "Flagged",
    "Graph",
    "MaxTokens",
    "MaxTurns",
    "ModelChosen",
    "Moderated",
    "Random",
    "RoundRobin",
    "RunResult",
    "SpeakerPolicy",
    "Stalled",
    "Star",
    "Team",
    "TeamSpec",
    "Termination",
    "Tree",
    "answer_of",
    "build_team",
    "library_teams",
    "load_team",
    "new_run_id",
    "read_team",
    "run_sync",
]

T = TypeVar("T")


def load_team(name: str, *, model: Model | None = None, embedder: Embedder | None = None) -> Team:
    """The team of a file or of the library, with the models that it names, or ``model`` for all of them.

    ``embedder`` is that of all memories that have one, in place of those that they name.

    Raises:
        TeamFileError: the file is missing or malformed.
        UnknownNameError: there is no such team, model, memory or policy.
    """
    made: dict[str, Model] = {}

    def models(wanted: str) -> Model:
        if model is not None:
            return model
        if wanted not in made:
            made[wanted] = create_model(wanted)
        return made[wanted]

    embedders = shared_embedder if embedder is None else lambda wanted: embedder
    return build_team(read_team(name), models, embedders)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run one coroutine to its end, from code that is not asynchronous: ``run_sync(team.run("…"))``.

    Connections that models and embedders have opened are closed; they can be used in another call.
    """

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise RuntimeError("run_sync cannot be called where an event loop is running; await the coroutine there")

    async def whole() -> T:
        try:
            return await work
        finally:
            await close_connections()

    return asyncio.run(whole())
