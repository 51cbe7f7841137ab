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
