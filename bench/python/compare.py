#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare: tenon beside torch.multiprocessing, multiprocessing, Ray and iceoryx2, for the table of README.md.

Each side runs in processes of its own and imports nothing of the others'; the sides make their rounds in
turns. docs/figures.md says what each figure is and how each side is used. Prints the table in Markdown.
Arguments name sides; without any, all are measured.
"""

import os
import statistics
import sys
import tempfile

from common import measure
from compare_deaths import KILLS, apart, clean_iceoryx2, count_descriptors
from compare_sides import ECHO, LARGE, RATE

SIZES = {"4 KiB": 4096, "1 MiB": 1 << 20, "64 MiB": LARGE}
TRIPS = {"4 KiB": 200, "1 MiB": 40, "64 MiB": 4}
ROUNDS = 31
ROUNDS_OF_LARGE = 9
MESSAGES = {"tenon": 20_000, "torch": 1_000, "multiprocessing": 4_000, "Ray": 500, "iceoryx2": 8_000}


def show_time(us):
    return f"{us:.0f} us" if us < 1000 else f"{us / 1000:.1f} ms" if us < 100_000 else f"{us / 1e6:.2f} s"


def row(title, cells):
    print("| " + " | ".join([title, *cells]) + " |", flush=True)


def compare(names):
    row("", names)
    row("---", ["---"] * len(names))
    for title, size in SIZES.items():
        sides = {name: (lambda name=name, size=size, title=title: ECHO[name](size, TRIPS[title])) for name in names}
        values = measure(ROUNDS if size < LARGE else ROUNDS_OF_LARGE, **sides)
        row(f"an array of {title} there and back", [show_time(statistics.median(values[name])) for name in names])
    values = measure(ROUNDS, **{name: (lambda name=name: RATE[name](MESSAGES[name])) for name in names})
    row("arrays of 4 KiB a second, one way", [f"{round(statistics.median(values[name]), -2):,.0f}" for name in names])
    row("descriptors for each array that is held", [f"{apart(count_descriptors, name):.0f}" for name in names])
    for title, function, others in KILLS:
        cells = [apart(*others[name]) if name in others else apart(function, name) for name in names]
        row(title, [str(cell) for cell in cells])
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, Linux {os.uname().release}")


def main():
    names = sys.argv[1:] or list(ECHO)
    with tempfile.TemporaryDirectory(prefix="tenon-compare-") as folder:
        os.chdir(folder)
        try:
            compare(names)
        finally:
            os.chdir("/")
            if "iceoryx2" in names:
                apart(clean_iceoryx2)


if __name__ == "__main__":
    main()
