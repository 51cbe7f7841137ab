#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""py_backlog_child, py_backlog_burst: queues without a bound whose consumer is behind.

py_backlog_child         ints from a child, which puts them as fast as it can, to its parent
py_backlog_burst         ints that a process puts while nobody reads
py_backlog_burst_dicts   small dicts that a process puts while nobody reads
py_backlog_bounded       ints from a child to its parent, through a queue with room for 1000

Each in turns with multiprocessing.Queue. The clock of a burst stops when the last put() has
returned; the burst is read, and its order checked, afterwards. Processes are made by fork.
"""

import time

from common import measure, print_figure

ROUNDS = 7
COUNT = 200_000
BOUND = 1000


def tenons():
    import tenon.multiprocessing

    return tenon.multiprocessing.get_context("fork")


def standards():
    import multiprocessing

    return multiprocessing.get_context("fork")


def an_int(i):
    return i


def a_dict(i):
    return {"id": i, "name": "a small dict", "weight": 0.5}


def put_all(queue):
    for i in range(COUNT):
        queue.put(i)


def get_all(queue, make):
    for i in range(COUNT):
        assert queue.get() == make(i)


def from_child(context, bound):
    """Messages a second, from before the start of the child."""
    while True:
        queue = context.Queue(bound)
        child = context.Process(target=put_all, args=(queue,))
        begun = time.monotonic()
        child.start()
        get_all(queue, an_int)
        yield COUNT / (time.monotonic() - begun)
        child.join()


def burst(context, make):
    """Calls of put() a second."""
    while True:
        queue = context.Queue()
        begun = time.monotonic()
        for i in range(COUNT):
            queue.put(make(i))
        seconds = time.monotonic() - begun
        get_all(queue, make)
        yield COUNT / seconds


def compare(name, side):
    figures = measure(ROUNDS, ours=lambda: side(tenons()), peers=lambda: side(standards()))
    print_figure(name, "1/s", figures["ours"], figures["peers"])


def main():
    compare("py_backlog_child", lambda context: from_child(context, 0))
    compare("py_backlog_burst", lambda context: burst(context, an_int))
    compare("py_backlog_burst_dicts", lambda context: burst(context, a_dict))
    compare("py_backlog_bounded", lambda context: from_child(context, BOUND))


if __name__ == "__main__":
    main()
