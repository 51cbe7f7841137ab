# SPDX-License-Identifier: Apache-2.0
"""Threads: what one thread closes, shares or sets while another is inside of a call."""

import gc
import platform
import random
import sys
import threading
import time

import numpy as np
import pytest

from tenon import _core

WAIT_S = 30
MANY_BYTES = 8 << 20


@pytest.fixture
def domain():
    """A domain that a test may close while others are in it."""
    made = _core.Domain.create(quota_bytes=1 << 30)
    yield made
    made.close()


# ---- attributes ------------------------------------------------------------------------------


def test_attributes_may_be_set_while_a_put_of_the_tensor_waits(domain):
    queue = _core.Queue.create(domain, capacity=2)
    tensor = domain.zeros(16, "float32")
    neighbours = [domain.zeros(768, "uint8") for _ in range(8)]
    count, stop = 2000, threading.Event()

    def put_all():
        for number in range(count):
            queue.put([number, tensor] if number % 2 else tensor)

    def set_all():
        chance = random.Random(1)
        while not stop.is_set():
            tensor.metadata = {"mark": bytes([chance.randrange(256)]) * chance.randrange(3000)}

    threads = [threading.Thread(target=target) for target in (put_all, set_all)]
    for thread in threads:
        thread.start()
    for number in range(count):
        got = queue.get(timeout=WAIT_S)
        if number % 2:
            assert got[0] == number
            got = got[1]
        assert len(set(got.metadata.get("mark", b""))) <= 1
        assert got.tolist() == [0.0] * 16
    stop.set()
    for thread in threads:
        thread.join()
    assert all(not any(neighbour.tobytes()) for neighbour in neighbours)
    assert domain.audit() == []


def test_a_put_that_waits_sends_the_attributes_that_were_there(domain):
    queue = _core.Queue.create(domain, capacity=1)
    queue.put(0)
    tensor = domain.zeros(3, "float32")
    tensor.name = "before"
    thread = threading.Thread(target=queue.put, args=(tensor,))
    thread.start()
    wait_until_asleep(thread)
    tensor.metadata = {"k": b"A" * 3000}
    tensor.name = "after"
    assert queue.get() == 0
    got = queue.get(timeout=WAIT_S)
    thread.join()
    assert (got.name, got.metadata) == ("before", {})


FUTEX = {"x86_64": "202", "aarch64": "98"}
FUTEX_PRIVATE_FLAG = 128


def wait_until_asleep(thread):
    """Until the thread sleeps on a word in shared memory, as tenon's waits do; the GIL has a private one."""
    end = time.monotonic() + WAIT_S
    while True:
        assert time.monotonic() < end and thread.is_alive()
        with open(f"/proc/self/task/{thread.native_id}/syscall") as file:
            call = file.read().split()  # number, arguments; or one word
        if call[0] == FUTEX[platform.machine()] and not int(call[2], 16) & FUTEX_PRIVATE_FLAG:
            return


# ---- closing ---------------------------------------------------------------------------------


def waits(domain):
    """Each call that waits for ever, of objects of its own: (what to close, call)."""
    full = _core.Queue.create(domain, capacity=1)
    full.put(0)
    empty = _core.Queue.create(domain)
    event = _core.Event.create(domain)
    semaphore = _core.Semaphore.create(domain, permits=0)
    lock, held = _core.Lock.create(domain), _core.Lock.create(domain)
    condition = _core.Condition.create(domain)
    store = _core.Store.open_or_create(domain)
    version = store.put("key", 0)
    channel = _core.Channel.open_or_create(domain)
    channel.subscribe(0)
    behind = _core.Channel.open_or_create(domain, capacity=1)
    behind.subscribe(0)
    behind.publish(0)
    held.acquire()

    def wait_for_signal():
        lock.acquire()
        return condition.wait(lock, None)

    return [
        ((full,), lambda: full.put(domain.zeros(4, "int8"))),
        ((full,), lambda: full.push(b"x" * (2 << 20))),
        ((empty,), empty.get),
        ((empty,), empty.pop),
        ((empty, full), lambda: _core.Queue.wait_any([empty, empty], None)),
        ((event,), event.wait),
        ((semaphore,), semaphore.acquire),
        ((condition, lock), wait_for_signal),
        ((held,), held.acquire),
        ((store,), lambda: store.wait("", version, None)),
        ((channel,), channel.receive),
        ((behind,), lambda: behind.publish(1)),
    ]


