#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""py_channel_fanout: messages a second from one process to four that all get each of them.

Ours is a Channel with its defaults. In turns with it, four multiprocessing.Queues: a message is
put into each, as programs do it. A message is a new NumPy array of 4 KiB, which the readers look at on
arrival. All processes are made by fork.
"""

import time

from common import end_children, measure, print_figure

ROUNDS = 15
READERS = 4
SMALL = 1024  # elements of float32: 4 KiB
# Messages of a round: so many that rounds of both sides last about as long.
OF_TENON, PICKLED = 20_000, 1_500


def standards():
    import multiprocessing

    return multiprocessing.get_context("fork")


def read(receive, orders):
    """Receive as many messages as each order says."""
    for count in iter(orders.recv, 0):
        for _ in range(count):
            message = receive()
            assert message[-1] == SMALL - 1
        orders.send(count)


def fan_out(send, receivers, count):
    """Messages a second. receivers: a function of each reader, which it calls first and which returns its receive()."""
    import numpy

    def run(receiver, orders):
        receive = receiver()
        orders.send(0)
        read(receive, orders)

    array = numpy.arange(SMALL, dtype=numpy.float32)
    pipes = [standards().Pipe() for _ in receivers]
    children = [standards().Process(target=run, args=(one, pipe[1])) for one, pipe in zip(receivers, pipes)]
    for child in children:
        child.start()
    for orders, _ in pipes:
        orders.recv()  # it is ready
    while True:
        begun = time.monotonic()
        for orders, _ in pipes:
            orders.send(count)
        for _ in range(count):
            send(array.copy())
        for orders, _ in pipes:
            orders.recv()
        try:
            yield count / (time.monotonic() - begun)
        except GeneratorExit:
            end_children(pipes, children)
            raise


def channel():
    import tenon

    made = tenon.Channel()
    return fan_out(made.publish, READERS * [lambda: made.subscribe().receive], OF_TENON)


def queues():
    made = [standards().Queue() for _ in range(READERS)]

    def send(message):
        for queue in made:
            queue.put(message)

    return fan_out(send, [lambda queue=queue: queue.get for queue in made], PICKLED)


def main():
    values = measure(ROUNDS, tenon=channel, pickled=queues)
    print_figure("py_channel_fanout", "1/s", values["tenon"], values["pickled"])


if __name__ == "__main__":
    main()
