"""Overhead a turn against AutoGen, makespan with overlapped updates, and start-up time."""

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.common import RIVALS, ROUNDS, Result, cpu_seconds, endpoint
from memeplex import Agent, Team, create_model
from memeplex.memory import create_memory
from memeplex.teams import MaxTurns

CONTENDER = Path(__file__).with_name("contender.py")


def overhead() -> list[Result]:
    """CPU time a turn, contenders in turn, each run in a fresh process after a warm-up inside it."""
    pythons = {"autogen": str(RIVALS), "memeplex": sys.executable, "memeplex-store": sys.executable}
    times: dict[str, list[float]] = {kind: [] for kind in pythons}
    with endpoint() as url:
        for _ in range(ROUNDS):
            for kind, python in pythons.items():
                out = subprocess.run(
                    [python, str(CONTENDER), kind, url], check=True, capture_output=True, text=True
                ).stdout
                times[kind].append(float(out))
    median = {kind: statistics.median(values) for kind, values in times.items()}
    detail = {f"{kind}, CPU ms a turn": round(value, 2) for kind, value in median.items()}
    return [
        Result("overhead per turn, against AutoGen", median["memeplex"] / median["autogen"], limit=0.4, detail=detail),
        Result(
            "overhead per turn with the store on, against AutoGen",
            median["memeplex-store"] / median["autogen"],
            limit=0.8,
        ),
    ]


async def _makespan(url: str, overlap: bool) -> float:
    model = create_model(f"{url}#m")
    memory = create_memory("intrinsic", {"policy": "always"})
    agents = [Agent(f"a{i}", role=f"agent {i}", model=model, memory=memory) for i in range(5)]
    team = Team(name="round", agents=agents, termination=MaxTurns(15), overlap=overlap)
    started = time.perf_counter()
    await team.run("task")
    await model.aclose()
    return time.perf_counter() - started


def makespan() -> list[Result]:
    """Wall time of 15 turns with an update after each, at 200 ms a call; overlapped and sequential in turn."""
    ratios = []
    with endpoint(200) as url:
        for _ in range(ROUNDS):
            overlapped, sequential = (asyncio.run(_makespan(url, overlap)) for overlap in (True, False))
            ratios.append(overlapped / sequential)
    return [Result("makespan with overlapped updates, against --sequential", statistics.median(ratios), limit=0.65)]


def startup() -> list[Result]:
    """CPU seconds of whole processes."""
    quiet = "import sys; sys.stdout = open('/dev/null', 'w'); sys.argv[1:] = ['--help']"
    commands = {
        "import memeplex": ([sys.executable, "-c", "import memeplex"], 0.3),
        "memeplex --help": ([sys.executable, "-c", f"{quiet}; from memeplex.cli import main; main()"], 0.5),
    }
    return [
        Result(name, statistics.median(cpu_seconds(command) for _ in range(ROUNDS)), "CPU seconds", limit)
        for name, (command, limit) in commands.items()
    ]