def close_what_threads_wait_in(domain, cases, close):
    """What the calls of the cases raise when close() is called while each waits in a thread."""
    ends, threads = [], []

    def wait(call):
        try:
            call()
        except (_core.Error, ValueError) as error:
            ends.append((type(error), str(error)))

    for _, call in cases:
        threads.append(threading.Thread(target=wait, args=(call,)))
        threads[-1].start()
    for thread in threads:
        wait_until_asleep(thread)
    close()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert len(ends) == len(cases)
    return ends


def test_the_close_of_an_object_ends_the_waits_of_threads_in_it(domain):
    cases = waits(domain)

    def close():
        for objects, _ in cases:
            for one in objects:
                one.close()

    ends = close_what_threads_wait_in(domain, cases, close)
    assert all(kind is ValueError and "this process has closed the " in text for kind, text in ends)
    assert domain.audit() == []


def test_the_close_of_a_domain_ends_the_waits_of_threads_in_it(domain):
    ends = close_what_threads_wait_in(domain, waits(domain), domain.close)
    assert {kind for kind, _ in ends} <= {_core.Closed, _core.Interrupted, _core.Stale, ValueError}


class Closing:
    """A number, a truth: asking for it closes what it was given."""

    def __init__(self, what):
        self.what = what

    def __float__(self):
        self.what.close()
        return 0.001

    def __index__(self):
        self.what.close()
        return 0

    def __bool__(self):
        self.what.close()
        return True


@pytest.mark.parametrize("closes_domain", [False, True])
def test_an_argument_may_close_what_the_call_is_of(closes_domain):
    def closing(one, domain):
        return Closing(domain if closes_domain else one)

    def calls(domain):
        queue, event = _core.Queue.create(domain), _core.Event.create(domain)
        semaphore, lock = _core.Semaphore.create(domain), _core.Lock.create(domain)
        condition = _core.Condition.create(domain)
        yield lambda: queue.get(timeout=closing(queue, domain))
        yield lambda: queue.pop(closing(queue, domain))
        yield lambda: queue.put(1, timeout=closing(queue, domain))
        yield lambda: queue.push(b"", timeout=closing(queue, domain))
        yield lambda: queue.watch(closing(queue, domain))
        yield lambda: _core.Queue.wait_any([queue], closing(queue, domain))
        yield lambda: event.wait(closing(event, domain))
        yield lambda: semaphore.acquire(closing(semaphore, domain))
        yield lambda: lock.acquire(closing(lock, domain))
        yield lambda: condition.wait(lock, closing(condition, domain))
        yield lambda: domain.audit(Closing(domain))
        yield lambda: domain.empty(4, "int8", Closing(domain))
        yield lambda: domain.zeros(4, "int8", timeout=Closing(domain))

    for number in range(13):
        domain = _core.Domain.create(quota_bytes=8 << 20)
        with pytest.raises((ValueError, _core.Closed)):
            list(calls(domain))[number]()
        domain.close()


# ---- memory that moves -----------------------------------------------------------------------


class Garbage:
    """In a cycle: the collector runs `function` wherever it finds it."""

    def __init__(self, function):
        self.function, self.itself = function, self

    def __del__(self):
        self.function()


def collecting_often(function, call):
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # so that each collection is short
    Garbage(function)
    gc.set_threshold(1)
    try:
        return call()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def test_the_collector_may_share_a_tensor_that_is_made_a_list(domain):
    numbers = np.arange(3 * 400_000, dtype=np.int64).reshape(400_000, 3)
    tensor = _core.private(numbers.shape, "int64")
    tensor.copy_from(numbers)
    listed = collecting_often(lambda: tensor.share(domain), lambda: tensor[:2000].tolist())
    assert listed == numbers[:2000].tolist()


