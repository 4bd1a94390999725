"""The data-pipeline team on the embedded model: Table 1 of the paper, and the cost of memory updates.

Each run is ``memeplex run data-pipeline --json`` in a process and a store of its own.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from bench.common import Result

SEEDS = 3
SYSTEMS = {"baseline (no memory)": "none", "default": "intrinsic", "rewrite + always": "paper"}


def case(memory: str, seed: int) -> dict[str, Any]:
    """One run's summary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "memeplex", "run", "data-pipeline", "--memory", memory, "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--store", f"{folder}/runs.db", "--json", "--quiet"], check=True, capture_output=True, text=True
        )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def results() -> list[Result]:
    """Three seeds of each system."""
    runs = {name: [case(memory, seed) for seed in range(SEEDS)] for name, memory in SYSTEMS.items()}
    detail = {name: _row(summaries) for name, summaries in runs.items()}
    updates = {
        name: sum(_tokens(summary, "memory update") for summary in summaries) for name, summaries in runs.items()
    }
    return [
        Result(
            "memory-update tokens, default against rewrite + always, three seeds",
            updates["default"] / updates["rewrite + always"],
            limit=0.5,
            detail=detail,
        ),
        *(_demo_bars(runs["default"])),
    ]


def _demo_bars(summaries: list[dict[str, Any]]) -> list[Result]:
    """What ``make demo`` promises, over the same runs; the worst of the three seeds counts."""
    return [
        Result("case study, wall seconds", max(s["seconds"] for s in summaries), "seconds", 360),
        Result(
            "case study, input from the prompt cache", min(s["cached_share"] for s in summaries), "share", 0.7, True
        ),
        Result("case study, time in memory updates", max(_update_share(s) for s in summaries), "share", 0.2),
        Result(
            "case study, workers with an empty memory",
            sum(not s["memories"][worker]["content"] for s in summaries for worker in ("BOA", "DEA", "MLE", "IA")),
            "agents",
            0,
        ),
    ]


def _row(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(values: list[float]) -> float:
        return round(statistics.fmean(values), 1)

    return {
        "tokens": mean([_tokens(s, "total") for s in summaries]),
        "of it memory updates": mean([_tokens(s, "memory update") for s in summaries]),
        "turns, votes included": mean([s["turns"] for s in summaries]),
        "seconds": mean([s["seconds"] for s in summaries]),
        "cached": round(statistics.fmean(s["cached_share"] for s in summaries), 3),
        "outcomes": ", ".join(s["outcome"]["status"] for s in summaries),
    }


def _tokens(summary: dict[str, Any], purpose: str) -> int:
    usage = summary["usage"]
    row = usage["total"] if purpose == "total" else usage["by_purpose"].get(purpose, {"input": 0, "output": 0})
    return int(row["input"] + row["output"])


def _update_share(summary: dict[str, Any]) -> float:
    """Seconds in memory updates against the seconds of the whole run."""
    updates = summary["usage"]["by_purpose"].get("memory update", {"seconds": 0.0})
    return float(updates["seconds"] / summary["seconds"])
