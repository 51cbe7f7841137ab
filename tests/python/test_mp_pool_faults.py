# SPDX-License-Identifier: Apache-2.0
"""Pools that lack descriptors, memory or processes, and whose messages are lost."""

import contextlib
import errno
import os
import pathlib
import resource
import select
import signal
import threading
import time
import types
from multiprocessing import forkserver

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp
from tenon import _core, _cpython, _domain
from tenon.multiprocessing import _pool_engine, _pool_worker

WAIT_S = 60
DESCRIPTORS = 64


@pytest.fixture
def in_files():
    """Arrays are sent in descriptors, which whoever gets them needs one for."""
    before = _core.get_strategy()
    _core.set_strategy("file_descriptor")
    yield
    _core.set_strategy(before)


@pytest.fixture
def warned(monkeypatch):
    """Set when a pool has to wait for something."""
    event = threading.Event()
    monkeypatch.setattr(_cpython, "sub_warning", lambda *_: event.set())
    return event


def take_the_lowest():
    """What is opened from now on is above the limit to come, and gives nothing back when it closes."""
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < DESCRIPTORS:
        held.append(os.open(os.devnull, os.O_RDONLY))
    return held


@contextlib.contextmanager
def no_descriptor_is_left(held):
    """tenon raises a soft limit, so the hard one is lowered: only in a child, as it stays so."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    try:
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)


def set_gate(gate):
    global _gate
    _gate = gate


def ones_behind_the_gate():
    _gate.wait()
    return np.ones(1000)


def ones_unless_0(number):
    return np.ones(1000) if number else number


def total(array):
    return float(array.sum())


def test_a_result_waits_while_there_is_no_descriptor_for_it(fork, apart, in_files, warned):
    def get_one_late():
        held, gate = take_the_lowest(), fork.Event()
        with fork.Pool(1, set_gate, (gate,)) as pool:
            result = pool.apply_async(ones_behind_the_gate)
            with no_descriptor_is_left(held):
                gate.set()
                assert warned.wait(WAIT_S)
            assert total(result.get(WAIT_S)) == 1000
            assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10

    apart(get_one_late)


def use_up_descriptors():
    global _lack
    _lack = no_descriptor_is_left(take_the_lowest())
    _lack.__enter__()


def end_lack(unused):
    _lack.__exit__(None, None, None)


def test_a_worker_tries_again_when_it_lacks_a_descriptor(fork, in_files, monkeypatch):
    clock = types.SimpleNamespace(monotonic=time.monotonic, sleep=end_lack)
    monkeypatch.setattr(_pool_worker, "time", clock)
    with fork.Pool(1, use_up_descriptors) as pool:
        (worker,) = pool._pool
        assert pool.apply_async(total, (np.ones(1000),)).get(WAIT_S) == 1000
        assert pool._pool == [worker]


class QueueInShortage:
    """Of tasks, with a clock: each wait in pop() is followed by an error, and the last by a task."""

    def __init__(self, *waits_s):
        self.waits_s, self.now_s = list(waits_s), 0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

    def pop(self):
        self.now_s += self.waits_s.pop(0)
        if not self.waits_s:
            return "task"
        raise tenon.SystemFailed("no descriptor")


def test_a_worker_tries_as_long_again_after_it_waited_for_a_task(monkeypatch):
    shortage = [0] * 100
    tasks = QueueInShortage(*shortage, 3600, *shortage, 0)
    monkeypatch.setattr(_pool_worker, "time", tasks)
    assert _pool_worker._pop(tasks, None) == "task"


@pytest.mark.parametrize("try_s", [0, 6])
def test_a_worker_does_not_try_for_ever(monkeypatch, try_s):
    tasks = QueueInShortage(*[try_s] * 1000, 0)
    monkeypatch.setattr(_pool_worker, "time", tasks)
    with pytest.raises(tenon.SystemFailed):
        _pool_worker._pop(tasks, None)


def test_jobs_fail_when_the_domain_is_closed_under_a_pool(fork):
    gate = fork.Event()
    with fork.Pool(1, set_gate, (gate,)) as pool:
        result = pool.apply_async(ones_behind_the_gate)
        pool._engine.results.end()  # as if it were
        with pytest.raises(tenon.Closed):
            result.get(WAIT_S)
        pool._engine.tasks.end()
        with pytest.raises(tenon.Closed):
            pool.apply_async(total, (np.ones(10),)).get(WAIT_S)


def test_a_pool_fails_whose_workers_cannot_pop_a_task(fork, in_files, monkeypatch):
    monkeypatch.setattr(_pool_worker, "_PATIENCE_S", 0)
    with fork.Pool(1, use_up_descriptors) as pool:
        with pytest.raises(mp.WorkerDied, match="before they could take a task"):
            pool.apply_async(total, (np.ones(1000),)).get(WAIT_S)


def test_a_pool_fails_whose_workers_end_without_an_error(fork):
    with pytest.raises(mp.WorkerDied, match="before they could take a task"):
        with fork.Pool(2, os._exit, (0,)) as pool:
            pool.apply_async(total, (np.ones(10),)).get(WAIT_S)


def begin(begun, gate):
    begun.release()
    set_gate(gate)


def is_at_work(cells):
    return cells[_pool_worker.JOB] != _pool_worker.NONE


def workers_at_work(engine):
    with engine.lock:
        return [worker for worker, cells in engine.cells.items() if is_at_work(cells)]


def kill_idle_workers(pool, begun):
    """More of them, one after the other, than may die before they take a task."""
    engine = pool._engine
    for _ in range(engine.processes * 2 + 4):
        with engine.lock:
            idle = next(worker for worker, cells in engine.cells.items() if not is_at_work(cells))
        idle.kill()
        assert begun.acquire(timeout=WAIT_S)


def test_a_pool_goes_on_while_a_worker_is_at_a_task(fork):
    begun, gate = fork.Semaphore(0), fork.Event()
    with fork.Pool(2, begin, (begun, gate)) as pool:
        result = pool.apply_async(ones_behind_the_gate)
        assert begun.acquire(timeout=WAIT_S) and begun.acquire(timeout=WAIT_S)
        while not workers_at_work(pool._engine):
            os.sched_yield()
        kill_idle_workers(pool, begun)
        gate.set()
        assert total(result.get(WAIT_S)) == 1000


def test_a_pool_goes_on_whose_workers_live_long(fork, monkeypatch):
    monkeypatch.setattr(_pool_engine, "_LONG_S", 0)
    begun, gate = fork.Semaphore(0), fork.Event()
    with fork.Pool(1, begin, (begun, gate)) as pool:
        assert begun.acquire(timeout=WAIT_S)
        kill_idle_workers(pool, begun)
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10


@pytest.fixture
def remove_files():
    """Arrays are sent in files, which anybody may remove."""
    before = _core.get_strategy()
    _core.set_strategy("file_system")
    folder = pathlib.Path(os.environ["TENON_SHM_DIR"])
    earlier = set(folder.rglob("*"))

    def remove():
        for path in set(folder.rglob("*")) - earlier:
            if path.is_file():
                path.unlink()

    yield remove
    _core.set_strategy(before)


def test_a_task_fails_whose_array_was_removed(fork, remove_files):
    gate = fork.Event()
    with fork.Pool(1, set_gate, (gate,)) as pool:
        first = pool.apply_async(ones_behind_the_gate)
        while not workers_at_work(pool._engine):
            os.sched_yield()
        lost = pool.apply_async(total, (np.ones(1000),))
        others = pool.map_async(abs, range(-200, 0), chunksize=1)  # more than wait for a worker
        while pool._engine.tasks.count() < 2:
            os.sched_yield()
        remove_files()
        gate.set()
        assert total(first.get(WAIT_S)) == 1000
        with pytest.raises(tenon.NotFound, match=r"a task, total\(\), or its result was lost"):
            lost.get(WAIT_S)
        assert others.get(WAIT_S) == list(range(200, 0, -1))
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10


def test_a_task_fails_whose_result_was_removed(fork, remove_files):
    gate, may_take = fork.Event(), threading.Event()
    with fork.Pool(1, set_gate, (gate,)) as pool:
        gate.set()
        pool.apply_async(abs, (-1,), callback=lambda _: may_take.wait())
        lost = pool.map_async(ones_unless_0, range(3), chunksize=1)
        while pool._engine.results.count() < 3:
            os.sched_yield()
        remove_files()
        may_take.set()
        with pytest.raises(tenon.NotFound, match=r"ones_unless_0\(\), or its result was lost"):
            lost.get(WAIT_S)
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10


def many_bytes(count):
    return b"x" * count


class Unshowable:
    def __repr__(self):
        raise ZeroDivisionError

    def __reduce__(self):
        raise TypeError("not today")


def give_unshowable():
    return Unshowable()


@pytest.fixture
def small_domain(monkeypatch):
    made = _core.Domain.create(f"small-{os.getpid()}", quota_bytes=64 << 20)
    monkeypatch.setattr(_domain, "default", lambda: made)
    yield made
    made.close()


def test_a_result_that_is_too_large_fails_alone(fork, small_domain):
    with fork.Pool(1) as pool:
        (worker,) = pool._pool
        with pytest.raises(mp.pool.MaybeEncodingError, match="quota") as raised:
            pool.apply_async(many_bytes, (80 << 20,)).get(WAIT_S)
        assert len(str(raised.value)) < 10000
        assert pool.apply_async(many_bytes, (3,)).get(WAIT_S) == b"xxx"
        assert pool._pool == [worker]


def test_a_result_that_cannot_be_shown_fails_alone(fork):
    with fork.Pool(1) as pool:
        with pytest.raises(mp.pool.MaybeEncodingError, match="not today"):
            pool.apply_async(give_unshowable).get(WAIT_S)


def test_a_worker_leaves_quietly_when_its_pool_has_ended(fork, capfd):
    gate = fork.Event()
    with fork.Pool(1, set_gate, (gate,)) as pool:
        (worker,) = pool._pool
        pool.apply_async(ones_behind_the_gate)
        while not workers_at_work(pool._engine):
            os.sched_yield()
        pool._engine.results.end()
        pool._engine.tasks.end()
        gate.set()
        worker.join(WAIT_S)
        while worker.exitcode is None:  # a thread of the pool has collected it, and will say so
            os.sched_yield()
        assert worker.exitcode == 0
    assert capfd.readouterr().err == ""


def test_a_worker_is_replaced_once_there_are_descriptors_for_it(fork, apart, warned):
    def lose_a_worker():
        held = take_the_lowest()
        with fork.Pool(1) as pool:
            with no_descriptor_is_left(held):
                pool._pool[0].kill()
                assert warned.wait(WAIT_S)
            assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10

    apart(lose_a_worker)


def test_a_worker_is_replaced_once_there_is_a_process_for_it(fork, warned, monkeypatch):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "no process")

    with fork.Pool(1) as pool:
        monkeypatch.setattr(os, "fork", refuse)
        pool._pool[0].kill()
        assert warned.wait(WAIT_S)
        monkeypatch.undo()
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10


def test_the_cells_of_a_worker_that_cannot_start_are_kept(fork, monkeypatch):
    refused = threading.Semaphore(0)

    def refuse():
        refused.release()
        raise BlockingIOError(errno.EAGAIN, "no process")

    with fork.Pool(1) as pool:
        cells = pool._engine.cells[pool._pool[0]]
        monkeypatch.setattr(os, "fork", refuse)
        pool._pool[0].kill()
        for _ in range(2):
            assert refused.acquire(timeout=WAIT_S)
        monkeypatch.undo()
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10
        assert pool._engine.cells[pool._pool[0]] is cells


def set_gates(begun, gates):
    global _begun, _gates
    _begun, _gates = begun, gates


def wait_at(number):
    _begun.release()
    _gates[number].wait()
    return os.getpid()


def end_behind(number):
    wait_at(number)
    os._exit(1)


def wait_for_the_end_of(descriptor):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(WAIT_S * 1000)
    os.close(descriptor)


def test_a_worker_that_is_taken_for_dead_marks_no_other_one():
    """When a fork server is killed, its children's exit codes are 255 though they live."""
    context = mp.get_context("forkserver")
    begun, gates = context.Semaphore(0), [context.Event(), context.Event()]
    with context.Pool(1, set_gates, (begun, gates), maxtasksperchild=1) as pool:
        first = pool.apply_async(wait_at, (0,))
        assert begun.acquire(timeout=WAIT_S)
        (living,) = pool._pool
        descriptor = os.pidfd_open(living.pid)
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
        second = pool.apply_async(end_behind, (1,))
        assert begun.acquire(timeout=WAIT_S)
        gates[0].set()
        assert first.get(WAIT_S) == living.pid
        wait_for_the_end_of(descriptor)
        gates[1].set()
        with pytest.raises(mp.WorkerDied) as raised:
            second.get(WAIT_S)
        assert len(raised.value.pids) == _pool_worker.ATTEMPTS and living.pid not in raised.value.pids


