# SPDX-License-Identifier: Apache-2.0
"""The sides of compare.py: tenon, torch.multiprocessing, multiprocessing, Ray and iceoryx2.

Each function is a generator of one side's rounds, as common.measure() wants it.
"""

import ctypes
import os
import time

SMALL = 4096
LARGE = 64 << 20
HELD = 400  # arrays that a receiver keeps


def standard():
    import multiprocessing

    return multiprocessing.get_context("fork")


def rounds(trip, count, stop):
    """Yield the microseconds of one trip, over and over."""
    try:
        while True:
            begun = time.perf_counter()
            for _ in range(count):
                trip()
            yield (time.perf_counter() - begun) / count * 1e6
    finally:
        stop()


# ---- an array there and back. Each side touches what it got.


def echo_objects(get, put):
    while (message := get()) is not None:
        assert message[0] == message[-1]
        put(message)


def echo_by_queues(context, message, count):
    there, back = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=echo_objects, args=(there.get, back.put))
    child.start()

    def trip():
        there.put(message)
        answer = back.get()
        assert answer[0] == answer[-1]

    def stop():
        there.put(None)
        child.join()

    return rounds(trip, count, stop)


def tenon_echo(size, count):
    import numpy

    import tenon
    import tenon.multiprocessing

    array = numpy.asarray(tenon.zeros((size,), "uint8"))
    return echo_by_queues(tenon.multiprocessing.get_context("fork"), array, count)


def torch_echo(size, count):
    import torch.multiprocessing

    torch.set_num_threads(1)
    tensor = torch.zeros(size, dtype=torch.uint8).share_memory_()
    return echo_by_queues(torch.multiprocessing.get_context("fork"), tensor, count)


def multiprocessing_echo(size, count):
    import numpy

    here, other = standard().Pipe()

    def answer():
        buffer = numpy.empty(size, numpy.uint8)
        while other.recv_bytes_into(buffer) == size:
            other.send_bytes(buffer)

    child = standard().Process(target=answer)
    child.start()
    array = numpy.zeros(size, numpy.uint8)

    def trip():
        here.send_bytes(array)
        here.recv_bytes_into(array)

    def stop():
        here.send_bytes(b"end")
        child.join()

    return rounds(trip, count, stop)


def start_ray():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=1 << 30)
    return ray


def ray_echo(size, count):
    import numpy

    ray = start_ray()
    echo = ray.remote(type("Echo", (), {"answer": lambda self, array: array})).remote()
    array = numpy.zeros(size, numpy.uint8)

    def trip():
        answer = ray.get(echo.answer.remote(array))
        assert answer[0] == answer[-1]

    return rounds(trip, count, ray.shutdown)


class Port:
    """One direction of iceoryx2: a publisher and a notifier, or a subscriber and a listener."""

    def __init__(self, name, size, publishes, buffer=16):
        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Fatal)
        self.size = size
        self.node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        service = (
            self.node.service_builder(iceoryx2.ServiceName.new(name))
            .publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
            .subscriber_max_buffer_size(buffer)
            .subscriber_max_borrowed_samples(HELD)
            .enable_safe_overflow(False)
            .open_or_create()
        )
        event = self.node.service_builder(iceoryx2.ServiceName.new(name + "-event")).event().open_or_create()
        if publishes:
            strategy = iceoryx2.BackpressureStrategy.RetryUntilDelivered
            builder = service.publisher_builder().initial_max_slice_len(size).backpressure_strategy(strategy)
            self.publisher = builder.create()
            self.notifier = event.notifier_builder().create()
        else:
            self.subscriber = service.subscriber_builder().buffer_size(buffer).create()
            self.listener = event.listener_builder().create()

    def loan(self):
        import numpy

        sample = self.publisher.loan_slice_uninit(self.size)
        return sample, numpy.frombuffer(sample.payload().as_memory_view(), numpy.uint8)

    def touch_and_send(self):
        sample, array = self.loan()
        array[0] = array[-1] = 1
        sample.assume_init().send()
        self.notifier.notify()

    def receive(self):
        import numpy

        sample = self.subscriber.receive()
        while sample is None:
            self.listener.blocking_wait()
            sample = self.subscriber.receive()
        return sample, numpy.frombuffer(sample.payload().as_memory_view(), numpy.uint8)


