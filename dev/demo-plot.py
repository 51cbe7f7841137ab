#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw what a demo wrote: demo-plot.py hogwild.json PICTURE...

Above, accuracy on the test part; below, tensors handed over a second, or the loss if that is what
the demo noted. A line marks each kill, and says what the dead process held and when that was
released.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

INK = "#222222"
ACCURACY = "#1f5fa8"
LOWER = "#3a7d44"
KILL = "#b3261e"
WANTED = 0.96


def kibibytes(size):
    return f"{size / 1024:.1f} KiB"


def describe(kill):
    return (
        f"{kill['role']} killed at {kill['at_s']:.1f} s\n"
        f"held {kill['blocks']} blocks, {kibibytes(kill['bytes'])},\n"
        f"{kill['own_blocks']} of which nobody else held;\n"
        f"all released after {kill['released_ms']:.1f} ms"
    )


def mark_kills(upper, lower, run):
    seconds = run["settings"]["seconds"]
    for kill in run["kills"]:
        for axes in (upper, lower):
            axes.axvline(kill["at_s"], color=KILL, linewidth=1, linestyle="--")
        is_left = kill["role"] == "loader"
        upper.annotate(
            describe(kill),
            xy=(kill["at_s"], 0.40),
            xycoords=("data", "axes fraction"),
            xytext=(-8 if is_left else 8, 0),
            textcoords="offset points",
            horizontalalignment="right" if is_left else "left",
            verticalalignment="center",
            fontsize=8.5,
            color=KILL,
        )
    lower.set_xlim(0, max(seconds, run["series"][-1]["at_s"]))


def draw_accuracy(axes, run):
    series = run["series"]
    axes.plot([s["at_s"] for s in series], [s["accuracy"] for s in series], color=ACCURACY)
    axes.axhline(run.get("wanted", WANTED), color=INK, linewidth=0.7, linestyle=":")
    axes.set_ylabel("test accuracy")
    low = min(0.9, sorted(s["accuracy"] for s in series)[len(series) // 20])
    axes.set_ylim(low - 0.02, 1.0)
    axes.annotate(
        f"{run['result']['accuracy']:.4f}",
        xy=(series[-1]["at_s"], run["result"]["accuracy"]),
        xytext=(0, 5),
        textcoords="offset points",
        horizontalalignment="right",
        color=ACCURACY,
    )


def draw_handoffs(axes, run):
    series = run["series"][1:]
    axes.plot([s["at_s"] for s in series], [s["handoffs_per_s"] for s in series], color=LOWER)
    axes.set_ylabel("tensors handed over a second")
    axes.set_ylim(bottom=0)


def draw_loss(axes, run):
    series = [s for s in run["series"] if s["loss"] is not None]
    axes.plot([s["at_s"] for s in series], [s["loss"] for s in series], color=LOWER)
    axes.set_ylabel("training loss, a running mean")
    axes.set_yscale("log")


def title(run):
    if "title" in run:
        return run["title"]
    settings, result = run["settings"], run["result"]
    return (
        f"Hogwild on {settings['samples']} samples: {settings['loaders']} loaders, "
        f"{settings['trainers']} trainers, one network in shared memory\n"
        f"{result['pushed']} batches pushed, {result['lost']} lost, "
        f"{result['redelivered']} delivered again; "
        f"{result['handoffs']} tensors handed over, {result['discrepancies']} discrepancies"
    )


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        run = json.load(file)
    # Text stays text, and the file is the same for the same run.
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tenon", "font.size": 10})
    figure, (upper, lower) = pyplot.subplots(
        2, 1, sharex=True, figsize=(10, 6.5), height_ratios=(3, 2), layout="constrained"
    )
    draw_accuracy(upper, run)
    (draw_loss if "loss" in run["series"][0] else draw_handoffs)(lower, run)
    lower.set_xlabel("seconds")
    mark_kills(upper, lower, run)
    upper.set_title(title(run), fontsize=10, loc="left")
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.3)
    for path in sys.argv[2:]:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.endswith(".svg") else None)
        print(path)


if __name__ == "__main__":
    main()
