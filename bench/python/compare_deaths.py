# SPDX-License-Identifier: Apache-2.0
"""What compare.py asks of each side once: descriptors for each array, and what a SIGKILL leaves.

Each question runs in a process of its own, since some sides hang.
"""

import os
import pathlib
import signal
import time

from compare_sides import HELD, LARGE, SMALL, Port, standard, start_ray

PATIENCE_S = 5  # after which a get() that nobody answers counts as stuck
LEFT_S = 3  # after which memory that is still there counts as left
LONGEST_S = 30  # for one question


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def shared_bytes():
    """Of shared memory that exists on this machine."""
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("Shmem:"))) * 1024


def wait_until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)


def parts(name):
    """The context of a side, and a function that makes a large and a small array."""
    import numpy

    if name == "torch":
        import torch.multiprocessing

        return torch.multiprocessing.get_context("fork"), lambda size: torch.ones(size, dtype=torch.uint8)
    if name == "tenon":
        import tenon.multiprocessing

        return tenon.multiprocessing.get_context("fork"), lambda size: numpy.ones(size, numpy.uint8)
    return standard(), lambda size: numpy.ones(size, numpy.uint8)


def count_descriptors(name):
    if name == "Ray":
        ray = start_ray()
        import numpy

        held = [ray.get(ray.put(numpy.ones(1 << 18, numpy.uint8)))]
        before = descriptors()
        held += [ray.get(ray.put(numpy.ones(1 << 18, numpy.uint8))) for _ in range(HELD)]
        return (descriptors() - before) / HELD
    if name == "iceoryx2":
        service = f"tenon-compare-{os.getpid()}-held"
        get, put = Port(service, SMALL, False, HELD), Port(service, SMALL, True, HELD)
        before = descriptors()
        held = []
        for _ in range(HELD):
            put.touch_and_send()
            held.append(get.subscriber.receive())
        return (descriptors() - before) / HELD
    context, make = parts(name)
    queue = context.Queue()
    child = context.Process(target=lambda: [queue.put(make(SMALL)) for _ in range(HELD + 1)] and time.sleep(60))
    child.start()
    held = [queue.get()]
    before = descriptors()
    held += [queue.get() for _ in range(HELD)]
    each = (descriptors() - before) / HELD
    child.kill()
    return each


def kill_the_producer(name):
    """Whether a message arrives whose producer was killed after it had sent it."""
    context, make = parts(name)
    queue, sent = context.Queue(), context.Event()

    def send():
        queue.put(make(LARGE))
        time.sleep(1)  # whatever sends in another thread has done it by then, or waits for the receiver
        sent.set()
        time.sleep(60)

    child = context.Process(target=send)
    child.start()
    sent.wait()
    child.kill()
    child.join()
    try:
        return "arrives" if queue.get(timeout=PATIENCE_S)[-1] == 1 else "is damaged"
    except Exception as error:
        return f"is lost ({type(error).__name__})"


def kill_a_consumer(name):
    """Whether another consumer goes on when one is killed while it waits."""
    context, make = parts(name)
    queue, waits = context.Queue(), context.Event()

    def consume():
        waits.set()
        queue.get()

    child = context.Process(target=consume)
    child.start()
    waits.wait()
    time.sleep(0.5)  # it is in get() by then
    child.kill()
    child.join()
    queue.put(make(SMALL))
    try:
        queue.get(timeout=PATIENCE_S)
        return "goes on"
    except Exception:
        return "is locked for ever"


def ray_actor(ray, queue):
    """A process with a queue of Ray's, and its pid."""
    import numpy

    class Worker:
        def pid(self):
            return os.getpid()

        def send(self):
            queue.put(numpy.ones(LARGE, numpy.uint8))

        def receive(self):
            return queue.get()[-1]

    worker = ray.remote(Worker).remote()
    return worker, ray.get(worker.pid.remote())


def kill_rays_producer():
    ray = start_ray()
    import ray.util.queue

    queue = ray.util.queue.Queue()
    producer, pid = ray_actor(ray, queue)
    ray.get(producer.send.remote())
    os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    try:
        return "arrives" if queue.get(timeout=PATIENCE_S)[-1] == 1 else "is damaged"
    except Exception as error:
        return f"is lost ({type(error).__name__})"


