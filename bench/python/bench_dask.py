#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dask_get, dask_get_processes: graphs of Dask, in its own schedulers and in ours.

dask_get_wide                    20,000 calls of an empty function and one of all their results, against
                                 dask.threaded.get; time for each task
dask_get_chain                   the same 20,000 calls, each with the result of the one before
dask_get_processes               4 chunks of 64 MiB: a task makes each, a task makes another of each two neighbours,
                                 and three tasks read each of those; each task is a message to one of two processes.
                                 Against dask.multiprocessing.get; graphs a second
dask_get_processes_distributed   the same against dask.distributed, with a worker process for each of two threads

Each side has its processes and threads before the first round. Tasks are not fused: how many there are is what
is compared.
"""

import importlib.util
import time

import numpy
from common import measure, print_figure

ROUNDS = 7
ROUNDS_OF_PROCESSES = 5
TASKS = 20_000
CHUNKS = 4
ELEMENTS = (64 << 20) // 8
PROCESSES = 2


# ---- graphs


def nothing(*values):
    return 1


def wide():
    graph = {("task", i): (nothing, i) for i in range(TASKS)}
    graph["all"] = (nothing, list(graph))
    return graph, "all"


def chain():
    graph = {("task", 0): 0}
    graph.update({("task", i): (nothing, ("task", i - 1)) for i in range(1, TASKS)})
    return graph, ("task", TASKS - 1)


def make(i):
    return numpy.full(ELEMENTS, i, float)


def mix(chunk, neighbour):
    return chunk + neighbour


def read(chunk, part):
    return chunk[part :: 1 << 14].sum()


def chunks():
    graph = {}
    for i in range(CHUNKS):
        graph["made", i] = (make, i)
        graph["mixed", i] = (mix, ("made", i), ("made", (i + 1) % CHUNKS))
        graph.update({("read", i, part): (read, ("mixed", i), part) for part in range(3)})
    return graph, [("read", i, part) for i in range(CHUNKS) for part in range(3)]


# ---- sides


def threads(get, graph, **options):
    def side():
        made, keys = graph()
        while True:
            before = time.perf_counter()
            get()(made, keys, num_workers=PROCESSES, **options)
            yield (time.perf_counter() - before) / TASKS * 1e6

    return side


def ours():
    import tenon.dask

    return tenon.dask.get


def dasks():
    import dask.threaded

    return dask.threaded.get


def rates(run):
    graph, keys = chunks()
    while True:
        before = time.perf_counter()
        results = run(graph, keys)
        yield 1 / (time.perf_counter() - before)
        count = len(range(0, ELEMENTS, 1 << 14))
        expected = [(i + (i + 1) % CHUNKS) * count for i in range(CHUNKS) for _ in range(3)]
        assert list(results) == expected


def our_processes():
    import tenon.dask

    def run(graph, keys):
        return tenon.dask.get_processes(graph, keys, num_workers=PROCESSES, optimize_graph=False, share_arrays=True)

    yield from rates(run)


def dask_processes():
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    import dask.multiprocessing

    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:

        def run(graph, keys):
            return dask.multiprocessing.get(graph, keys, pool=pool, optimize_graph=False)

        yield from rates(run)


def distributed_processes():
    import logging

    from dask.distributed import Client, LocalCluster

    with LocalCluster(
        n_workers=PROCESSES, threads_per_worker=1, dashboard_address=None, silence_logs=logging.ERROR
    ) as cluster, Client(cluster) as client:
        yield from rates(lambda graph, keys: client.get(graph, keys))


def main():
    if importlib.util.find_spec("dask") is None:
        print("dask is not installed: dev/setup bench-peers")
        raise SystemExit(77)
    for name, graph in ("wide", wide), ("chain", chain):
        times = measure(ROUNDS, tenon=threads(ours, graph), dask=threads(dasks, graph))
        print_figure(f"dask_get_{name}", "us", times["tenon"], times["dask"])
    sides = {"tenon": our_processes, "dask": dask_processes}
    if importlib.util.find_spec("distributed") is not None:
        sides["distributed"] = distributed_processes
    rates_of = measure(ROUNDS_OF_PROCESSES, **sides)
    print_figure("dask_get_processes", "1/s", rates_of["tenon"], rates_of["dask"])
    if "distributed" in rates_of:
        print_figure("dask_get_processes_distributed", "1/s", rates_of["tenon"], rates_of["distributed"])


if __name__ == "__main__":
    main()