def test_a_worker_is_replaced_that_another_thread_collects(fork):
    """Between two looks of the thread that replaces the dead."""
    with fork.Pool(1) as pool:
        engine, is_collected = pool._engine, threading.Event()

        def replace(waited_s):
            if waited_s is None and not is_collected.is_set():
                (worker,) = pool._pool
                worker.kill()
                worker.join()
                engine._collect_those_at((0, 0), os.getpid())
                is_collected.set()
                return None
            return type(engine)._replace_dead(engine, waited_s)

        engine._replace_dead = replace
        engine.notifier.put(None)
        assert is_collected.wait(WAIT_S)
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10


def test_what_is_larger_than_a_lowered_quota_fails_alone(fork, small_domain, monkeypatch):
    monkeypatch.setattr(_pool_worker, "_CHECK_S", 0.1)
    with fork.Pool(1) as pool:
        small_domain.set_quota(16 << 20)
        with pytest.raises(mp.pool.MaybeEncodingError, match="quota"):
            pool.apply_async(many_bytes, (20 << 20,)).get(WAIT_S)
        with pytest.raises(tenon.NoMemory, match="quota"):
            pool.apply_async(len, (many_bytes(20 << 20),)).get(WAIT_S)
        assert pool.apply_async(len, (many_bytes(2 << 20),)).get(WAIT_S) == 2 << 20


