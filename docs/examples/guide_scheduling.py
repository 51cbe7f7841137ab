# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/scheduling.md."""

import asyncio
import threading
import time

import numpy as np


def apply_kernel(device, image):
    """A kernel of the reader's library."""
    return image * 2.0


# show: decorate
import tenon


@tenon.resources(GPU=1, CPU=0)
def sharpen(image):
    device = tenon.resource_id("GPU")      # the number of the slot that this call has
    return apply_kernel(device, image)
# end


def load(number):
    return np.full((48, 64), number, np.float32)


def dask_graph():
    # show: dask
    import dask
    import tenon.dask

    tenon.set_options(resources={"GPU": (0, 1)})        # two devices, one task at a time on each
    images = [dask.delayed(sharpen)(dask.delayed(load)(number)) for number in range(100)]
    means = dask.compute(*[image.mean() for image in images], scheduler=tenon.dask.get)
    # end
    assert means == tuple(2.0 * number for number in range(100))


def defaults():
    import tenon.dask

    # show: cpu
    @tenon.resources(CPU=0)                    # waits for a disk: needs no processor
    def read(path): ...

    @tenon.resources(CPU=4)                    # starts four threads itself, as BLAS and OpenMP do
    def factorize(matrix): ...

    def other(value): ...                      # needs one CPU, as every function without a decorator
    # end
    assert read.__tenon_resources__["CPU"] == 0 and factorize.__tenon_resources__["CPU"] == 4
    assert not hasattr(other, "__tenon_resources__")
    with tenon.set_options(resources={"CPU": 4}):
        assert tenon.dask.get({"x": (read, 1), "y": (factorize, "x"), "z": (other, "y")}, "z") is None


def overlap():
    import tenon.dask

    # show: overlap
    together = threading.Barrier(5)            # all five calls below must run at the same time

    @tenon.resources(GPU=1, CPU=0)
    def kernel():
        together.wait(timeout=60)
        return tenon.resource_id("GPU")

    def compute():                             # needs the only CPU
        together.wait(timeout=60)

    graph = {"compute": (compute,), **{f"kernel{i}": (kernel,) for i in range(4)}}
    with tenon.set_options(resources={"CPU": 1, "GPU": ((0, 1), (2, 3))}):
        slots = tenon.dask.get(graph, list(graph))[1:]
    # end
    assert sorted(slots) == [0, 1, 2, 3]


def options():
    import tenon.dask

    def run():
        return tenon.dask.get({"x": (tenon.resources(GPU=1)(lambda: tenon.resource_id("GPU")),)}, "x")

    graph, key = {"x": (len, "abc")}, "x"
    # show: options
    with tenon.set_options(resources={"CPU": 8, "GPU": ((0, 1), (2, 3)), "MEM": 64.0}):
        tenon.dask.get(graph, key)             # eight CPUs, four slots on two cards, 64 units of memory
    # end
    with tenon.set_options(resources={"GPU": (7,)}):
        assert run() == 7


def legacy():
    import dask.array as da

    array = da.ones((100, 100), chunks=50)

    # show: legacy
    @tenon.resources(GPU=1, CPU=0)
    def kernel(block):
        return apply_kernel(tenon.resource_id("GPU"), block)

    result = (array + 1).map_blocks(kernel, dtype=array.dtype, meta=array._meta).sum()
    total = result.compute(scheduler=tenon.dask.get)      # the rest of the program is as it was
    # end
    assert total == 100 * 100 * 4


def groups():
    import tenon.dask

    # show: groups
    @tenon.resources(GPU=2, CPU=0)
    def exchange():
        return tenon.resource_id("GPU")        # two slots of one card, ascending

    with tenon.set_options(resources={"GPU": ((0, 1), (2, 3))}):
        slots = tenon.dask.get({"x": (exchange,)}, "x")
    # end
    assert slots in ((0, 1), (2, 3))


