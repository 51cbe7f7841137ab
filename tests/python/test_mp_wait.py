# SPDX-License-Identifier: Apache-2.0
"""Queues where the standard library expects pipes: connection.wait() and executors."""

import contextlib
import os
import resource
import select
import threading
from concurrent import futures
from multiprocessing import connection

import pytest
import tenon.multiprocessing as mp
from tenon import _core
from tenon.multiprocessing import _reader

WAIT_S = 30

mp.set_forkserver_preload(["tenon.multiprocessing"])


@pytest.fixture(params=["fork", "forkserver"])
def quick(request):
    return mp.get_context(request.param)


def test_queues_can_be_waited_for_with_other_things():
    one, other = mp.Queue(), mp.SimpleQueue()
    readers = [one._reader, other._reader]
    assert connection.wait(readers, 0) == []
    other.put(1)
    assert connection.wait(readers, WAIT_S) == [other._reader]
    one.put(2)
    assert connection.wait(readers, WAIT_S) == readers
    assert (one.get(), other.get()) == (2, 1)
    assert connection.wait(readers, 0) == []
    thread = threading.Thread(target=one.put, args=(3,))
    thread.start()
    assert connection.wait(readers, WAIT_S) == [one._reader]
    thread.join()
    assert one._reader.poll() and one._reader.recv() == 3 and not one._reader.poll()


def becomes_readable(reader, core):
    """By a message that comes after fileno() has looked for one."""
    poll = select.poll()
    poll.register(reader.fileno(), select.POLLIN)
    core.put("message")
    return bool(poll.poll(WAIT_S * 1000)) and core.get(0) == "message"


def test_a_queue_wakes_a_waiter_after_no_thread_could_start(domain, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    core = _core.Queue.create(domain, capacity=4)
    reader = _reader.Reader(core)
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            reader.fileno()
    assert becomes_readable(reader, core)


@contextlib.contextmanager
def descriptors_left(count):
    """This process can open so many more. tenon would raise a soft limit."""
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for descriptor in held[len(held) - count :]:
            os.close(descriptor)
        del held[len(held) - count :]
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_queue_wakes_a_waiter_after_a_lack_of_descriptors(domain, apart, left):
    def wait_again():
        core = _core.Queue.create(domain, capacity=4)
        reader = _reader.Reader(core)
        with descriptors_left(left), pytest.raises(OSError):
            reader.fileno()
        assert becomes_readable(reader, core)

    apart(wait_again)


def test_a_queue_can_be_waited_for_at_the_soft_limit_of_descriptors(domain, apart):
    def wait_at_the_limit():
        core = _core.Queue.create(domain, capacity=4)
        reader = _reader.Reader(core)
        highest = max(os.pipe())  # their numbers are for Python's own pipe, which raises no limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 100))
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        os.closerange(highest - 1, highest + 1)
        assert becomes_readable(reader, core)

    apart(wait_at_the_limit)


class LockThatTells:
    """A lock, and the threads that have asked for it."""

    def __init__(self):
        self.lock, self.asked = threading.Lock(), []

    def __enter__(self):
        self.asked.append(threading.current_thread())
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_threads_that_begin_to_wait_together_share_a_pipe(domain, monkeypatch):
    core = _core.Queue.create(domain, capacity=4)
    reader, making, watcher_of = _reader.Reader(core), LockThatTells(), _reader._watcher_of
    found = []
    other = threading.Thread(target=lambda: found.append(reader.fileno()))

    def find_watcher_while_another_thread_begins(domain):
        if other.ident is None:
            other.start()
            while other.is_alive() and other not in making.asked:
                os.sched_yield()
        return watcher_of(domain)

    monkeypatch.setattr(_reader, "_making", making, raising=False)
    monkeypatch.setattr(_reader, "_watcher_of", find_watcher_while_another_thread_begins)
    found.append(reader.fileno())
    other.join(WAIT_S)
    assert len(found) == 2 and len(set(found)) == 1


def test_threads_that_ask_together_are_given_one_reader(monkeypatch):
    queue, make, others = mp.SimpleQueue(), _reader.Reader, []

    def make_while_another_thread_asks(core):
        monkeypatch.undo()
        others.append(queue._reader)
        return make(core)

    monkeypatch.setattr(_reader, "Reader", make_while_another_thread_asks)
    assert queue._reader is others[0]


def get_when_it_is_told(queue):
    assert connection.wait([queue._reader], WAIT_S) == [queue._reader]
    assert queue.get() == 1


def test_a_child_waits_though_it_was_forked_while_a_thread_began_to():
    fork = mp.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=get_when_it_is_told, args=(queue,))
    with _reader._lock:  # as the thread has it
        child.start()
    try:
        queue.put(1)
        child.join(WAIT_S)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()


def square(x):
    return x * x


def test_executors_of_the_standard_library_take_a_context(quick):
    with futures.ProcessPoolExecutor(2, mp_context=quick) as executor:
        assert list(executor.map(square, range(20))) == [x * x for x in range(20)]
        with pytest.raises(futures.process.BrokenProcessPool):
            executor.submit(os._exit, 1).result(WAIT_S)