def iceoryx2_echo(size, count):
    base = f"tenon-compare-{os.getpid()}-{size}"
    ready, other = standard().Pipe()

    def answer():
        get, put = Port(base + "-there", size, False), Port(base + "-back", size, True)
        other.send(True)
        while True:
            sample, array = get.receive()
            assert array[0] == array[-1]
            sample.delete()
            put.touch_and_send()

    child = standard().Process(target=answer)
    child.start()
    ready.recv()
    put, get = Port(base + "-there", size, True), Port(base + "-back", size, False)

    def trip():
        put.touch_and_send()
        sample, array = get.receive()
        assert array[0] == array[-1]
        sample.delete()

    def stop():
        child.kill()
        child.join()

    return rounds(trip, count, stop)


# ---- new arrays of 4 KiB, one way: messages a second


def rate(orders, take, count, child):
    try:
        while True:
            begun = time.perf_counter()
            orders.send(count)
            for _ in range(count):
                take()
            yield count / (time.perf_counter() - begun)
    finally:
        orders.send(0)
        child.join()


def produce(orders, put, make):
    for count in iter(orders.recv, 0):
        for _ in range(count):
            put(make())


def rate_by_queue(context, make, count):
    queue = context.Queue()
    orders, other = standard().Pipe()
    child = context.Process(target=produce, args=(other, queue.put, make))
    child.start()

    def take():
        assert queue.get()[-1] == 1

    return rate(orders, take, count, child)


def tenon_rate(count):
    import numpy

    import tenon.multiprocessing

    array = numpy.ones(SMALL, numpy.uint8)
    return rate_by_queue(tenon.multiprocessing.get_context("fork"), array.copy, count)


def torch_rate(count):
    import torch.multiprocessing

    torch.set_num_threads(1)
    return rate_by_queue(torch.multiprocessing.get_context("fork"), torch.ones(SMALL, dtype=torch.uint8).clone, count)


def multiprocessing_rate(count):
    import numpy

    return rate_by_queue(standard(), numpy.ones(SMALL, numpy.uint8).copy, count)


def ray_rate(count):
    import numpy

    ray = start_ray()

    class Sink:
        def take(self, array):
            assert array[-1] == 1

    sink = ray.remote(Sink).remote()
    array = numpy.ones(SMALL, numpy.uint8)
    try:
        while True:
            begun = time.perf_counter()
            ray.get([sink.take.remote(array.copy()) for _ in range(count)])
            yield count / (time.perf_counter() - begun)
    finally:
        ray.shutdown()


def iceoryx2_rate(count):
    name = f"tenon-compare-{os.getpid()}-rate"
    orders, other = standard().Pipe()

    def send():
        import numpy

        port = Port(name, SMALL, True, 256)
        other.send(True)
        source = numpy.ones(SMALL, numpy.uint8)
        for wanted in iter(other.recv, 0):
            for _ in range(wanted):
                sample, array = port.loan()
                array[:] = source
                sample.assume_init().send()

    port = Port(name, SMALL, False, 256)
    child = standard().Process(target=send)
    child.start()
    orders.recv()

    def take():
        import numpy

        sample = port.subscriber.receive()
        while sample is None:
            time.sleep(0)
            sample = port.subscriber.receive()
        assert numpy.frombuffer(sample.payload().as_memory_view(), numpy.uint8)[-1] == 1
        sample.delete()

    return rate(orders, take, count, child)


ECHO = {"tenon": tenon_echo, "torch": torch_echo, "multiprocessing": multiprocessing_echo, "Ray": ray_echo,
        "iceoryx2": iceoryx2_echo}
RATE = {"tenon": tenon_rate, "torch": torch_rate, "multiprocessing": multiprocessing_rate, "Ray": ray_rate,
        "iceoryx2": iceoryx2_rate}