def affinity():
    import tenon.dask

    # show: affinity
    @tenon.resources(GPU=1, CPU=0, affinity=["GPU"])
    def step(state):
        return [*state, tenon.resource_id("GPU")]     # on the slot that made its largest input
    # end

    # Two chains, each of which keeps to a slot but for its first steps, whose time is not known yet.
    graph = {(chain, 0): [] for chain in range(2)}
    graph.update({(chain, i): (step, (chain, i - 1)) for chain in range(2) for i in range(1, 30)})
    with tenon.set_options(resources={"GPU": (0, 1)}):
        for slots in tenon.dask.get(graph, [(0, 29), (1, 29)]):
            assert sum(one != other for one, other in zip(slots, slots[1:])) <= 6


def order():
    import tenon.dask

    graph = {"x": (len, "abc")}
    # show: order
    with tenon.set_options(skips=4, skew=0.5):
        tenon.dask.get(graph, "x")
    # end


def refuse():
    import tenon.dask

    # show: refuse
    @tenon.resources(GPU=8)
    def wide(): ...

    try:
        tenon.dask.get({"x": (wide,)}, "x")
    except ValueError as error:                # it names the request, and what there is
        print(error)
    # end
    else:
        raise AssertionError


def annotate():
    import dask
    import tenon.dask

    # show: annotate
    with dask.annotate(resources={"GPU": 1, "CPU": 0}):
        slot = dask.delayed(tenon.resource_id)("GPU")
    number = slot.compute(scheduler=tenon.dask.get, optimize_graph=False)
    # end
    assert number in (0, 1)


def share():
    import tenon.dask

    # show: share
    @tenon.resources(GPU=0.5, CPU=0)           # two of these calls have one device at a time
    def small(image): ...

    @tenon.resources(MEM=2.5)                  # a sum: an amount without numbers
    def decode(path): ...
    # end

    with tenon.set_options(resources={"GPU": (0,), "MEM": 16}):
        assert tenon.dask.get({"x": (small, 1), "y": (decode, 2)}, ["x", "y"]) == (None, None)


def ways():
    import tenon.dask

    # show: otherwise
    @tenon.resources(GPU=1, CPU=0, otherwise={"CPU": 2})
    def enlarge(image):
        device = tenon.resource_id("GPU", None)            # None: this call has two CPUs instead
        return image.repeat(2) if device is None else apply_kernel(device, image.repeat(2)) / 2
    # end

    for machine in {"CPU": 2}, {"CPU": 2, "GPU": (0,)}:
        with tenon.set_options(resources=machine):
            assert tenon.dask.get({"x": (np.ones, 4), "y": (enlarge, "x")}, "y").sum() == 8


def memory():
    import tenon.dask

    # show: writes
    @tenon.resources(writes_inputs=True)
    def add_noise(image):
        image += np.random.default_rng().normal(size=image.shape)     # a second run would add more
        return image
    # end

    assert tenon.dask.get({"x": (np.zeros, 4), "y": (add_noise, "x")}, "y").shape == (4,)


def in_place():
    import tenon.dask

    started = []

    def start_kernel(device, address, count):
        started.append((device, address, count))

    # show: place
    def load(number):
        image = np.asarray(tenon.empty(3 << 20, "float32"))       # memory that the host and the device share
        image[:] = number
        return image

    @tenon.resources(GPU=1, CPU=0, writes_inputs=True)
    def sharpen(image):
        start_kernel(tenon.resource_id("GPU"), image.ctypes.data, image.size)   # it works where the image is
        return image
    # end

    loaded, sharp = tenon.dask.get({"x": (load, 1), "y": (sharpen, "x")}, ["x", "y"])
    assert sharp is loaded and started == [(0, loaded.ctypes.data, 3 << 20)]
    find = tenon.dask.get_processes({"x": (load, 2), "y": (sharpen_elsewhere, "x")}, ["x", "y"], num_workers=2)
    assert (find[0] == 5).all() and find[1] is True     # what the task wrote is in the memory of the image


@tenon.resources(GPU=1, CPU=0, writes_inputs=True)
def sharpen_elsewhere(image):
    image[:] = 5
    return True


class Card:
    """A device with its own memory, which counts the images there."""

    def __init__(self):
        self.lock, self.count, self.most = threading.Lock(), 0, 0

    def __enter__(self):
        with self.lock:
            self.count += 1
            self.most = max(self.most, self.count)
        return self

    def __exit__(self, *_):
        with self.lock:
            self.count -= 1

    def put(self, image):
        return image.copy()

    def get(self, there):
        return there.copy()


