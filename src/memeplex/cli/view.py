"""Watching a run: a live view for terminals, plain lines for everything else. Both read the event stream."""

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from memeplex.cli.output import ReaderGoneError, clean, console, say
from memeplex.messages import Turn, TurnKind
from memeplex.storage import MemoryVersion
from memeplex.teams import TeamSpec
from memeplex.telemetry import (
    ContextCut,
    Event,
    FilePassedOver,
    MemoryUpdated,
    ReplyCut,
    ReplyRetried,
    RunStarted,
    TemplateMade,
    TurnFinished,
    TurnStarted,
)
from memeplex.usage import Ledger

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

__all__ = ["Progress", "View", "open_view"]

_NEWEST = 3
_LINE = 300


class View(AbstractContextManager[Any], Protocol):
    """Something that shows a run while it goes on."""

    def preload(self, turns: Sequence[Turn], versions: Sequence[MemoryVersion]) -> None:
        """What an earlier process has done."""
        ...

    def show(self, event: Event) -> None:
        """What happens now."""
        ...


def open_view(spec: TeamSpec, run: str, *, quiet: bool) -> View:
    """The view that suits standard error."""
    if quiet:
        return _Nothing()
    progress = Progress(run=run, team=spec.name, most=spec.termination.max_turns)
    return _Live(progress) if sys.stderr.isatty() else _Plain(progress)


