"""What a run came to: for people, and as one JSON object."""

import json
from dataclasses import dataclass
from typing import Any

from memeplex.cli.output import say, table, tell, tell_json
from memeplex.messages import Conversation, TurnKind
from memeplex.models import is_small
from memeplex.models.openai import guess_billions
from memeplex.storage import Run, Store
from memeplex.teams import Answer, RunResult, answer_of
from memeplex.usage import Ledger, Purpose, Usage

__all__ = ["Report", "document_text", "json_text", "print_report", "print_tokens", "stored_result", "usage_json"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run, as it stands now. ``seconds`` are those of this process."""

    run: Run
    result: RunResult
    seconds: float
    store: str

    @property
    def document(self) -> Any:
        """The final document, if the team has written one."""
        return self.result.outcome.details.get("document") if self.result.outcome else None

    @property
    def answer(self) -> Answer:
        """What the team came to."""
        return answer_of(self.result.conversation, self.result.outcome)

    @property
    def text(self) -> str:
        """The result as Markdown. A proposal stands under a heading that says how far it came."""
        if self.document:
            return document_text(self.document)
        answer = self.answer
        if answer.kind != "proposal":
            return answer.text
        agreed = self.result.outcome is not None and self.result.outcome.success
        return f"## {'Accepted proposal' if agreed else 'Last proposal, not agreed on'}\n\n{answer.text}"

    @property
    def writer(self) -> str:
        """The model that wrote the document or the answer."""
        turn = self.answer.turn
        return turn.model if turn and turn.model else self.run.model

    @property
    def status(self) -> str:
        """finished or interrupted."""
        return "finished" if self.result.outcome else "interrupted"

    @property
    def memories(self) -> dict[str, dict[str, Any]]:
        """The memory of each agent that has one: version, status, content."""
        held = {version.agent: version for version in self.result.versions if version.turn >= 0}
        return {
            name: {"version": v.version, "status": v.status, "content": v.content} for name, v in sorted(held.items())
        }

    def as_json(self) -> dict[str, Any]:
        """The whole report as plain data."""
        usage, outcome = self.result.usage, self.result.outcome
        details = {k: v for k, v in outcome.details.items() if k != "document"} if outcome else {}
        turns = self.result.conversation.turns
        return {
            "run": self.run.id,
            "team": self.run.team,
            "status": self.status,
            "outcome": {"status": outcome.status, "success": outcome.success, "details": details} if outcome else None,
            "document": self.document,
            "answer": self.answer.text,
            "answer_kind": self.answer.kind,
            "turns": len(turns),
            "seed": self.run.seed,
            "model": self.run.model,
            "written_by": self.writer,
            "usage": usage_json(usage),
            "seconds": round(self.seconds, 3),
            "cached_share": cached_share(usage.total),
            "memory_share": memory_share(usage),
            "memories": self.memories,
            "store": self.store,
        }


async def stored_result(store: Store, run_id: str) -> RunResult:
    """What a store holds of a run."""
    run = await store.run(run_id)
    turns, versions = await store.turns(run.id), await store.versions(run.id)
    return RunResult(
        run=run.id, conversation=Conversation(run.task, turns), outcome=run.outcome, versions=tuple(versions)
    )


def usage_json(ledger: Ledger) -> dict[str, Any]:
    """Usage by purpose and in all."""
    return {"by_purpose": {p.value: _amounts(u) for p, u in ledger.items()}, "total": _amounts(ledger.total)}


def _amounts(usage: Usage) -> dict[str, float]:
    return {name: getattr(usage, name) for name in ("calls", "input", "cached", "output", "seconds")}


def cached_share(usage: Usage) -> float:
    """The share of input tokens that came from a prompt cache."""
    return round(usage.cached / usage.input, 4) if usage.input else 0.0


def memory_share(ledger: Ledger) -> float:
    """The share of all models' time that went into memory updates."""
    total = ledger.total.seconds
    return round(ledger.get(Purpose.MEMORY_UPDATE, Usage()).seconds / total, 4) if total else 0.0


def print_report(report: Report, *, as_json: bool, quiet: bool, resume: str) -> None:
    """The end of ``run`` and ``resume``."""
    if as_json:
        tell_json(report.as_json())
        return
    outcome = report.result.outcome
    if outcome is None:
        say(f"stopped after {len(report.result.conversation.turns)} turns; go on with: {resume}")
        return
    tell(report.text)
    if quiet:
        return
    tell()
    tell(_ending(report))
    tell(_authorship(report.writer))
    turns = report.result.conversation.turns
    votes = sum(turn.kind is TurnKind.VOTE for turn in turns)
    counted = f"{len(turns)} turns, {votes} of them votes" if votes else f"{len(turns)} turns"
    tell(f"Run {report.run.id}, {counted}, {report.seconds:.0f} s.")
    tell()
    print_tokens(report.result.usage)


def _ending(report: Report) -> str:
    outcome = report.result.outcome
    status = outcome.status if outcome else ""
    if status == "no_consensus" and report.answer.kind == "proposal":
        return "No consensus was reached before the limit: this is the last proposal, and no document was written."
    if status == "no_consensus" and report.document is None:
        return "No consensus was reached before the limit, and no proposal was made: this is what was said last."
    said = {
        "consensus": "Consensus was reached: every agent that votes has accepted the design.",
        "no_consensus": "No consensus was reached: this is the last proposal, which not every agent has accepted.",
        "stalled": "The team turned in circles and was stopped; this is as far as it came.",
        "completed": "The conversation is complete; nobody was asked for consensus.",
    }
    return said.get(status, f"It ended as {status}.")


def _authorship(model: str) -> str:
    if is_small(guess_billions(model)):
        return f"Written by {model}, a small model: read it as a demonstration, not as advice."
    return f"Written by {model}, a language model: check it before you rely on it."


def print_tokens(ledger: Ledger) -> None:
    """The token table by purpose."""
    titles = ("purpose", "calls", "input", "cached", "output", "seconds")
    rows = [(p.value, *_cells(u)) for p, u in ledger.items()]
    table(titles, [*rows, ("total", *_cells(ledger.total))], numbers=titles[1:])
    cached, memory = cached_share(ledger.total), memory_share(ledger)
    tell(f"{cached:.0%} of the input came from the cache; memory updates took {memory:.0%} of the models' time.")


def _cells(usage: Usage) -> tuple[str, ...]:
    share = f"{usage.cached:,} ({cached_share(usage):.0%})" if usage.cached else "0"
    return f"{usage.calls:,}", f"{usage.input:,}", share, f"{usage.output:,}", f"{usage.seconds:.1f}"


def document_text(document: Any) -> str:
    """A document as Markdown: texts and lists as they are, everything deeper as JSON."""
    if not isinstance(document, dict):
        return json_text(document)
    parts = (f"## {name.replace('_', ' ').capitalize()}\n\n{_part(value)}" for name, value in document.items())
    return "\n\n".join(parts)


def _part(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(f"{i}. {item}" for i, item in enumerate(value, 1))
    if isinstance(value, list) and all(_flat(item) for item in value):
        return "\n".join("- " + ": ".join(str(v) for v in item.values()) for item in value)
    return f"```json\n{json_text(value)}\n```"


def _flat(item: Any) -> bool:
    return isinstance(item, dict) and all(isinstance(v, str | int | float) for v in item.values())


def json_text(value: Any) -> str:
    """A value as JSON to be read by people."""
    return json.dumps(value, ensure_ascii=False, indent=2)