def test_the_collector_may_set_attributes_that_are_read(domain):
    tensor = domain.zeros((4, 3), "int8")
    for _ in range(50):
        tensor.lod = [[0, 1, 2], [0, 3, 4]]
        read = collecting_often(lambda: setattr(tensor, "lod", [[0, 4]]), lambda: tensor.lod)
        assert all(isinstance(offset, int) for level in read for offset in level)
        tensor.quantizer = ((1.0, 2.0, 3.0), (1, 2, 3), 1)
        read = collecting_often(lambda: setattr(tensor, "quantizer", None), lambda: tensor.quantizer)
        assert read in (None, ((1.0, 2.0, 3.0), (1, 2, 3), 1))


def test_a_private_tensor_may_be_shared_while_it_is_copied(domain):
    count, stop = 40, threading.Event()
    tensors = [_core.private(MANY_BYTES, "uint8") for _ in range(4)]
    for tensor in tensors:
        tensor[...] = 7
    failures = []

    def copy_all():
        while not stop.is_set():
            for tensor in tensors:
                try:
                    assert bytes(tensor.tobytes()[-4:]) == b"\7" * 4
                    assert bytes(np.asarray(tensor.copy())[-4:]) == b"\7" * 4
                except Exception as error:
                    failures.append(error)

    threads = [threading.Thread(target=copy_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(count // len(tensors)):
        for number, tensor in enumerate(tensors):
            tensor.share(domain)
            assert tensor.is_shared
            another = _core.private(MANY_BYTES, "uint8")
            another[...] = 7
            tensors[number] = another
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []


# ---- the GIL ---------------------------------------------------------------------------------


class Runner:
    """Counts up in another thread, which only gets the GIL while somebody gives it up."""

    def __init__(self):
        self.count, self.stop = 0, threading.Event()
        self.interval = sys.getswitchinterval()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stop.wait(0.0001):
            self.count += 1

    def __enter__(self):
        sys.setswitchinterval(1000)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        sys.setswitchinterval(self.interval)
        self.thread.join()

    def runs_beside(self, prepare, call, least=1):
        """At least so many times, of which each takes 0.1 ms or more."""
        for _ in range(100):  # somebody else may have the processors
            prepare()
            before = self.count
            call()
            if self.count >= before + least:
                return True
        return False


def large_calls(domain):
    queue = _core.Queue.create(domain)
    private = _core.private(MANY_BYTES, "uint8")
    shared = domain.zeros(MANY_BYTES, "uint8")
    array = np.zeros(MANY_BYTES, np.uint8)
    text = b"x" * MANY_BYTES

    def make_cold():
        """Memory that is warm is there at once."""
        while queue.count():
            queue.pop()
        domain.trim(0)

    def fill():
        make_cold()
        queue.push(text)

    return {
        "empty": (make_cold, lambda: domain.empty(MANY_BYTES, "uint8")),
        "zeros": (make_cold, lambda: domain.zeros(MANY_BYTES, "uint8")),
        "copy": (make_cold, shared.copy),
        "copy of private memory": (make_cold, private.copy),
        "tobytes": (make_cold, private.tobytes),
        "copy_from": (make_cold, lambda: private.copy_from(array)),
        "assignment": (make_cold, lambda: private.__setitem__(..., 3)),
        "put of an array": (make_cold, lambda: queue.put(array)),
        "push": (make_cold, lambda: queue.push(text)),
        "pop": (fill, queue.pop),
        "copy for DLPack": (make_cold, lambda: private.__dlpack__(copy=True)),
    }


def test_other_threads_run_while_much_memory_is_made_or_copied(domain):
    calls = large_calls(domain)
    with Runner() as runner:
        alone = [name for name, (prepare, call) in calls.items() if not runner.runs_beside(prepare, call)]
    assert alone == []


def test_other_threads_run_while_a_strided_array_is_copied(domain):
    queue = _core.Queue.create(domain)
    array = np.zeros((16384, 4096), np.uint8)[:, ::2]

    def drain():
        while queue.count():
            queue.pop()

    queue.put(array)
    with Runner() as runner:  # with memory that is there already: making it lets others run too
        assert runner.runs_beside(drain, lambda: queue.put(array), least=10)
