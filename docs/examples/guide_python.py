# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/python-multiprocessing.md and docs/guide/python-names.md."""

# show: change
import tenon.multiprocessing as mp     # was: import multiprocessing as mp
# end

import asyncio
import pathlib
import tempfile

import numpy as np


def work(value):
    assert value == 7


def repair():
    raise AssertionError("no owner of this lock has died")


def print_it():
    pass


def arrays():
    queue = mp.Queue()
    # show: arrays
    queue.put(np.ones(1000))               # private memory: copied once
    shared = np.asarray(tenon.zeros((1000,), "float64"))
    queue.put(shared)                      # in shared memory: not copied, sender and receiver see one array
    queue.put(shared[::2])                 # nor is a view
    queue.put({"x": shared, "y": [shared]})  # nor what is in an object
    # end
    assert queue.get()[0] == 1
    shared[:] = 5
    assert queue.get()[999] == 5 and len(queue.get()) == 500
    message = queue.get()
    shared[0] = 6
    assert message["x"][0] == message["y"][0][0] == 6
    # show: allocator
    with tenon.numpy_allocator():
        scaled = np.arange(1 << 20) * 0.5  # made in shared memory
    queue.put(scaled)                      # not copied; nor is what libraries over NumPy make there
    # end
    received = queue.get()
    scaled[3] = 7
    assert received[3] == 7


def coroutine():
    results, seen = mp.Queue(), []
    results.put("north")
    results.put(None)

    # show: get_async
    async def collect():
        while (result := await results.get_async()) is not None:  # the event loop does other work meanwhile
            seen.append(result)

    asyncio.run(collect())
    # end
    assert seen == ["north"]


def meet():
    image = np.zeros((480, 640), np.uint8)
    # show: queue
    queue = tenon.Queue("frames", domain="camera", capacity=64)
    queue.put({"number": 1, "image": image})       # any process of this user

    message = tenon.Queue("frames", domain="camera").get(timeout=5)
    # end
    assert message["number"] == 1 and message["image"].shape == (480, 640)


def follow():
    queue, camera = tenon.Queue("frames", domain="camera"), tenon.Queue("names", domain="camera")
    for number in range(3):
        queue.put(number)
    camera.put("north")
    queue.end()
    seen = []
    # show: async
    async def look():
        print(await camera.get_async(timeout=5))    # the event loop does other work meanwhile
        async for frame in queue:                   # until queue.end()
            seen.append(frame)

    asyncio.run(look())
    # end
    assert seen == [0, 1, 2]


def lease():
    producer = tenon.Queue("jobs", domain="shop", lease=True)
    producer.put(7)
    # show: lease
    queue = tenon.Queue("jobs", domain="shop", lease=True)
    with queue.receive() as message:               # lent to this process
        work(message.value)                        # acknowledged at the end; given back if this raises
    # end
    assert queue.qsize() == 0


def take_foreign():
    frames = tenon.Queue("foreign", domain="camera")
    frames._core.push(b"", [frames.domain.zeros((2,), "float32") for _ in range(2)])
    # show: foreign
    message = frames.receive(timeout=5)            # a program in C pushed two tensors, and no bytes
    image, mask = message.tensors                  # message.value would raise tenon.Invalid
    # end
    assert image.shape == mask.shape == (2,)


def synchronize():
    setter = tenon.Event("ready", domain="shop")
    setter.set()
    # show: locks
    with tenon.Lock("index", domain="shop") as lock:
        if lock.owner_died:                        # its last owner was killed while it held the lock
            repair()
    tenon.Event("ready", domain="shop").wait(timeout=10)
    with tenon.Semaphore("printers", 2, domain="shop"):
        print_it()
    # end


def hand_over():
    domain = tenon.domain("shop")
    tensor = tenon.zeros((2, 3), domain=domain)
    # show: export
    data = tensor.to_handle(uses=1, lifetime=60)   # in one process
    # end
    path = pathlib.Path(tempfile.mkdtemp()) / "handle"
    path.write_bytes(data)
    data = path.read_bytes()
    # show: import
    tensor = tenon.domain("shop").load_handle(data)   # in another one
    # end
    assert tensor.shape == (2, 3)


if __name__ == "__main__":
    # show: module
    import tenon
    # end

    arrays()
    coroutine()
    meet()
    follow()
    lease()
    take_foreign()
    synchronize()
    hand_over()
