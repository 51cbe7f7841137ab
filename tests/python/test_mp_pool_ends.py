# SPDX-License-Identifier: Apache-2.0
"""The end of a pool of tenon.multiprocessing: in its own threads, and while jobs are told."""

import contextlib
import itertools
import os
import signal
import threading

import pytest
import tenon
import tenon.multiprocessing as mp
from tenon.multiprocessing import _pool_worker

WAIT_S = 60


def square(x):
    return x * x


def test_a_callback_may_terminate_the_pool(fork):
    """While another of its threads collects workers, which needs the pool's lock."""
    pool = fork.Pool(2, maxtasksperchild=1)
    others_wait, is_over = threading.Event(), threading.Event()
    collect, engine = pool._engine.collect, pool._engine

    def collect_in_a_callback():
        if threading.current_thread() is pool._worker_handler and in_callback.is_set():
            others_wait.set()
        collect()

    def end(unused):
        in_callback.set()
        engine.notifier.put(None)
        others_wait.wait(WAIT_S)
        pool.terminate()
        is_over.set()

    in_callback = threading.Event()
    engine.collect = collect_in_a_callback
    pool.apply_async(square, (1,), callback=end)
    assert is_over.wait(WAIT_S)
    pool.join()
    assert all(worker.exitcode is not None for worker in pool._pool)


def test_a_callback_that_lasts_lets_a_dead_worker_be_replaced(fork):
    begun, may_end, workers = threading.Event(), threading.Event(), fork.Semaphore(0)

    def last(unused):
        begun.set()
        may_end.wait()

    with fork.Pool(1, initializer=workers.release) as pool:
        assert workers.acquire(timeout=WAIT_S)
        told = pool.apply_async(square, (1,), callback=last)
        assert begun.wait(WAIT_S)
        pool._pool[0].kill()
        is_replaced = workers.acquire(timeout=WAIT_S)
        may_end.set()
        assert is_replaced
        assert told.get(WAIT_S) == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # which keep the pool
def test_a_pool_that_only_its_result_holds_ends(fork):
    for _ in range(5):
        pool = fork.Pool(2)
        threads = pool._worker_handler, pool._task_handler, pool._result_handler
        workers = list(pool._pool)
        result = pool.apply_async(square, (3,))
        del pool
        assert result.get(WAIT_S) == 9
        for thread in threads:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in threads)
        assert all(worker.exitcode is not None for worker in workers)


def test_a_pool_ends_that_its_own_thread_lets_go_of(fork):
    """As the collector of garbage may, at any line: here while that thread has the lock."""
    pool = fork.Pool(1)
    engine, threads = pool._engine, (pool._worker_handler, pool._task_handler, pool._result_handler)
    workers, terminate, collect = list(pool._pool), pool._terminate, engine.collect

    def end_under_the_lock():
        with engine.lock:
            terminate()
        collect()

    engine.collect = end_under_the_lock
    engine.notifier.put(None)
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert all(worker.exitcode is not None for worker in workers)
    pool._state = mp.pool.TERMINATE


@pytest.mark.parametrize("rest", [itertools.repeat(2), ()], ids=["endless", "at its end"])
def test_the_next_sequence_is_put_when_an_imap_has_failed(fork, rest):
    is_put = threading.Event()

    def numbers():
        yield 1
        pool._engine.fail_all()  # as its workers' deaths would
        yield from rest

    def next_numbers():
        is_put.set()
        yield from ()

    with fork.Pool(1) as pool:
        results = pool.imap(square, numbers())
        with pytest.raises(mp.WorkerDied):
            list(results)
        assert list(results) == []
        pool._taskqueue.put((next_numbers(), None))
        assert is_put.wait(WAIT_S)


def set_gate(gate):
    global _gate
    _gate = gate


def wait_at_the_gate(unused):
    _gate.wait()


@contextlib.contextmanager
def closed_before_its_last_job_ends(pool):
    """While this lasts, the thread that looks after workers has seen that there is a job."""
    engine, has_looked, may_go_on = pool._engine, threading.Event(), threading.Event()
    replace_dead = engine._replace_dead

    def replace_later(waited_s):
        if engine.state == mp.pool.CLOSE:
            has_looked.set()
            may_go_on.wait(WAIT_S)
        return replace_dead(waited_s)

    engine._replace_dead = replace_later
    pool.close()
    assert has_looked.wait(WAIT_S)
    engine.notifier.clear()  # of what close() has told
    yield
    while pool._cache:
        os.sched_yield()
    may_go_on.set()


def join_within(seconds, pool):
    thread = threading.Thread(target=pool.join, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


@pytest.mark.parametrize("error", [LookupError, SystemExit, KeyboardInterrupt])
def test_join_ends_though_the_last_callback_raises(fork, capfd, error):
    pool, may_raise = fork.Pool(1), threading.Event()

    def fail(unused):
        may_raise.wait()
        raise error("not found")

    result = pool.apply_async(square, (2,), callback=fail)
    with closed_before_its_last_job_ends(pool):
        may_raise.set()
    assert join_within(WAIT_S, pool)
    assert result.get(0) == 4
    assert f"{error.__name__}: not found" in capfd.readouterr().err


def test_join_ends_though_the_last_imap_fails(fork):
    gate = fork.Event()
    pool = fork.Pool(1, set_gate, (gate,))
    results = pool.imap(wait_at_the_gate, [0])
    with closed_before_its_last_job_ends(pool):
        pool._engine.results.end()  # as if the domain were closed
        with pytest.raises(tenon.Closed):
            list(results)
    pool._task_handler.join(WAIT_S)
    is_over = not pool._task_handler.is_alive()
    gate.set()  # the worker's end would wake the thread that looks after it
    assert is_over and join_within(WAIT_S, pool)


def begin_thread():
    threading.Thread(target=signal.pause).start()


def test_terminate_after_close_ends_a_worker_that_does_not_end(fork):
    pool = fork.Pool(1)
    (worker,) = pool._pool
    cells = pool._engine.cells[worker]
    pool.apply(begin_thread)
    pool.close()
    thread = threading.Thread(target=pool.terminate, daemon=True)
    while not cells[_pool_worker.LEFT]:
        os.sched_yield()
    thread.start()
    thread.join(WAIT_S)
    is_over = not thread.is_alive()
    worker.kill()
    thread.join()
    assert is_over
