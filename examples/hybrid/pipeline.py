#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pipeline of two stages, on processors and on an OpenCL device: pipeline.py [--frames N] [--picture FILE] [--json FILE]

Frames of two photographs (scikit-learn's china.jpg and flower.jpg, as a camera would pan over them) are sharpened by NumPy
(Richardson-Lucy deconvolution, by FFT) and then denoised by an OpenCL kernel (a bilateral filter), which reads and writes
arrays of tenon in place. It is written with dask.array; only the function with the kernel is decorated.

The device is PoCL's, which is a processor: it stands for an integrated GPU whose memory is the host's. It gets one core of
its own, and the rest of the program the other cores, as if the GPU took none. The same graph is run by dask.threaded, by
dask.distributed with resources, and by tenon.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import dask
import dask.array
import numpy as np
import tenon
import tenon.dask
from stages import denoise, device, log, photographs, sharpen

def keep_off_core_0(cores):
    """Keep all threads but the device's on the other cores, and those that they start."""
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            if os.sched_getaffinity(int(name)) != {0}:
                os.sched_setaffinity(int(name), cores)


# ---- the pipeline


def make_pipeline(frames):
    numbers = dask.array.arange(frames, chunks=1)
    shape = photographs[0].shape
    options = {"dtype": np.float32, "chunks": (1, *shape), "meta": np.empty((0, 0, 0), np.float32)}
    with dask.annotate(resources={"CPU": 1}):  # for distributed, which knows no other way
        sharp = numbers.map_blocks(sharpen, new_axis=[1, 2], **options)
    with dask.annotate(resources={"GPU": 1}):
        return sharp.map_blocks(denoise, **options)


# ---- the schedulers


def by_one_thread(pipeline):
    return pipeline.compute(scheduler="synchronous")


def by_threads(count):
    def run(pipeline):
        return pipeline.compute(scheduler="threads", num_workers=count)

    return run


def by_distributed(cpus):
    @contextlib.contextmanager
    def client():
        import logging

        from dask.distributed import Client, LocalCluster

        with LocalCluster(
            n_workers=1, threads_per_worker=cpus + 1, processes=False, resources={"CPU": cpus, "GPU": 1},
            dashboard_address=None, silence_logs=logging.ERROR,
        ) as cluster, Client(cluster) as made:
            yield made

    def run(pipeline):
        # Its optimization would fuse both stages, and give both requests to both.
        return pipeline.compute(optimize_graph=False)

    run.around = client
    return run


def by_tenon(cpus):
    def run(pipeline):
        with dask.config.set(annotations={}), tenon.set_options(resources={"CPU": cpus, "GPU": (0,)}):
            return pipeline.compute(scheduler=tenon.dask.get)

    return run


def run_once(name, run, pipeline):
    with getattr(run, "around", contextlib.nullcontext)():
        run(pipeline[:2])  # threads are there, and caches are warm
        del log.spans[:]
        began = time.perf_counter()
        image = run(pipeline)
        makespan = time.perf_counter() - began
    spans = [(stage, since - began, until - began, thread) for stage, since, until, thread in log.spans]
    return {"name": name, "makespan_s": makespan, "spans": spans, "sum": float(image.sum(dtype=np.float64))}


def bound_of(spans, cpus):
    """What no order of the tasks undercuts: the work of a stage, and the least that is before or after it."""
    times = {stage: [until - since for name, since, until, _ in spans if name == stage] for stage in ("CPU", "GPU")}
    return max(sum(times["CPU"]) / cpus + min(times["GPU"]), sum(times["GPU"]) + min(times["CPU"]))


def measure(sides, pipeline, cpus, rounds):
    """All sides in turns, and the same calls one after another. Of each side, the round with the median time."""
    results, bounds, alone = {name: [] for name in sides}, [], []
    for _ in range(rounds):
        alone.append(run_once("alone", by_one_thread, pipeline))
        bounds.append(bound_of(alone[-1]["spans"], cpus))
        for name, run in sides.items():
            results[name].append(run_once(name, run, pipeline))
    chosen = [sorted(each, key=lambda result: result["makespan_s"])[rounds // 2] for each in results.values()]
    return chosen, statistics.median(bounds), alone[-1]["spans"]


# ---- what comes out


def occupancy(result, stage, count):
    return sum(until - since for name, since, until, _ in result["spans"] if name == stage) / count / result["makespan_s"]


def print_table(results, bound, cpus):
    print(f"{'':38} makespan   over bound   CPU busy   GPU busy")
    for result in results:
        print(
            f"{result['name']:38} {result['makespan_s']:6.2f} s   {result['makespan_s'] / bound:10.3f}   "
            f"{occupancy(result, 'CPU', cpus):7.0%}    {occupancy(result, 'GPU', 1):7.0%}"
        )
    print(f"{'lower bound':38} {bound:6.2f} s")


def draw(results, bound, cpus, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colors = {"CPU": "#1f5fa8", "GPU": "#c9791d"}
    figure, axes = pyplot.subplots(len(results), 1, sharex=True, figsize=(10, 1.5 * len(results) + 0.8), layout="constrained")
    for axis, result in zip(axes, results):
        lanes = {}
        for stage, since, until, thread in sorted(result["spans"], key=lambda span: span[1]):
            lane = -1 if stage == "GPU" else lanes.setdefault(thread, len(lanes))
            axis.broken_barh([(since, until - since)], (lane - 0.4, 0.8), color=colors[stage], edgecolor="white", linewidth=0.3)
        axis.set_yticks([-1, *range(len(lanes))], ["GPU", *(f"CPU {i}" for i in range(len(lanes)))])
        axis.axvline(bound, color="#222222", linewidth=1, linestyle="--")
        axis.axvline(result["makespan_s"], color="#b3261e", linewidth=1)
        axis.set_title(f"{result['name']}: {result['makespan_s']:.2f} s", loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("seconds (dashed: the lower bound)")
    figure.savefig(path, dpi=130)
    print(f"{path}: a bar is a task; lanes of the CPU are threads, which share {cpus} core{'s' if cpus > 1 else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    cores = os.sched_getaffinity(0) - {0}
    if not cores or 0 not in os.sched_getaffinity(0):
        raise SystemExit("the demo needs two cores, of which one is core 0")
    cpus = len(cores)
    keep_off_core_0(cores)
    print(f"CPU: {cpus} core{'s' if cpus > 1 else ''}; GPU: {device.device.name} by PoCL, on a core of its own")
    pipeline = make_pipeline(arguments.frames)
    sides = {
        "dask.threaded, a thread for each CPU": by_threads(cpus),
        "dask.threaded, one thread more": by_threads(cpus + 1),
    }
    with contextlib.suppress(ImportError):
        import distributed  # noqa: F401

        sides["dask.distributed, resources"] = by_distributed(cpus)
    sides["tenon.dask"] = by_tenon(cpus)
    results, bound, alone = measure(sides, pipeline, cpus, arguments.rounds)
    takes = [statistics.median(until - since for name, since, until, _ in alone if name == stage) for stage in ("CPU", "GPU")]
    print(f"{arguments.frames} frames: {takes[0] * 1e3:.0f} ms on a CPU, then {takes[1] * 1e3:.0f} ms on the GPU\n")
    print_table(results, bound, cpus)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"bound_s": bound, "cpus": cpus, "results": results}, file)
    if arguments.picture:
        draw(results, bound, cpus, arguments.picture)
    if len({round(result["sum"], 3) for result in results}) > 1:
        sys.exit(f"the results differ: { {result['name']: result['sum'] for result in results} }")


if __name__ == "__main__":
    main()
