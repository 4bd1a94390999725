"""``python -m bench [NAME …]``: measure, check the bars, and write docs/benchmarks.md.

Names: tokens, speed, store, retention, casestudy, recall, recall-larger, learning, learning-larger, locomo; by default
all. Results of earlier calls are kept in bench/results.json, so that a long list can be measured in parts. Learning
takes many hours for replies that are not recorded in bench/replies yet; it may be stopped, and goes on. The data of
locomo is not ours: the variable LOCOMO names its file, and without it the suite is skipped.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench import casestudy, learning, locomo, recall, retention, speed, store, tokens
from bench.common import Result, Skipped, machine, reported

KEPT = Path(__file__).with_name("results.json")
PAGE = Path("docs/benchmarks.md")
SMALL, LARGER = "local:qwen2.5-coder-0.5b", "local:qwen2.5-coder-1.5b"


def facts_kept() -> list[Result]:
    """Of 17, by the default and by the paper's combination, and the same with the model of 1.5 billion."""
    found = {kind: asyncio.run(retention.count(SMALL, kind)) for kind in ("intrinsic", "paper")}
    default, paper = found["intrinsic"], found["paper"]
    return [
        Result("facts kept of 17, default", default, "facts", 9, True, {"default": default, "rewrite + always": paper}),
        Result("facts kept of 17, default less rewrite + always", default - paper, "facts", 1, True),
    ]


def recalled(name: str) -> list[Result]:
    """Facts recalled of 15, means and intervals of one model. The bar is that memory helps at all."""
    table = recall.results(name, 5)
    gain = table["default"]["interval"][0] - table["none"]["interval"][0]
    return [Result(f"facts recalled of 15, default less none, {name}", round(gain, 2), "facts", 0.01, True, table)]


SUITES: dict[str, list[Callable[[], list[Result]]]] = {
    "tokens": [tokens.growth, tokens.total, tokens.injected],
    "speed": [speed.overhead, speed.makespan, speed.startup],
    "store": [partial(store.results, part) for part in store.PARTS.values()],
    "retention": [facts_kept],
    "casestudy": [casestudy.results],
    "recall": [lambda: recalled(SMALL)],
    "recall-larger": [lambda: recalled(LARGER)],
    "learning": [lambda: learning.results(SMALL, "docs/learning.svg")],
    "learning-larger": [lambda: learning.results(LARGER, "docs/learning-larger.svg")],
    "locomo": [locomo.results],
}


def main(names: list[str]) -> int:
    """Measure the named suites; the status is 1 when a bar is missed."""
    missed = 0
    for name in names or list(SUITES):
        print(f"{name} …", flush=True)
        try:
            results = [result for measure in SUITES[name] for result in measure()]
        except Skipped as reason:
            print(f"  skipped: {reason}", flush=True)
            continue
        missed |= reported(results)
        # Read again each time: two halves of the list may be measured side by side.
        kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        kept[name] = {
            "command": f"python -m bench {name}",
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": machine(),
            "results": [{**asdict(result), "met": result.met} for result in results],
        }
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        PAGE.write_text(page(kept))
    return missed


def page(kept: dict[str, Any]) -> str:
    """docs/benchmarks.md out of the kept results."""
    parts = [
        "# Benchmarks\n\nWritten by `make bench`; do not edit. Ratios are taken in one run with the contenders "
        "in turn, and are medians of seven rounds at least. CPU time is user and system time. The embedded models are "
        "small: their figures say what the memory does with a weak model, not how good a design can be.\n"
    ]
    for name, suite in kept.items():
        where = ", ".join(f"{key} {value}" for key, value in suite["machine"].items())
        parts.append(f"## {name.capitalize()}\n\n`{suite['command']}`, {suite['date']}; {where}.\n")
        parts.append("| what | figure | bar | met |\n|---|---|---|---|")
        for row in suite["results"]:
            limit = row["limit"]
            bar = "" if limit is None else f"{'≥' if row['least'] else '≤'} {limit:g}"
            figure = f"{row['figure']:.3g} {'' if row['unit'] == 'ratio' else row['unit']}".strip()
            parts.append(f"| {row['name']} | {figure} | {bar} | {'yes' if row['met'] else '**no**'} |")
        parts.append("")
        if (plot := PAGE.with_name(f"{name}.svg")).exists():
            parts.append(f"![{name}]({plot.name})\n")
        parts.extend(_details(suite["results"]))
    return "\n".join(parts).rstrip() + "\n"


def _details(results: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for row in results:
        if not row["detail"]:
            continue
        lines.append(f"{row['name']}:\n")
        if all(isinstance(value, dict) for value in row["detail"].values()):
            keys = list(next(iter(row["detail"].values())))
            lines += [f"| | {' | '.join(keys)} |", f"|---|{'---|' * len(keys)}"]
            lines += [f"| {n} | {' | '.join(str(d[k]) for k in keys)} |" for n, d in row["detail"].items()]
        else:
            lines += [f"- {name}: {value:,}" for name, value in row["detail"].items()]
        lines.append("")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
