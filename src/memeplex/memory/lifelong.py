"""Lifelong memory: episodes, procedures and who knows what, kept from task to task.

Source: Scaling Teams or Scaling Time? (LLMA-Mem), section 3 and appendices A and D. Retrieval asks procedures first and
falls back to episodes; after each task an episode is kept with lessons drawn from it; every N tasks episodes of a kind
become a procedure. What needs a model is a job in the store: if the model fails, or the process dies, the episode is
there, and the rest is made up later.
"""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memeplex.errors import UserError
from memeplex.memory import episodes, procedures, transactive
from memeplex.memory.archive import Archive, EmbedderChoice, embedder_of, record_text
from memeplex.memory.base import MemoryScope, Recollection
from memeplex.memory.consolidation import Consolidation
from memeplex.memory.retrieval import RETRIEVAL, Given, look_up
from memeplex.memory.topology import Topology, joined, owner_of
from memeplex.messages import Conversation, Outcome, Task, Turn, TurnKind
from memeplex.storage import Job, MemoryVersion, Provenance, Record, Store
from memeplex.usage import Ledger

__all__ = ["LifelongMemory", "LifelongSettings"]

_ACTIONS = frozenset({TurnKind.MESSAGE, TurnKind.DOCUMENT})


class LifelongSettings(BaseModel):
    """The arguments of a lifelong memory; the defaults are those of the paper and its code, where they name one.

    ``topology``: who shares what (``local``, ``shared``, ``hybrid``). ``every``: tasks between two consolidations.
    ``top``: items retrieved. An episode scores ``recency`` x exp(-age in tasks) + ``similarity`` x relevance +
    ``importance`` x 1 (or ``importance_failed``, for a failure). Relevance is ``relative`` to that of the other
    candidates, from 0 to 1, as in Generative Agents; with ``relative=False`` it is the paper's cosine. A procedure
    scores its relevance plus its success rate, and passes from ``least_relevance`` and ``least_success`` on.
    ``grouped_from`` is how much alike episodes of a group are. A procedure is retired when of its newest
    ``prune_after`` applications a smaller share than ``prune_below`` succeeded. ``max_tokens`` bounds what is put
    before the task. With ``team``, who is in the team and what they have shown follows, for an agent that plans or
    moderates. ``inject=False`` keeps everything and shows nothing. ``embedder`` is one, the name of one that needs no
    options, or ``None`` for words alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topology: Topology = "local"
    every: int = Field(default=5, ge=1)
    top: int = Field(default=3, ge=1)
    procedures: bool = True
    recency: float = Field(default=0.2, ge=0)
    similarity: float = Field(default=0.4, ge=0)
    importance: float = Field(default=0.4, ge=0)
    importance_failed: float = Field(default=0.3, ge=0, le=1)
    relative: bool = True
    least_relevance: float = Field(default=0.2, ge=0, le=1)
    least_success: float = Field(default=0.45, ge=0, le=1)
    grouped_from: float = Field(default=0.6, ge=0, le=1)
    # Of 50 applications that succeed by 7 in 10, eight in a row with one success at most come once in a hundred times.
    prune_after: int = Field(default=8, ge=1)
    prune_below: float = Field(default=0.25, ge=0, le=1)
    max_tokens: int = Field(default=600, ge=50)
    team: bool = False
    inject: bool = True
    embedder: EmbedderChoice = "auto"

    def open(self, scope: MemoryScope) -> "LifelongMemory":
        """The memory of one agent in one run."""
        return LifelongMemory(self, scope)


class LifelongMemory:
    """One agent's lifelong memory, as it is used in one run.

    Raises:
        UserError: the run is not kept in a store, or nothing has the embedder's name.
    """

    def __init__(self, settings: LifelongSettings, scope: MemoryScope) -> None:
        if scope.store is None or scope.conversation is None:
            raise UserError("a lifelong memory needs a store", remedy="give Team.run one: store=open_store('team.db')")
        self.settings = settings
        self._scope = scope
        self._store: Store = scope.store
        self._conversation: Conversation = scope.conversation
        self._given: Given | None = None
        self._embedder = embedder_of(settings.embedder)

    @property
    def archive(self) -> Archive:
        """The records that it lives in."""
        return Archive(self._store.records, self._embedder)

    @property
    def _use(self) -> str:
        """This run of this agent, as a key: in a shared memory the other agents have theirs beside it."""
        return joined(self._scope.run, self._scope.agent)

    def owner(self, kind: str) -> str:
        """Whose records of a kind this agent reads and writes."""
        return owner_of(self.settings.topology, agent=self._scope.agent, team=self._scope.team, kind=kind)

    async def retrieve(self, cue: Conversation) -> Recollection:
        """What earlier tasks have to say on this one: looked up once, and the same after a resume."""
        if not self.settings.inject:
            return Recollection()
        if self._given is None:
            self._given = await self._kept() or await self._look_up(cue.task)
        return Recollection(background=self._given.text)

    async def update(self, turn: Turn, conversation: Conversation) -> MemoryVersion | None:
        """Nothing: the turn is in the transcript, from which the episode is made when the task is over."""
        return None

    async def consolidate(self, outcome: Outcome) -> None:
        """Keep the episode, count for what was used, draw lessons and, every N tasks, abstract procedures.

        An agent that had no part in the task keeps nothing of it.
        """
        scope = self._scope
        own = [turn for turn in self._conversation.by(scope.agent) if turn.kind in _ACTIONS]
        if not own:
            return
        given = self._given or await self._kept() or Given()
        record = episodes.record_of(
            self._conversation.task,
            outcome,
            owner=self.owner(episodes.EPISODE),
            run=scope.run,
            agent=scope.agent,
            team=list(scope.members),
            model=scope.model.name,
            turns=own,
            procedures=given.procedures,
            shown=given.episodes,
        )
        added = await self.archive.keep([record], actor=scope.agent, cause="task done")
        await self._count(episodes.as_episode(record))
        work = self._work()
        await work.enqueue(added.ids[0])
        await work.drain(again=True)

    async def backlog(self) -> list[Job]:
        """What is left to do. What an earlier process did not live to ask for is asked for now."""
        work = self._work()
        await work.enqueue()
        return await work.left()

    async def catch_up(
        self, *, again: bool = False, everything: bool = False, stop: Callable[[], bool] = lambda: False
    ) -> Ledger:
        """Make up what failed or was broken off, without a new task, until ``stop()``; gives what it cost.

        With ``again``, what has failed is tried at once, and not when its time has come. With ``everything`` all
        episodes are looked at once more, whether N tasks are full or not: what has been abstracted from them is not
        abstracted a second time.
        """
        work = self._work()
        await work.enqueue()
        if everything:
            await work.enqueue_everything()
        return await work.drain(again=again, stop=stop)

    def _work(self) -> Consolidation:
        return Consolidation(self.archive, self._store.jobs, self._scope, self.settings, self.owner)

    async def _count(self, episode: episodes.Episode) -> None:
        """What the task says of the agent and its team, and of the procedures that the agent had before it."""
        scope = self._scope
        record = transactive.experience(
            owner=self.owner(transactive.EXPERIENCE),
            run=scope.run,
            agent=scope.agent,
            team=episode.team,
            task=self._conversation.task.text,
            kind=episode.type,
            success=episode.success,
            performance=float(episode.success) if episode.reward is None else episode.reward,
            overhead=float(len(self._conversation.turns)),
        )
        await self.archive.keep([record], actor=scope.agent, cause="task done")
        owner = self.owner(procedures.PROCEDURE)
        for used in episode.procedures:
            await procedures.applied(self.archive, owner, used, self._use, episode.success, actor=scope.agent)

    async def _kept(self) -> Given | None:
        record = await self._store.records.by_key(self.owner(RETRIEVAL), RETRIEVAL, self._use)
        if record is None:
            return None
        data: dict[str, Any] = record.payload
        return Given(data["text"], tuple(data["procedures"]), tuple(data["episodes"]))

    async def _look_up(self, task: Task) -> Given:
        scope, team = self._scope, ""
        if self.settings.team:
            owners = [self.owner(transactive.EXPERIENCE)]
            kind = episodes.type_of(task)
            team = await transactive.planner_text(self.archive, owners, task.text, kind=kind, roles=scope.members)
        asked = task.model_copy(update={"text": record_text(task.text)})
        given = await look_up(self.archive, self.settings, self.owner, asked, team=team)
        record = Record(
            owner=self.owner(RETRIEVAL),
            kind=RETRIEVAL,
            text=asked.text,
            key=self._use,
            payload={"text": given.text, "procedures": list(given.procedures), "episodes": list(given.episodes)},
            provenance=Provenance(run=scope.run, author=scope.agent),
        )
        await self._store.records.add([record], actor=scope.agent, cause="retrieved for a task")
        return given
