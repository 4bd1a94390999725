"""What a team learns over a stream of tasks: ``python bench/learning.py [--model NAME] [--seeds N] [--tasks N]``.

An office takes four kinds of request. Each needs one form and one desk, drawn for each seed, which nobody can guess and
which the office tells only after an answer: a small model solves a task when the right memory is in its prompt, and not
otherwise. Three clerks take turns at random, one to a task, so that it matters who shares what with whom.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pydantic import BaseModel, StringConstraints

from bench.common import RIVALS, Result, interval
from memeplex import create_model
from memeplex.agents import Agent, Ask
from memeplex.memory import create_memory
from memeplex.messages import Conversation, Outcome, Task
from memeplex.models import Model
from memeplex.models.testing import RecordedModel
from memeplex.storage import opened_store
from memeplex.teams import MaxTurns, Random, Team
from memeplex.teams.speakers import Cast
from memeplex.usage import Purpose

REQUESTS = {
    "change of address": [
        "I have moved to {street} and want my letters sent there.",
        "Please note that I now live in {street}.",
        "Since last week my home is in {street}; what do you need from me?",
    ],
    "lost card": [
        "My library card is gone since I was in {street}.",
        "I must have dropped my library card near {street}.",
        "Somebody took my library card in {street}; I need another one.",
    ],
    "noise complaint": [
        "The bar in {street} plays music all night.",
        "Nobody in {street} can sleep because of the drilling.",
        "There is shouting in {street} every night, please do something.",
    ],
    "building permit": [
        "I want to put a shed behind my house in {street}.",
        "May I add a floor to the house in {street}?",
        "We plan a garage in {street}; what has to be filed?",
    ],
}
STREETS = "Oak Mill Harbour Chapel Garden River Station Market School Forest Castle Orchard".split()
REPLIES = Path(__file__).with_name("replies")
ASK = "A citizen writes: '{request}' It is a matter of: {kind}. Which form has to be used, and which desk?"
DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "no memory": ("none", {}),
    "emptied": ("lifelong", {"inject": False}),
    "episodes only": ("lifelong", {"procedures": False}),
    "local, N = 5": ("lifelong", {}),
    "shared, N = 5": ("lifelong", {"topology": "shared"}),
    "hybrid, N = 5": ("lifelong", {"topology": "hybrid"}),
    "local, N = 1": ("lifelong", {"every": 1}),
    "local, N = 3": ("lifelong", {"every": 3}),
    "local, N = 10": ("lifelong", {"every": 10}),
    "hybrid, scored as in the paper": ("lifelong", {"topology": "hybrid", "relative": False}),
}


class Slip(BaseModel):
    """The clerk's answer."""

    form: Annotated[str, StringConstraints(max_length=4)]
    desk: Annotated[str, StringConstraints(max_length=2)]


@dataclass(frozen=True)
class Office:
    """The rules of one seed, and its stream of tasks."""

    rules: dict[str, tuple[str, str]]
    tasks: Sequence[Task]

    @classmethod
    def draw(cls, seed: int, count: int) -> "Office":
        pick = random.Random(seed)
        forms = pick.sample([f"{letter}{digit}" for letter in "BCDFGHKLMN" for digit in range(1, 9)], len(REQUESTS))
        desks = pick.sample(range(1, 10), len(REQUESTS))
        rules = {kind: (form, str(desk)) for kind, form, desk in zip(REQUESTS, forms, desks, strict=True)}
        kinds = [list(REQUESTS)[i % len(REQUESTS)] for i in range(count)]
        pick.shuffle(kinds)
        tasks = [
            Task(
                text=ASK.format(
                    request=pick.choice(REQUESTS[kind]).format(street=f"{pick.choice(STREETS)} Street"), kind=kind
                ),
                data={"type": kind},
            )
            for kind in kinds
        ]
        return cls(rules, tasks)

    def judge(self, task: Task, answer: str) -> Outcome:
        """Right form and right desk; the office says so, or what would have been right."""
        kind = str(task.data["type"])
        form, desk = self.rules[kind]
        slip = Slip.model_validate_json(answer)
        right = (slip.form.upper(), slip.desk) == (form, desk)
        told = f"a {kind} needs form {form}, desk {desk}"
        feedback = f"Accepted: {told}." if right else f"Refused: {told}."
        return Outcome(status="judged", success=right, reward=float(right), details={"feedback": feedback})


class Judged(Random):
    """Clerks at random, with the office's word on their answers."""

    office: Any = None

    async def select(self, conversation: Conversation, cast: Cast) -> Ask:
        ask = await super().select(conversation, cast)
        return replace(ask, instruction="Which form, and which desk?", output=Slip)

    def outcome(self, conversation: Conversation, reason: str) -> Outcome:
        said = conversation.heard[-1].content if conversation.heard else ""
        judged: Outcome = self.office.judge(conversation.task, said)
        return judged