class CountsAtFirst:
    """A queue in which something happens right after somebody has counted its messages."""

    def __init__(self, queue, happen):
        self.domain, self.id = queue.domain, queue.id
        self.queue, self.happen = queue, happen

    def count(self):
        count = self.queue.count()
        self.happen()
        return count


def test_a_task_that_comes_back_meanwhile_is_not_lost():
    notifier = mp.pool._Notifier()
    engine = _pool_engine.Engine(1, None, [], None, {}, notifier)
    engine.sent[0, 0] = "task"
    engine._note_loss(MemoryError())
    tasks = engine.tasks
    tasks.push(b"task")
    assert engine._find_lost() is None
    leased = tasks.pop()
    engine.tasks = CountsAtFirst(tasks, leased.give_back)
    assert engine._find_lost() is None
    tasks.pop().ack()
    engine.tasks = tasks
    assert engine._find_lost() == [(0, 0)]


class LosesOne:
    """A queue that the first message is taken from in vain."""

    def __init__(self, queue):
        self.queue, self.pop = queue, self.lose

    def lose(self, timeout=None):
        self.queue.pop()
        self.pop = self.queue.pop
        raise MemoryError("no room for its bytes")


def test_a_task_fails_whose_result_there_is_no_memory_for(fork):
    with fork.Pool(1) as pool:
        results = pool._engine.results
        pool._engine.results = LosesOne(results)
        assert pool.apply_async(abs, (-1,)).get(WAIT_S) == 1  # waited for already
        with pytest.raises(MemoryError, match=r"a task, abs\(\), or its result was lost: no room"):
            pool.apply_async(abs, (-2,)).get(WAIT_S)
        pool._engine.results = results
        assert pool.apply_async(abs, (-3,)).get(WAIT_S) == 3


def test_a_task_fails_that_is_lost_before_its_push_has_returned(fork):
    is_told = threading.Event()
    with fork.Pool(1) as pool:
        engine = pool._engine
        results, push_task, tell_lost = engine.results, engine._push_task, engine._tell_lost

        def return_later(job, index, message, tensors):
            push_task(job, index, message, tensors)
            is_told.wait(WAIT_S)

        def tell(lost):
            tell_lost(lost)
            if lost is not None:
                is_told.set()

        engine.results = LosesOne(results)
        assert pool.apply_async(abs, (-1,)).get(WAIT_S) == 1  # waited for already
        engine._push_task, engine._tell_lost = return_later, tell
        lost = pool.apply_async(abs, (-2,))
        with pytest.raises(MemoryError, match=r"a task, abs\(\), or its result was lost"):
            lost.get(WAIT_S)
        engine.results = results
        assert pool.apply_async(abs, (-3,)).get(WAIT_S) == 3
