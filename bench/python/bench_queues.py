#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""py_queue_rtt, py_queue_small, py_queue_object: what queues carry between processes.

Ours carries NumPy arrays throughout. In turns with it, between as many processes:

py_queue_rtt             torch.multiprocessing.SimpleQueue, a tensor of the same 4 KiB
py_queue_rtt_pickled     multiprocessing.SimpleQueue, the same array, which it pickles
py_queue_small           torch.multiprocessing.Queue, tensors of the same 4 KiB
py_queue_small_pickled   multiprocessing.Queue, the same arrays
py_queue_object          multiprocessing.Queue, the same dict: 10 arrays of 16 KiB, 10 strings

PyTorch sends tensors as it does by default on Linux, by descriptor. Queues have no bound, which is
their default too. All processes are made by fork, and messages are looked at on arrival.

The round trip is that of two processes which sleep: each side, once awake, works for 50 us before
it answers, so that the other is asleep in the kernel by then; what counts is the time from "about
to send" on one side to "awake with it" on the other, both ways together.
"""

import mmap
import time

from common import end_children, measure, print_figure

ROUNDS = 15
TRIPS = 100
WORK_NS = 50_000
SMALL = 1024  # elements of float32: 4 KiB
LARGE = 4096  # 16 KiB
PRODUCERS = 2
# Messages of a round: so many that rounds of all sides last about as long.
SMALL_OF_TENON, SMALL_OF_TORCH, SMALL_PICKLED = 40_000, 1_000, 8_000
OBJECTS_OF_TENON, OBJECTS_PICKLED = 2_000, 400


# ---- the sides


def tenons():
    import tenon.multiprocessing

    return tenon.multiprocessing.get_context("fork")


def torchs():
    import torch.multiprocessing

    torch.set_num_threads(1)
    return torch.multiprocessing.get_context("fork")


def standards():
    import multiprocessing

    return multiprocessing.get_context("fork")


def an_array():
    import numpy

    return numpy.arange(SMALL, dtype=numpy.float32)


def a_tensor():
    import torch

    return torch.arange(SMALL, dtype=torch.float32)


def a_dict():
    import numpy

    arrays = {f"array {i}": numpy.full(LARGE, i, numpy.float32) for i in range(10)}
    return {**arrays, **{f"string {i}": f"what it says there: {i}" for i in range(10)}}


# ---- there and back


def bounce(receive, send, sent, count):
    """How long a message was under way to this side, in us."""
    under_way_ns = 0
    for _ in range(count):
        message = receive()
        awake_ns = time.monotonic_ns()
        under_way_ns += awake_ns - sent[0]
        while time.monotonic_ns() - awake_ns < WORK_NS:
            pass
        sent[0] = time.monotonic_ns()
        send(message)
        del message
    return under_way_ns / count / 1000


def answer(there, back, sent, orders):
    for trips in iter(orders.recv, 0):
        orders.send(bounce(there.get, back.put, sent, trips))


def round_trips(context, message):
    there, back = context.SimpleQueue(), context.SimpleQueue()
    sent = memoryview(mmap.mmap(-1, 8)).cast("q")
    orders, other = standards().Pipe()
    child = context.Process(target=answer, args=(there, back, sent, other))
    child.start()
    while True:
        orders.send(TRIPS)
        sent[0] = time.monotonic_ns()
        there.put(message)
        here_us = bounce(back.get, there.put, sent, TRIPS - 1)
        assert back.get()[-1] == SMALL - 1
        try:
            yield here_us + orders.recv()
        except GeneratorExit:
            orders.send(0)
            child.join()
            raise


# ---- from several to one


def produce(queue, orders, copy, message):
    for count in iter(orders.recv, 0):
        for _ in range(count):
            queue.put(copy(message))


def arrivals(context, message, copy, check, producers, count):
    """Messages a second."""
    queue = context.Queue()
    pipes = [standards().Pipe() for _ in range(producers)]
    children = [context.Process(target=produce, args=(queue, other, copy, message)) for _, other in pipes]
    for child in children:
        child.start()
    while True:
        begun = time.monotonic()
        for orders, _ in pipes:
            orders.send(count // producers)
        for _ in range(count):
            check(queue.get())
        try:
            yield count / (time.monotonic() - begun)
        except GeneratorExit:
            end_children(pipes, children)
            raise


def check_small(message):
    assert message[-1] == SMALL - 1


def check_dict(message):
    assert message["array 9"][-1] == 9 and message["string 9"].endswith("9")


def small(context, message, copy, count):
    return arrivals(context, message, copy, check_small, PRODUCERS, count)


def objects(context, count):
    return arrivals(context, a_dict(), lambda message: message, check_dict, 1, count)


def main():
    figures = measure(
        ROUNDS,
        tenon=lambda: round_trips(tenons(), an_array()),
        torch=lambda: round_trips(torchs(), a_tensor()),
        pickled=lambda: round_trips(standards(), an_array()),
    )
    print_figure("py_queue_rtt", "us", figures["tenon"], figures["torch"])
    print_figure("py_queue_rtt_pickled", "us", figures["tenon"], figures["pickled"])
    figures = measure(
        ROUNDS,
        tenon=lambda: small(tenons(), an_array(), lambda array: array.copy(), SMALL_OF_TENON),
        torch=lambda: small(torchs(), a_tensor(), lambda tensor: tensor.clone(), SMALL_OF_TORCH),
        pickled=lambda: small(standards(), an_array(), lambda array: array.copy(), SMALL_PICKLED),
    )
    print_figure("py_queue_small", "1/s", figures["tenon"], figures["torch"])
    print_figure("py_queue_small_pickled", "1/s", figures["tenon"], figures["pickled"])
    figures = measure(
        ROUNDS,
        tenon=lambda: objects(tenons(), OBJECTS_OF_TENON),
        pickled=lambda: objects(standards(), OBJECTS_PICKLED),
    )
    print_figure("py_queue_object", "1/s", figures["tenon"], figures["pickled"])


if __name__ == "__main__":
    main()
