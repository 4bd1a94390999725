"""Runs the plug-in's team, in a process that finds the plug-in by its entry points alone."""

import sys

from memeplex import load_team, run_sync
from memeplex.models.testing import FunctionModel

prompts: list[str] = []


def answer(messages, output, settings):  # type: ignore[no-untyped-def]
    prompts.append(messages[-1]["content"])
    return f"Answer {len(prompts)}."


assert "memeplex_example" not in sys.modules
result = run_sync(load_team(sys.argv[1], model=FunctionModel(answer)).run("x"))
print(*(turn.speaker for turn in result.conversation.turns))
print(next(line for line in prompts[-1].splitlines() if line.startswith("heard:")))