@dataclass(kw_only=True)
class Progress:
    """How a run stands, as far as its events tell."""

    run: str
    team: str
    most: int
    agents: tuple[str, ...] = ()
    turns: list[Turn] = field(default_factory=list)
    memories: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    spent: Ledger = field(default_factory=Ledger)
    speaker: str = ""
    stage: str = ""
    notice: str = ""
    began: float = field(default_factory=time.monotonic)

    def preload(self, turns: Sequence[Turn], versions: Sequence[MemoryVersion]) -> None:
        """Take in what a store holds."""
        for turn in turns:
            self._turn(turn)
        for version in versions:
            self.spent += version.usage
            if version.turn >= 0:
                text = "\n".join(f"{slot}: {'; '.join(notes)}" for slot, notes in version.content.items())
                self.memories[version.agent] = (version.version, version.status, text)

    def take(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case RunStarted(agents=agents):
                self.agents = agents
            case TurnStarted(speaker=speaker, stage=stage):
                self.speaker, self.stage = speaker, stage
            case TurnFinished(turn=turn):
                self.speaker, self.notice = "", ""
                self._turn(turn)
            case MemoryUpdated(agent=agent, version=version, status=status, text=text, usage=usage):
                self.memories[agent] = (version, status, text)
                self.spent += usage
            case TemplateMade(usage=usage):
                self.spent += usage
            case _:
                self.notice = notice(event) or self.notice

    def _turn(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.spent += turn.usage

    @property
    def number(self) -> int:
        """Turns so far that count towards the limit: all but the votes."""
        return sum(turn.kind is not TurnKind.VOTE for turn in self.turns)

    @property
    def current(self) -> int:
        """The turn that is being spoken, or was the last."""
        return min(self.number + bool(self.speaker), self.most)

    @property
    def cost(self) -> str:
        """Tokens so far, the cached share, and the time."""
        total = self.spent.total
        share = total.cached / total.input if total.input else 0.0
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        return f"{total.input:,} tokens in ({share:.0%} cached), {total.output:,} out, {minutes}:{seconds:02}"


def notice(event: Event) -> str:
    """A line on what did not go smoothly; empty for everything else."""
    match event:
        case ReplyRetried(model=model, purpose=purpose, reason=reason):
            return reason if reason.startswith(model) else f"{model}, {purpose.value}: {reason}"
        case ReplyCut(agent=agent, reason=reason, before=before, after=after):
            return f"{agent}: {reason}, cut from {before} to {after} characters"
        case ContextCut(agent=agent, what=what, before=before, after=after):
            return f"{agent}: {what}, {before} to {after} tokens"
        case FilePassedOver(owner=owner, prompt=prompt, version=version):
            back = f"memeplex prompts rollback {owner} {prompt} --to 1"
            return f"{owner} uses version {version} of {prompt}, not its text, which has changed since: {back}"
    return ""


def line(turn: Turn) -> str:
    """A turn on one line."""
    stage = f" ({turn.stage})" if turn.stage else ""
    return f"{turn.speaker}{stage}: {_short(turn.content)}"


def _short(text: str) -> str:
    text = clean(text, one_line=True)
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"


class _Nothing:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def preload(self, turns: Sequence[Turn], versions: Sequence[MemoryVersion]) -> None:
        """Shows nothing."""

    def show(self, event: Event) -> None:
        """Shows nothing."""


class _Plain(_Nothing):
    """One line for each turn and each memory update."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._broken = False

    def preload(self, turns: Sequence[Turn], versions: Sequence[MemoryVersion]) -> None:
        """Counts what there is."""
        self._progress.preload(turns, versions)

    def show(self, event: Event) -> None:
        """A line, if the event deserves one. A reader that has gone away does not end the run."""
        self._progress.take(event)
        if (text := self._line(event)) and not self._broken:
            try:
                say(text)
            except (OSError, ReaderGoneError):
                self._broken = True

    def _line(self, event: Event) -> str:
        progress = self._progress
        match event:
            case RunStarted(run=run, team=team, turns=turns):
                return f"run {run}: team {team}" + (f", going on after {turns} turns" if turns else "")
            case TurnFinished(turn=turn):
                vote = turn.kind is TurnKind.VOTE
                return f"{'vote after ' if vote else ''}turn {progress.number} of at most {progress.most}, {line(turn)}"
            case MemoryUpdated(agent=agent, version=version, status=status, text=text, cause=cause):
                told = _short(text if status == "updated" else cause or text)
                return f"  memory of {agent}, version {version}, {status}: {told}"
            case TemplateMade(agent=agent, slots=slots):
                return f"  template of {agent}: {clean(', '.join(slots), one_line=True)}"
        text = notice(event)
        return f"  {clean(text, one_line=True)}" if text else ""


class _Live(_Nothing):
    """Who speaks, the newest turns, and what each agent remembers, drawn anew in place."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._console = console(sys.stderr)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=2)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            try:
                self._live.stop()
            except OSError:
                self._live = None

    def preload(self, turns: Sequence[Turn], versions: Sequence[MemoryVersion]) -> None:
        """Shows what there is."""
        self._progress.preload(turns, versions)

    def show(self, event: Event) -> None:
        """Drawn at the next refresh."""
        self._progress.take(event)

    def _render(self) -> "RenderableType":
        from rich.console import Group
        from rich.rule import Rule
        from rich.text import Text

        progress = self._progress
        now = f"{clean(progress.speaker)} speaks" if progress.speaker else "…"
        stage = f", {progress.stage}" if progress.stage else ""
        head = f"{progress.team}{stage}: turn {progress.current} of at most {progress.most}, {now}"
        parts: list[RenderableType] = [Text(clean(head), style="bold"), Text(progress.cost, style="dim")]
        if progress.notice:
            parts.append(Text(clean(progress.notice, one_line=True), style="yellow", overflow="ellipsis", no_wrap=True))
        parts.append(Rule(style="dim"))
        for turn in progress.turns[-_NEWEST:]:
            text = Text.assemble((f"{clean(turn.speaker)}: ", "bold cyan"), _short(turn.content))
            text.truncate(self._console.width * 2 - 2, overflow="ellipsis")
            parts.append(text)
        parts += [Rule(style="dim"), self._memories()]
        return Group(*parts)

    def _memories(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        progress = self._progress
        made = Table(box=None, pad_edge=False, header_style="bold", expand=True)
        made.add_column("memory of")
        made.add_column("version")
        made.add_column("newest")
        made.add_column("holds", ratio=1)
        names = [name for name in progress.agents if name in progress.memories]
        lines = max(1, (self._console.height - 14) // max(len(names), 1))
        width = max(self._console.width - 32, 20)
        for name in names:
            version, status, held = progress.memories[name]
            text = Text(clean(held, one_line=True), overflow="ellipsis")
            text.truncate(width * lines - 4, overflow="ellipsis")
            made.add_row(Text(name), str(version), Text(status), text)
        return made
