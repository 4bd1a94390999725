"""The moderated discussion that ends by consensus.

Source: Intrinsic Memory Agents, appendix A, Algorithm 2, and section 5.1. The discussion begins with a worker; the
delegation agent speaks between workers; once all workers have spoken, integration and evaluation follow, and the
cycle begins again. Flags are fields of turns: no text is searched for them.
"""

from pydantic import Field

from memeplex.agents import Ask
from memeplex.errors import UserError
from memeplex.messages import Conversation, Outcome, Turn, TurnKind
from memeplex.prompts import Prompt
from memeplex.teams.speakers import Cast, SpeakerPolicy

__all__ = ["Moderated"]

PROMPT = Prompt.load("memeplex.teams", "moderated")
FINALIZE, NO_CONSENSUS = "FINALIZE", "NO_CONSENSUS"
DISCUSSION, PROPOSALS, CONSENSUS = "discussion", "proposals", "consensus"


class Moderated(SpeakerPolicy):
    """Algorithm 2, with its stages discussion, proposals and consensus.

    ``discussion`` and ``proposals`` are numbers of turns; ``rounds`` is how often the consensus stage votes at most:
    between two votes, integration revises the proposal. All but the documentation agent vote, since it speaks only
    after FINALIZE. When the last vote still has an objection, the documentation agent compiles the last proposal,
    and the outcome is ``no_consensus``.
    """

    delegation: str
    workers: tuple[str, ...] = Field(min_length=1)
    integration: str
    evaluation: str
    documentation: str
    discussion: int = Field(default=9, ge=0)
    proposals: int = Field(default=10, ge=1)
    rounds: int = Field(default=2, ge=1)
    criteria: tuple[str, ...] = ("It is complete: it says what is done, with what, and at what cost.",)

    @property
    def voters(self) -> tuple[str, ...]:
        """Who is asked whether it accepts the proposal."""
        return (*self.workers, self.integration, self.evaluation, self.delegation)

    def check(self, cast: Cast) -> None:
        """Every agent has exactly one part."""
        parts = [*self.voters, self.documentation]
        if sorted(parts) != sorted(cast.names):
            raise UserError(
                f"speakers: the parts {', '.join(sorted(parts))} are not the agents {', '.join(sorted(cast.names))}",
                remedy="give every agent of the team exactly one part",
            )

    async def select(self, conversation: Conversation, cast: Cast) -> Ask | None:
        """The next speaker of Algorithm 2, with what it is asked for in this stage."""
        last = conversation.turns[-1] if conversation.turns else None
        if last is not None and last.kind is TurnKind.DOCUMENT:
            return None
        if last is not None and last.flag in (FINALIZE, NO_CONSENSUS):
            return self._document(conversation, cast)
        spoken = [turn for turn in conversation.turns if turn.stage in (DISCUSSION, PROPOSALS)]
        if len(spoken) < self.discussion + self.proposals:
            return self._discuss(spoken)
        return self._agree(conversation)

    def outcome(self, conversation: Conversation, reason: str) -> Outcome:
        """consensus or no_consensus; the last proposal is handed out either way, marked by ``agreed``.

        As long as the integration agent has not ``proposed`` any, it is the newest message.
        """
        agreed = any(turn.flag == FINALIZE for turn in conversation.turns)
        documents = [turn.data for turn in conversation.turns if turn.kind is TurnKind.DOCUMENT]
        status = "consensus" if agreed else "stalled" if reason == "stalled" else "no_consensus"
        return Outcome(
            status=status,
            success=agreed,
            details={
                "reason": reason,
                "agreed": agreed,
                "proposal": self.proposal(conversation),
                "proposed": bool(self._proposed(conversation)),
                "votes": {turn.speaker: turn.data for turn in self._votes(conversation)},
                "rounds": sum(t.kind is TurnKind.VOTE for t in conversation.turns) // len(self.voters),
                "document": documents[-1] if documents else None,
            },
        )

    def proposal(self, conversation: Conversation) -> str:
        """What is voted on: the newest proposal of the integration agent, else the newest message."""
        messages = [turn for turn in conversation.turns if turn.kind is TurnKind.MESSAGE]
        return self._proposed(conversation) or (messages[-1].content if messages else "")

    def _proposed(self, conversation: Conversation) -> str:
        """The newest proposal; empty as long as the integration agent has not spoken."""
        own = [turn for turn in conversation.by(self.integration) if turn.kind is TurnKind.MESSAGE]
        return own[-1].content if own else ""

    def _discuss(self, spoken: list[Turn]) -> Ask:
        """A turn of the cycle worker, delegation, worker, …, integration, evaluation."""
        done = len(spoken)
        stage = DISCUSSION if done < self.discussion else PROPOSALS
        last = spoken[-1].speaker if spoken else self.delegation
        count = sum(turn.speaker in self.workers for turn in spoken)
        after = self.workers[count % len(self.workers)]
        if last == self.delegation:
            return self._ask(after, stage, f"worker {stage}")
        if last == self.integration:
            return self._ask(self.evaluation, stage, "evaluation")
        if last in self.workers and count % len(self.workers) == 0:
            return self._ask(self.integration, stage, f"integration {stage}")
        turn, turns = (
            (done + 1, self.discussion) if stage == DISCUSSION else (done - self.discussion + 1, self.proposals)
        )
        return self._ask(self.delegation, stage, "delegation", stage=stage, turn=turn, turns=turns, next=after)

    def _ask(self, speaker: str, in_stage: str, section: str, **variables: object) -> Ask:
        return Ask(speaker=speaker, stage=in_stage, instruction=PROMPT.section(section, **variables))

    def _votes(self, conversation: Conversation) -> list[Turn]:
        """The votes on the newest proposal."""
        turns = list(conversation.turns)
        since = max((t.index for t in turns if t.kind is TurnKind.MESSAGE), default=-1)
        return [turn for turn in turns if turn.kind is TurnKind.VOTE and turn.index > since]

    def _agree(self, conversation: Conversation) -> Ask:
        """The next vote; after the last one, FINALIZE, a revision, or the end without consensus."""
        votes = self._votes(conversation)
        if len(votes) < len(self.voters):
            return Ask(
                speaker=self.voters[len(votes)],
                kind=TurnKind.VOTE,
                stage=CONSENSUS,
                proposal=self.proposal(conversation),
                criteria=self.criteria,
            )
        objections = [turn for turn in votes if turn.flag != "ACCEPT"]
        revisions = sum(t.stage == CONSENSUS and t.kind is TurnKind.MESSAGE for t in conversation.turns)
        if objections and revisions + 1 < self.rounds:
            reasons = [f"{turn.speaker}: {(turn.data or {}).get('reason', turn.content)}" for turn in objections]
            return self._ask(self.integration, CONSENSUS, "revision", objections=reasons)
        flag = NO_CONSENSUS if objections else FINALIZE
        return Ask(speaker=self.delegation, kind=TurnKind.FLAG, stage=CONSENSUS, flag=flag, content=flag)

    def _document(self, conversation: Conversation, cast: Cast) -> Ask:
        agreed = conversation.turns[-1].flag == FINALIZE
        section = "document" if agreed else "document unagreed"
        return Ask(
            speaker=self.documentation,
            kind=TurnKind.DOCUMENT,
            stage=CONSENSUS,
            instruction=PROMPT.section(section, proposal=self.proposal(conversation)),
            output=cast.output,
        )
