"""Curves with intervals as one SVG: ``python bench/curves.py FILE.svg < curves.json``. Runs in .venv-bench.

The input is ``{panel: {line: [[mean, low, high], …]}}``, one triple for each tenth of a stream.
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt


def main(path: str) -> None:
    panels = json.load(sys.stdin)
    # The same file for the same figures.
    plt.rcParams |= {"svg.hashsalt": "memeplex", "svg.fonttype": "none"}
    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 4), sharey=True, squeeze=False)
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for name, points in lines.items():
            places = [10 * (i + 1) for i in range(len(points))]
            means, low, high = zip(*points, strict=True)
            axis.plot(places, means, marker="o", markersize=3, label=name)
            axis.fill_between(places, low, high, alpha=0.12)
        axis.set(title=title, xlabel="% of the stream", ylim=(-0.02, 1.02))
        axis.legend(fontsize="small", frameon=False)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("tasks solved, mean and 95 % interval")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
