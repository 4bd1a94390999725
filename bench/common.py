"""What the measurements share: processes, medians, the machine's description, bars."""

import contextlib
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROUNDS = 7

RIVALS = Path(__file__).resolve().parent.parent / ".venv-bench" / "bin" / "python"
"""Python of the environment in which the rivals are installed."""


class Skipped(Exception):  # noqa: N818
    """What a suite needs is not there; the message says what."""


@dataclass
class Result:
    """One figure. ``limit`` is what it may be at most, or with ``least``, at least."""

    name: str
    figure: float
    unit: str = "ratio"
    limit: float | None = None
    least: bool = False
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the bar is met; a figure without a bar always is."""
        if self.limit is None:
            return True
        return self.figure >= self.limit if self.least else self.figure <= self.limit


def reported(results: Iterable[Result], *, as_json: bool = False) -> int:
    """Show results as they come, or all of them as one JSON object; the status is 1 when a bar is missed."""
    shown: dict[str, Any] = {}
    for result in results:
        shown[result.name] = {"figure": result.figure, "unit": result.unit, "met": result.met, **result.detail}
        if not as_json:
            print(f"  {'ok    ' if result.met else 'MISSED'} {result.name}: {result.figure:.3g} {result.unit}")
            for name, value in result.detail.items():
                print(f"           {name}: {value}", flush=True)
    if as_json:
        print(json.dumps(shown))
    return int(not all(result["met"] for result in shown.values()))


def machine() -> dict[str, str]:
    """Where and with what this was measured."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": f"{os.cpu_count()} cores, {model}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "memeplex": version("memeplex"),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def endpoint(latency_ms: int = 0) -> Iterator[str]:
    """A loopback endpoint in a process of its own; gives its base URL."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.endpoint", str(port), str(latency_ms)])
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of one process, its start included."""
    pid = os.spawnvp(os.P_NOWAIT, command[0], list(command))
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return usage.ru_utime + usage.ru_stime


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the 95 % bootstrap interval of the mean (10,000 seeded resamples)."""
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(10_000))
    return round(statistics.fmean(values), 2), round(means[250], 2), round(means[9750], 2)
