# SPDX-License-Identifier: Apache-2.0
"""Pools that lack descriptors, memory or processes, and whose messages are lost."""

import contextlib
import os
import resource
import threading
import time
import types

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp
from tenon import _core
from tenon.multiprocessing import _pool_worker

WAIT_S = 60
DESCRIPTORS = 256


@pytest.fixture
def in_files():
    """Arrays are sent in descriptors, which whoever gets them needs one for."""
    before = _core.get_strategy()
    _core.set_strategy("file_descriptor")
    yield
    _core.set_strategy(before)


@contextlib.contextmanager
def no_descriptor_is_left():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, DESCRIPTORS), hard))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def set_gate(gate):
    global _gate
    _gate = gate


def ones_behind_the_gate():
    _gate.wait()
    return np.ones(1000)


def total(array):
    return float(array.sum())


def test_a_result_waits_while_there_is_no_descriptor_for_it(fork, in_files, monkeypatch):
    waits = threading.Event()
    monkeypatch.setattr(mp.pool.util, "sub_warning", lambda *_: waits.set())
    gate = fork.Event()
    with fork.Pool(1, set_gate, (gate,)) as pool:
        result = pool.apply_async(ones_behind_the_gate)
        with no_descriptor_is_left():
            gate.set()
            assert waits.wait(WAIT_S)
        assert total(result.get(WAIT_S)) == 1000
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10


def use_up_descriptors():
    global _lack
    _lack = no_descriptor_is_left()
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


def kill_idle_workers(pool, begun):
    """More of them, one after the other, than may die before they take a task."""
    engine = pool._engine
    for _ in range(engine.processes * 2 + 4):
        with engine.lock:
            slots = engine.slots.items()
            idle = [worker for worker, slot in slots if engine.cells[slot * _pool_worker.CELLS] == _pool_worker.NONE]
        idle[0].kill()
        assert begun.acquire(timeout=WAIT_S)


def test_a_pool_goes_on_while_a_worker_is_at_a_task(fork):
    begun, gate = fork.Semaphore(0), fork.Event()
    with fork.Pool(2, begin, (begun, gate)) as pool:
        result = pool.apply_async(ones_behind_the_gate)
        assert begun.acquire(timeout=WAIT_S) and begun.acquire(timeout=WAIT_S)
        while pool._engine.tasks.count() or all(pool._engine.cells[at] == _pool_worker.NONE for at in (0, 3)):
            os.sched_yield()
        kill_idle_workers(pool, begun)
        gate.set()
        assert total(result.get(WAIT_S)) == 1000


def test_a_pool_goes_on_whose_workers_live_long(fork, monkeypatch):
    monkeypatch.setattr(mp.pool, "_LONG_S", 0)
    begun, gate = fork.Semaphore(0), fork.Event()
    with fork.Pool(1, begin, (begun, gate)) as pool:
        assert begun.acquire(timeout=WAIT_S)
        kill_idle_workers(pool, begun)
        assert pool.apply_async(total, (np.ones(10),)).get(WAIT_S) == 10
