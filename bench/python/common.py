# SPDX-License-Identifier: Apache-2.0
"""What the programs here share: rounds of ours and of the peer's in turns, and figures.

A side is a generator function: what it does before its first yield is set-up, and each yield is
what one round came to. Each side runs in a process of its own, which imports nothing of the
other's: PyTorch's tensors travel in one way at a time in a process.
"""

import json
import multiprocessing
import statistics


def _serve(side, pipe):
    rounds = side()
    try:
        for _ in iter(pipe.recv, None):
            pipe.send(next(rounds))
    finally:
        rounds.close()


class _Running:
    def __init__(self, name, side):
        context = multiprocessing.get_context("fork")
        self._name = name
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(side, other))
        self._process.start()
        other.close()

    def round(self):
        try:
            self._pipe.send(True)
            return self._pipe.recv()
        except (EOFError, BrokenPipeError):
            raise SystemExit(f"{self._name} died in a round") from None

    def end(self):
        self._pipe.send(None)
        self._process.join()
        if self._process.exitcode != 0:
            raise SystemExit(f"{self._name} ended with {self._process.exitcode}")


def measure(rounds, **sides):
    """What the rounds of each side came to, taken in turns: {name: [value]}."""
    running = {name: _Running(name, side) for name, side in sides.items()}
    for side in running.values():
        side.round()  # not counted: imports, first memory, caches
    values = {name: [] for name in running}
    for _ in range(rounds):
        for name, side in running.items():
            values[name].append(side.round())
    for side in running.values():
        side.end()
    return values


def print_figure(name, unit, ours, peers):
    value, baseline = statistics.median(ours), statistics.median(peers)
    numbers = {"value": value, "baseline": baseline, "ratio": value / baseline}
    figure = {"name": name, "unit": unit, **{key: float(f"{x:.6g}") for key, x in numbers.items()}}
    print(json.dumps({**figure, "n": len(ours)}), flush=True)
