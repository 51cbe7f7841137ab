#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw what dev/bench wrote: bench-plot.py bench.json PICTURE...

A bar for each target, from 1, where the target is just reached: to the right by how many times it
is exceeded, to the left by how many times it is missed. The axis is logarithmic.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

INK = "#222222"
QUIET = "#666666"
REACHED = "#1f6f8b"
MISSED = "#d1661b"


def measured(row):
    """What the figure came to, as text: its value, and its ratio where the target is one."""
    text = f"{row['value']:.3g} {row['unit']}".strip()
    if row["target"].startswith("ratio"):
        text += f", {row['ratio']:.3g} × baseline"
    return text


def wanted(row):
    unit = "× baseline" if row["target"].startswith("ratio") else row["unit"]
    sign, limit = row["target"].split()[1:]
    return f"{'≤' if sign == '<=' else '≥'} {limit} {unit}".strip()


def draw_bars(axes, rows):
    for place, row in enumerate(rows):
        score = row["score"]
        color = REACHED if row["is_reached"] else MISSED
        axes.barh(place, score - 1, left=1, height=0.62, color=color, zorder=2)
        axes.annotate(
            measured(row),
            xy=(score, place),
            xytext=(5 if score >= 1 else -5, 0),
            textcoords="offset points",
            horizontalalignment="left" if score >= 1 else "right",
            verticalalignment="center",
            fontsize=8.5,
            color=INK,
        )
        axes.annotate(
            wanted(row),
            xy=(1, place),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=8.5,
            color=QUIET,
            annotation_clip=False,
        )


def tick_text(x, _):
    return f"{x:g}×" if x >= 1 else f"1/{1 / x:.3g}"


def ticks_between(low, high):
    """Round numbers, and the same downwards; few enough to be read."""
    steps = (1, 2, 5) if high / low < 3000 else (1,)
    up = [step * 10**power for power in range(12) for step in steps]
    down = [1 / tick for tick in up]
    return sorted({tick for tick in up + down if low <= tick <= high})


def set_axis(axes, rows):
    scores = [row["score"] for row in rows] + [1]
    # Room for the texts at the ends of the bars, which have the same length on any axis.
    span = max(scores) / min(scores)
    room = max(span, 4) ** 0.42
    is_low = min(scores) < 1
    low = min(scores) / (room if is_low else 1.15)
    high = max(scores) * room
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(ticker.FixedLocator(ticks_between(low, high)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(tick_text))
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.axvline(1, color=INK, linewidth=1.2, zorder=3)
    axes.grid(axis="x", linewidth=0.3, zorder=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("times better than the target")


def title(about, rows):
    reached = sum(row["is_reached"] for row in rows)
    peers = "".join(f"{peer} {version}, " for peer, version in about.get("peers", {}).items())
    commit = f"{about['commit']}{' with changes' if about.get('is_modified') else ''}"
    return (
        f"{reached} of {len(rows)} targets reached\n"
        f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}; "
        f"huge pages for shared memory: {about['shmem_huge_pages']}; {peers}commit {commit}, {about['date'][:10]}"
    )


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        run = json.load(file)
    rows = [row for row in run["rows"] if row["score"] is not None]
    # Text stays text, and the file is the same for the same run.
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tenon", "font.size": 10})
    figure, axes = pyplot.subplots(figsize=(11, 1.9 + 0.36 * len(rows)), layout="constrained")
    set_axis(axes, rows)
    draw_bars(axes, rows)
    axes.annotate(
        "target",
        xy=(1, 1),
        xycoords="axes fraction",
        xytext=(8, 2),
        textcoords="offset points",
        fontsize=8.5,
        color=QUIET,
        annotation_clip=False,
    )
    figure.suptitle(title(run["machine"], rows), fontsize=10, x=0.01, horizontalalignment="left")
    figure.legend(
        handles=[Patch(color=REACHED, label="reached"), Patch(color=MISSED, label="missed")],
        loc="upper right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0,
        ncols=2,
        frameon=False,
    )
    for path in sys.argv[2:]:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.endswith(".svg") else None)
        print(path)


if __name__ == "__main__":
    main()