def kill_rays_consumer():
    ray = start_ray()
    import ray.util.queue

    queue = ray.util.queue.Queue()
    consumer, pid = ray_actor(ray, queue)
    consumer.receive.remote()
    time.sleep(1)
    os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    queue.put(1)
    try:
        return "goes on" if queue.get(timeout=PATIENCE_S) == 1 else "is damaged"
    except Exception as error:
        return f"loses a message ({type(error).__name__})"


def kill_iceoryx2s_producer():
    name = f"tenon-compare-{os.getpid()}-killed"
    port = Port(name, LARGE, False)
    told, other = standard().Pipe()

    def send():
        put = Port(name, LARGE, True)
        put.touch_and_send()
        other.send(True)
        time.sleep(60)

    child = standard().Process(target=send)
    child.start()
    told.recv()
    child.kill()
    child.join()
    try:
        sample = port.subscriber.receive()
        return "is lost" if sample is None else "arrives"
    except Exception as error:
        return f"is lost ({type(error).__name__})"


def descendants(pid):
    found = [pid]
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += descendants(int(path.parent.name))
    return found


def kill_all_of(start):
    """Whether shared memory is left when all processes that `start` started were killed."""
    before = shared_bytes()
    told, other = standard().Pipe()

    def main():
        kept = start()
        other.send(True)
        time.sleep(60)
        del kept

    child = standard().Process(target=main)
    child.start()
    told.recv()
    assert shared_bytes() - before > LARGE / 2
    for pid in descendants(child.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    child.join()
    wait_until(lambda: shared_bytes() - before < LARGE / 2)
    time.sleep(LEFT_S)
    return "all of it" if shared_bytes() - before > LARGE / 2 else "none"


def ray_and_an_object():
    ray = start_ray()
    import numpy

    return ray.put(numpy.ones(LARGE, numpy.uint8))


def iceoryx2_and_a_sample():
    name = f"tenon-compare-{os.getpid()}-left"
    get, put = Port(name, LARGE, False), Port(name, LARGE, True)
    sample, array = put.loan()
    array[:] = 1
    sample.assume_init().send()
    return get, put, get.subscriber.receive()


def kill_all(name):
    """Bytes of shared memory that are left when every process of the side was killed."""
    before = shared_bytes()
    context, make = parts(name)
    told, other = standard().Pipe()

    def main():
        os.setsid()
        queue = context.Queue()
        queue.put(make(LARGE))
        message = queue.get()
        other.send(True)
        time.sleep(60 + message[0])

    child = standard().Process(target=main)
    child.start()
    told.recv()
    os.killpg(child.pid, signal.SIGKILL)
    child.join()
    wait_until(lambda: shared_bytes() - before < LARGE / 2)
    time.sleep(LEFT_S)
    return "all of it" if shared_bytes() - before > LARGE / 2 else "none"


def apart(function, *arguments):
    """What a function returns, in a process of its own; "waits for ever" if it does not end."""
    here, other = standard().Pipe()

    def run():
        os.setsid()
        other.send(function(*arguments))
        os._exit(0)

    child = standard().Process(target=run)
    child.start()
    found = here.recv() if here.poll(LONGEST_S) else "waits for ever"
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.join()
    return found


def clean_iceoryx2():
    """Make a node, which removes what dead nodes left."""
    import iceoryx2

    iceoryx2.set_log_level(iceoryx2.LogLevel.Fatal)
    iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)


KILLS = [
    ("a message whose producer was killed", kill_the_producer,
     {"Ray": (kill_rays_producer,), "iceoryx2": (kill_iceoryx2s_producer,)}),
    ("a queue of which a waiting consumer was killed", kill_a_consumer,
     {"Ray": (kill_rays_consumer,), "iceoryx2": (lambda: "goes on: each consumer has a queue of its own",)}),
    ("shared memory left when all were killed", kill_all,
     {"Ray": (kill_all_of, ray_and_an_object), "iceoryx2": (kill_all_of, iceoryx2_and_a_sample)}),
]
