#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_queue_rtt, gpu_small, gpu_process_memory, gpu_open: CUDA tensors in queues, beside torch.multiprocessing.

gpu_queue_rtt       a CUDA tensor of 1 MiB to another process, and one of that process back, over two SimpleQueues
gpu_small           new tensors of 4 KiB a second from one process to another over a Queue
gpu_small_foreign   the same with tensors of PyTorch's own allocator on both sides
gpu_process_memory  memory of the device that a process takes which receives one tensor of another
gpu_open            calls of the driver that export, open, map or unmap memory for a message after the first: counted
                    only in a rehearsal, since only the fake driver counts

Both sides look at each message on arrival, with a copy of one byte to the host. On a machine without a GPU the program
says so and ends with 77.

    bench_gpu.py [--small] [FIGURE...]

--small has few rounds.
"""

import ctypes
import json
import os
import statistics
import sys
import time

import common
from common_gpu import NOT_THERE, begin_side, free_bytes, is_rehearsal, maker, missing

ROUNDS = 15
TRIPS = 100
LARGE_BYTES, SMALL_BYTES = 1 << 20, 4096
# Messages of a round: so many that rounds of both sides last about as long.
OF_TENON, OF_TORCH = 10_000, 500
CALLS = [
    "cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle", "cuMemMap", "cuMemUnmap", "cuMemAlloc", "cuMemFree",
]
is_small = "--small" in sys.argv


def end_child(orders, child):
    orders.put(0)
    child.join()


# ---- there and back


def bounce(side, there, back, orders):
    begin_side(side)
    own = maker(side)(LARGE_BYTES, 7)  # PyTorch cannot pass on what it received
    for trips in iter(orders.get, 0):
        for _ in range(trips):
            tensor = there.get()
            assert int(tensor[-1]) == 7
            del tensor
            back.put(own)


def round_trips(side):
    """us of a round trip."""
    _, context = begin_side(side)
    there, back, orders = (context.SimpleQueue() for _ in range(3))
    child = context.Process(target=bounce, args=(side, there, back, orders))
    child.start()
    tensor = maker(side)(LARGE_BYTES, 7)
    trips = 5 if is_small else TRIPS
    while True:
        orders.put(trips)
        begun_ns = time.monotonic_ns()
        for _ in range(trips):
            there.put(tensor)
            assert int(back.get()[-1]) == 7
        try:
            yield (time.monotonic_ns() - begun_ns) / 1e3 / trips
        except GeneratorExit:
            end_child(orders, child)
            raise


# ---- small ones


def produce(side, kind, queue, orders):
    begin_side(side)
    make = maker(kind)
    for count in iter(orders.get, 0):
        for _ in range(count):
            queue.put(make(SMALL_BYTES, 7))


def arrivals(side, kind, count):
    """Tensors a second."""
    _, context = begin_side(side)
    queue, orders = context.Queue(), context.SimpleQueue()
    child = context.Process(target=produce, args=(side, kind, queue, orders))
    child.start()
    count = 50 if is_small else count
    while True:
        begun = time.monotonic()
        orders.put(count)
        for _ in range(count):
            tensor = queue.get()
            assert int(tensor[-1]) == 7
            del tensor
        try:
            yield count / (time.monotonic() - begun)
        except GeneratorExit:
            end_child(orders, child)
            raise


# ---- memory


def hold(side, queue, orders, answers):
    torch, _ = begin_side(side)
    tensor = queue.get()
    assert int(tensor[-1]) == 7
    torch.cuda.synchronize()
    answers.put("held")
    orders.get()


def process_memory(side):
    """MiB of the device that a new process takes."""
    torch, context = begin_side(side)
    tensor = maker(side)(LARGE_BYTES, 7)
    torch.cuda.synchronize()
    while True:
        queue, orders, answers = (context.SimpleQueue() for _ in range(3))
        before = free_bytes(torch)
        child = context.Process(target=hold, args=(side, queue, orders, answers))
        child.start()
        queue.put(tensor)
        answers.get()
        taken = (before - free_bytes(torch)) / (1 << 20)
        end_child(orders, child)
        yield taken


# ---- calls of the driver


def calls_now():
    fake = ctypes.CDLL(os.environ["TENON_TEST_FAKECUDA"])
    fake.fake_calls_total.restype = ctypes.c_uint64
    return sum(fake.fake_calls_total(name.encode()) for name in CALLS)


def count_calls(side):
    """Calls of all processes for a round trip; the first, in which memory is opened, is not counted."""
    trips = 5 if is_small else TRIPS
    rounds = round_trips(side)
    next(rounds)
    while True:
        before = calls_now()
        next(rounds)
        yield (calls_now() - before) / trips


FIGURES = [
    ("gpu_queue_rtt", "us", ROUNDS, round_trips),
    ("gpu_small", "1/s", ROUNDS, lambda side: arrivals(side, side, OF_TENON if side == "tenon" else OF_TORCH)),
    ("gpu_small_foreign", "1/s", ROUNDS, lambda side: arrivals(side, "torch", OF_TORCH)),
    ("gpu_process_memory", "MiB", 3, process_memory),
    ("gpu_open", "calls", 3, count_calls),
]


def print_figure(name, unit, ours, peers):
    if not is_rehearsal():
        common.print_figure(name, unit, ours, peers)
        return
    value, baseline = statistics.median(ours), statistics.median(peers)
    figure = {"name": name, "unit": unit, "value": value, "baseline": baseline, "valid": False, "n": len(ours)}
    if baseline > 0:
        figure["ratio"] = value / baseline
    print(json.dumps(figure), flush=True)


def measure(rounds, side):
    figures = common.measure(2 if is_small else rounds, tenon=lambda: side("tenon"), torch=lambda: side("torch"))
    return figures["tenon"], figures["torch"]


def main():
    why = missing()
    if why:
        print(f"bench_gpu: there is no GPU to measure: {why}", file=sys.stderr)
        return NOT_THERE
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    for name, unit, rounds, side in FIGURES:
        if name in wanted or (not wanted and (name != "gpu_open" or is_rehearsal())):
            print_figure(name, unit, *measure(rounds, side))
    return 0


if __name__ == "__main__":
    sys.exit(main())