async def stream(model: Model, design: str, seed: int, count: int) -> list[dict[str, Any]]:
    """One stream: of each task, whether it was solved and what it took in tokens, memory included."""
    office = Office.draw(seed, count)
    kind, arguments = DESIGNS[design]
    memory = create_memory(kind, arguments)
    agents = [
        Agent(
            name,
            role="You are a clerk of the town's office. Of its forms and desks you know only what is before you.",
            model=model,
            memory=memory,
            max_tokens=24,
            temperature=0.0,
            layout="paper",
        )
        for name in ("Ada", "Bo", "Cyd")
    ]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with opened_store(f"{folder}/x.db") as store:
            team = Team(name="office", agents=agents, speakers=Judged(office=office), termination=MaxTurns(1))
            for number, task in enumerate(office.tasks):
                result = await team.run(task, store=store, seed=1000 * seed + number)
                assert result.outcome is not None
                rows.append(
                    {
                        "success": bool(result.outcome.success),
                        "answer": result.usage[Purpose.ANSWER].input,
                        "tokens": result.usage.total.tokens,
                    }
                )
    return rows


def table(streams: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Success and tokens a task by design: mean over seeds with its interval."""
    made: dict[str, Any] = {}
    for design, played in _by_design(streams).items():
        late = [rows[len(rows) // 2 :] for rows in played]
        made[design] = {
            "seeds": len(played),
            "solved": interval([_share(rows) for rows in played]),
            "solved, second half": interval([_share(rows) for rows in late]),
            "tokens a task": round(statistics.fmean(row["tokens"] for rows in played for row in rows)),
            "of it the prompt": round(statistics.fmean(row["answer"] for rows in played for row in rows)),
        }
    return made


def curves(streams: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What ``bench/curves.py`` draws: success by tenths of the stream, with intervals over seeds."""
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for design, played in _by_design(streams).items():
        tenth = max(len(played[0]) // 10, 1)
        starts = range(0, len(played[0]), tenth)
        lines[design] = [interval([_share(rows[i : i + tenth]) for rows in played]) for i in starts]
    every = {design: line for design, line in lines.items() if design.startswith("local, N")}
    return {
        "who shares what": {d: line for d, line in lines.items() if d not in every or d == "local, N = 5"},
        "tasks between two consolidations": every,
    }


def _by_design(streams: Sequence[dict[str, Any]]) -> dict[str, list[list[dict[str, Any]]]]:
    found = {design: [one["rows"] for one in streams if one["design"] == design] for design in DESIGNS}
    return {design: played for design, played in found.items() if played}


def _share(rows: Sequence[dict[str, Any]]) -> float:
    return statistics.fmean(row["success"] for row in rows)


def results(name: str, plot: str) -> list[Result]:
    """Five seeds of forty tasks for every design, with the curves in a file; takes hours, and may be stopped."""
    streams = asyncio.run(play(name, [(seed, design) for seed in range(5) for design in DESIGNS], 40))
    subprocess.run(
        [RIVALS, Path(__file__).with_name("curves.py"), plot],
        input=json.dumps(curves(streams)),
        text=True,
        check=True,
    )
    made = table(streams)
    solved = {design: figures["solved"][0] for design, figures in made.items()}
    emptied = abs(solved["emptied"] - solved["no memory"])
    best = max(
        solved[design]
        for design, (kind, arguments) in DESIGNS.items()
        if kind == "lifelong" and arguments.get("inject", True)
    )
    return [
        Result(f"tasks solved, an emptied memory against none, {name}", emptied, "share", 0),
        Result(f"tasks solved, the best memory less none, {name}", best - solved["no memory"], "share", detail=made),
    ]


async def play(name: str, asked: Sequence[tuple[int, str]], count: int) -> list[dict[str, Any]]:
    """The streams asked for, with the replies that have been recorded: only what is asked anew takes time.

    At temperature 0 a model says the same to the same prompt, so designs that come to the same prompt share its reply.
    """
    model = RecordedModel(REPLIES / f"{name.rpartition(':')[2]}.jsonl", create_model(name), name=name)
    streams: list[dict[str, Any]] = []
    try:
        for number, (seed, design) in enumerate(asked, 1):
            rows = await stream(model, design, seed, count)
            streams.append({"seed": seed, "design": design, "rows": rows})
            solved = sum(row["success"] for row in rows)
            told = f"{number} of {len(asked)}: {design}, seed {seed}: {solved} of {count} solved"
            print(told, file=sys.stderr, flush=True)
    finally:
        await model.aclose()
    return streams


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="local:qwen2.5-coder-0.5b")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--designs", default=",".join(name.replace(", ", "/") for name in DESIGNS))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    designs = [name.replace("/", ", ") for name in chosen.designs.split(",")]
    asked = [(seed, design) for seed in range(chosen.seeds) for design in designs]
    made = table(asyncio.run(play(chosen.model, asked, chosen.tasks)))
    if chosen.json:
        print(json.dumps(made))
    else:
        for design, figures in made.items():
            print(design, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
