# SPDX-License-Identifier: Apache-2.0
"""What the programs here share: rounds of ours and of the peer's in turns, and figures.

A side is a generator function: what it does before its first yield is set-up, and each yield is
what one round came to. Each side runs in a process of its own, which imports nothing of the
other's: PyTorch's tensors travel in one way at a time in a process.
"""

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import statistics
import traceback


def _serve(side, pipe, others):
    for other in others:  # inherited by fork(): they would keep the pipes of other sides open
        other.close()
    try:
        with contextlib.closing(side()) as rounds:
            while pipe.recv():
                pipe.send((next(rounds), None))
    except (EOFError, BrokenPipeError):  # the other process has given up
        pass
    except Exception:
        pipe.send((None, traceback.format_exc()))


class _Running:
    def __init__(self, name, side, before):
        context = multiprocessing.get_context("fork")
        self._name = name
        self._pipe, other = context.Pipe()
        others = [self._pipe, *(running._pipe for running in before)]
        self._process = context.Process(target=_serve, args=(side, other, others))
        self._process.start()
        self._pidfd = os.pidfd_open(self._process.pid)
        other.close()

    def round(self):
        try:
            self._pipe.send(True)
            # A child of a side that was killed may keep the other end of the pipe open, and the sentinel, too.
            if self._pipe not in multiprocessing.connection.wait([self._pipe, self._pidfd]):
                raise EOFError
            value, error = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise SystemExit(f"{self._name} died in a round, with exit code {self._process.exitcode}") from None
        if error is not None:
            raise SystemExit(f"{self._name} failed in a round:\n{error}")
        return value

    def end(self):
        self._pipe.send(False)
        self._process.join()
        if self._process.exitcode != 0:
            raise SystemExit(f"{self._name} ended with {self._process.exitcode}")

    def close(self):
        """Let the side end by itself, if it has not ended."""
        self._pipe.close()
        os.close(self._pidfd)


def end_children(pipes, children):
    """Tell each child by its pipe that there are no more rounds, and wait until it has ended."""
    for (orders, _), child in zip(pipes, children):
        orders.send(0)
        child.join()


def measure(rounds, **sides):
    """What the rounds of each side came to, taken in turns: {name: [value]}. It exits if a side fails."""
    running = {}
    try:
        for name, side in sides.items():
            running[name] = _Running(name, side, running.values())
        for side in running.values():
            side.round()  # not counted: imports, first memory, caches
        values = {name: [] for name in running}
        for _ in range(rounds):
            for name, side in running.items():
                values[name].append(side.round())
        for side in running.values():
            side.end()
        return values
    finally:
        for side in running.values():
            side.close()


def print_figure(name, unit, ours, peers):
    value, baseline = statistics.median(ours), statistics.median(peers)
    numbers = {"value": value, "baseline": baseline, "ratio": value / baseline}
    figure = {"name": name, "unit": unit, **{key: float(f"{x:.6g}") for key, x in numbers.items()}}
    print(json.dumps({**figure, "n": len(ours)}), flush=True)