def copy_always():
    import tenon.dask

    cards = Card(), Card()
    pair = threading.Barrier(4, timeout=30)             # as many run at a time as there are slots

    def blur(there):
        pair.wait()
        return there * 2

    # show: copies
    tenon.set_options(resources={"GPU": ((0, 1), (2, 3))})        # two cards; two images fit on each

    @tenon.resources(GPU=1, CPU=0)
    def blurred(image):
        with cards[tenon.resource_id("GPU") // 2] as card:
            there = card.put(image)
            return card.get(blur(there))                # nothing stays on the card
    # end

    graph = {f"x{i}": (blurred, np.full(1000, i)) for i in range(8)}
    results = tenon.dask.get(graph, [f"x{i}" for i in range(8)])
    assert [int(result[0]) for result in results] == [2 * i for i in range(8)]
    assert [(card.most, card.count) for card in cards] == [(2, 0), (2, 0)]
    tenon.set_options(resources=None)


def processes():
    import tenon.dask

    # show: processes
    def make(number):
        return np.full(1 << 20, number)        # 8 MiB, which no task that reads it copies

    graph = {f"chunk{i}": (make, i) for i in range(4)}
    graph.update({f"sum{i}": (np.sum, f"chunk{i}") for i in range(4)})
    sums = tenon.dask.get_processes(graph, [f"sum{i}" for i in range(4)], num_workers=2)
    # end
    assert sums == tuple(i << 20 for i in range(4))


def executor():
    image = load(3)
    # show: executor
    with tenon.Executor({"CPU": 4, "GPU": (0, 1)}) as executor:
        future = executor.submit(sharpen, image)                       # as sharpen() requests
        other = executor.submit(np.mean, image, resources={"CPU": 2})  # as this call requests
        print(future.result().shape, other.result())


    async def main(executor):
        return await asyncio.get_running_loop().run_in_executor(executor, sharpen, image)
    # end
    with tenon.Executor({"GPU": (0,)}) as executor:
        assert asyncio.run(main(executor)).mean() == 6


def after():
    image = load(3)
    with tenon.Executor({"CPU": 4, "GPU": (0, 1)}) as executor:
        # show: after
        @tenon.resources(GPU=1, CPU=0, affinity=["GPU"])
        def denoise(sharpened):
            return apply_kernel(tenon.resource_id("GPU"), sharpened.result())

        sharpened = executor.submit(sharpen, image)
        denoised = executor.submit(denoise, sharpened, after=sharpened)    # on the same device, if it is soon free
        # end
        assert denoised.result().shape == image.shape


def secede():
    def answer():
        return 42

    # show: secede
    def ask(question):
        tenon.secede()                         # another task may have this CPU now
        time.sleep(0.01)                       # here: wait for an answer over the network
        return answer()
    # end
    import tenon.dask

    graph = {f"x{i}": (ask, i) for i in range(10)}
    assert tenon.dask.get(graph, list(graph)) == (42,) * 10


def trace():
    import os
    import tempfile
    import tenon.dask

    graph = {f"x{i}": (load, i) for i in range(10)}
    before = os.getcwd()
    os.chdir(tempfile.mkdtemp())
    # show: trace
    with tenon.trace("run.json") as trace:
        tenon.dask.get(graph, list(graph))

    trace                                      # in a notebook: a picture of what was in use
    trace.occupancy()["CPU"]                   # or the numbers: [(microseconds, CPUs), ...]
    trace.bytes()["held"]                      # of results that tasks are still to read: [(microseconds, bytes), ...]
    # end
    assert max(amount for _, amount in trace.occupancy()["CPU"]) >= 1
    os.unlink("run.json")
    os.rmdir(os.getcwd())
    os.chdir(before)


def main():
    dask_graph()
    tenon.set_options(resources=None)
    for part in defaults, options, overlap, groups, affinity, order, share, secede, executor, after, ways, memory:
        part()
    for part in processes, trace, copy_always:
        part()
    with tenon.set_options(resources={"GPU": (0,)}):
        in_place()
    with tenon.set_options(resources={"GPU": (0, 1)}):
        for part in legacy, annotate, refuse:
            part()


if __name__ == "__main__":
    main()
