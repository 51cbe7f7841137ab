#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""py_sync_*: locks and the like of tenon.multiprocessing, and the standard library's, in turns.

Both sides run the same lines, with one of the two packages in each. All rates are in operations a
second, those of two processes together. A process that is alone never waits: its second is one of
its processor's, which other processes take nothing of.

py_sync_semaphore, _lock, _rlock   acquire() and release() in a process that is alone with it
py_sync_with                       `with lock:` of such a lock
py_sync_lock_two, _rlock_two       two processes that want one lock all the time
py_sync_value, _array              `value.value += 1` and `array[i] = x`, with the lock that each has
py_sync_condition                  two processes that wake each other in turns: hand-overs
py_sync_barrier_8, _barrier_2      as many processes, which meet again and again: meetings
"""

import importlib
import multiprocessing
import time

from common import measure, print_figure

ROUNDS = 15
ALONE = 100_000  # operations of a round
TWO = 200_000  # of each process: 14 ms and more, so that starting them is nothing beside it
ELEMENTS = 64
TURNS = 2_000
MEETINGS = {8: 300, 2: 1_500}


def packages():
    return {"tenon": "tenon.multiprocessing", "standard": "multiprocessing"}


def context_of(package):
    return importlib.import_module(package).get_context("fork")


# ---- alone


def alone(package, make):
    """`make` gives a function that does something so many times."""
    work = make(context_of(package))
    while True:
        begun = time.process_time()
        work(ALONE)
        yield ALONE / (time.process_time() - begun)


def take(lock):
    def work(count):
        for _ in range(count):
            lock.acquire()
            lock.release()

    return work


def take_with(lock):
    def work(count):
        for _ in range(count):
            with lock:
                pass

    return work


def add_to_value(context):
    value = context.Value("i", 0)

    def work(count):
        for _ in range(count):
            value.value += 1

    return work


def set_element(context):
    array = context.Array("d", ELEMENTS)

    def work(count):
        for i in range(count):
            array[i % ELEMENTS] = i

    return work


# ---- several processes


def serve(orders, start, work):
    for count in iter(orders.recv, 0):
        orders.send(do(start, work, count))


def do(start, work, count):
    """When this process began, and when it ended: monotonic() counts alike in all of them."""
    start.wait()
    begun = time.monotonic()
    work(count)
    return begun, time.monotonic()


def together(package, make, processes, count, counted):
    """All do work(count) at once; `counted`: how much of that is one operation.

    A barrier of the standard library's starts the round, on both sides.
    """
    context = context_of(package)
    works = make(context, processes)
    pipes = [context.Pipe() for _ in range(processes - 1)]
    start = multiprocessing.get_context("fork").Barrier(processes)
    children = [
        context.Process(target=serve, args=(other, start, work))
        for (_, other), work in zip(pipes, works[1:])
    ]
    for child in children:
        child.start()
    while True:
        for orders, _ in pipes:
            orders.send(count)
        times = [do(start, works[0], count), *(orders.recv() for orders, _ in pipes)]
        try:
            yield count * counted / (max(end for _, end in times) - min(begun for begun, _ in times))
        except GeneratorExit:
            for (orders, _), child in zip(pipes, children):
                orders.send(0)
                child.join()
            raise


def in_turns(context, processes):
    condition = context.Condition()
    turn = context.RawValue("i", 0)

    def player(number):
        def work(count):
            for _ in range(count):
                with condition:
                    while turn.value != number:
                        condition.wait()
                    turn.value = 1 - number
                    condition.notify()

        return work

    return [player(number) for number in range(processes)]


def meet(context, processes):
    barrier = context.Barrier(processes)

    def work(count):
        for _ in range(count):
            barrier.wait()

    return [work] * processes


def figures():
    """{name: side, which takes a package}"""
    for name, make in (
        ("semaphore", lambda context: take(context.Semaphore())),
        ("lock", lambda context: take(context.Lock())),
        ("rlock", lambda context: take(context.RLock())),
        ("with", lambda context: take_with(context.Lock())),
        ("value", add_to_value),
        ("array", set_element),
    ):
        yield name, lambda package, make=make: alone(package, make)
    for name, make in (
        ("lock_two", lambda context, n: [take(context.Lock())] * n),
        ("rlock_two", lambda context, n: [take(context.RLock())] * n),
    ):
        yield name, lambda package, make=make: together(package, make, 2, TWO, 2)
    yield "condition", lambda package: together(package, in_turns, 2, TURNS, 2)
    for n, meetings in MEETINGS.items():
        yield f"barrier_{n}", lambda package, n=n, meetings=meetings: together(package, meet, n, meetings, 1)


def main():
    for name, side in figures():
        rates = measure(
            ROUNDS,
            **{key: lambda package=package, side=side: side(package) for key, package in packages().items()},
        )
        print_figure(f"py_sync_{name}", "1/s", rates["tenon"], rates["standard"])


if __name__ == "__main__":
    main()
