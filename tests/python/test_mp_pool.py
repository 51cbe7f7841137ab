# SPDX-License-Identifier: Apache-2.0
"""Pools of tenon.multiprocessing, whose workers are killed."""

import os
import pickle
import signal
import threading

import numpy as np
import pytest
import tenon.multiprocessing as mp

WAIT_S = 60

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing"])


def square(x):
    return x * x


def add(x, y):
    return x + y


def fail(x):
    raise KeyError(f"no {x}")


def double(array):
    array *= 2
    return array


def pid_of(unused):
    return os.getpid()


def kill_me(unused=None):
    os.kill(os.getpid(), signal.SIGKILL)


def leave(unused=None):
    os._exit(3)


def kill_me_once(mark):
    try:
        os.mkdir(mark)
    except FileExistsError:
        return "done"
    kill_me()


def square_or_kill_me_once(item):
    number, mark = item
    if number == 3:
        kill_me_once(mark)
    return number * number


def give_lock(unused=None):
    return threading.Lock()


def set_base(base):
    global _base
    _base = base


def add_base(x):
    return x + _base


class Unloadable:
    def __init__(self):
        self.pid = os.getpid()

    def __reduce__(self):
        return refuse, (self.pid,)


def refuse(pid):
    raise ZeroDivisionError("not today")


def give_unloadable(unused=None):
    return Unloadable()


def count(unused=None):
    while True:
        pass


def test_methods_are_the_standard_librarys(context):
    with context.Pool(2) as pool:
        assert pool.apply(add, (1,), {"y": 2}) == 3
        assert pool.map(square, range(20)) == [x * x for x in range(20)]
        assert pool.map(square, []) == []
        assert pool.starmap(add, [(1, 2), (3, 4)]) == [3, 7]
        assert list(pool.imap(square, range(7), chunksize=3)) == [x * x for x in range(7)]
        assert sorted(pool.imap_unordered(square, range(7))) == [x * x for x in range(7)]
        told, errors = [], []
        result = pool.map_async(square, range(3), callback=told.append)
        assert result.get(WAIT_S) == [0, 1, 4] and result.successful()
        failed = pool.apply_async(fail, (1,), error_callback=errors.append)
        with pytest.raises(KeyError, match="no 1"):
            failed.get(WAIT_S)
        assert told == [[0, 1, 4]] and isinstance(errors[0], KeyError)
        pool.close()
        pool.join()
        with pytest.raises(ValueError, match="not running"):
            pool.apply(square, (1,))


def test_arrays_travel(context):
    with context.Pool(2) as pool:
        arrays = pool.map(double, [np.arange(1000.0) + i for i in range(4)])
        for i, array in enumerate(arrays):
            assert np.array_equal(array, 2 * (np.arange(1000.0) + i))


def test_task_of_a_killed_worker_is_done_by_another(quick, tmp_path):
    with quick.Pool(2) as pool:
        assert pool.apply_async(kill_me_once, (str(tmp_path / "mark"),)).get(WAIT_S) == "done"
        assert pool.map_async(square, range(5)).get(WAIT_S) == [0, 1, 4, 9, 16]


def test_every_result_counts_once_although_workers_are_killed(fork, tmp_path):
    items = [(number, str(tmp_path / "mark")) for number in range(20)]
    expected = [number * number for number in range(20)]
    with fork.Pool(3) as pool:
        result = pool.map_async(square_or_kill_me_once, items, chunksize=1)
        assert result.get(WAIT_S) == expected
        (tmp_path / "mark").rmdir()
        assert list(pool.imap(square_or_kill_me_once, items)) == expected


@pytest.mark.parametrize("end", [kill_me, leave])
def test_task_that_ends_its_workers_fails_and_the_pool_goes_on(fork, end):
    with fork.Pool(2) as pool:
        for _ in range(10):  # the third worker may still be ending when the result comes
            with pytest.raises(mp.WorkerDied, match=r"\(\), ended 3 workers") as raised:
                pool.apply_async(end).get(WAIT_S)
            assert raised.value.task == end.__qualname__
            assert len(raised.value.pids) == 3 and raised.value.pid == raised.value.pids[-1]
        assert isinstance(raised.value, RuntimeError)
        copy = pickle.loads(pickle.dumps(raised.value))
        assert (str(copy), copy.pids) == (str(raised.value), raised.value.pids)
        assert pool.map_async(square, range(5)).get(WAIT_S) == [0, 1, 4, 9, 16]


def test_idle_worker_that_is_killed_is_replaced(quick):
    with quick.Pool(1) as pool:
        first = pool.apply(pid_of, (0,))
        os.kill(first, signal.SIGKILL)
        assert pool.apply_async(pid_of, (0,)).get(WAIT_S) != first


def test_workers_that_die_before_any_task_end_the_pool(quick):
    # Perhaps so fast that there is no pool to put a task into.
    with pytest.raises(mp.WorkerDied, match="before they could take a task"):
        with quick.Pool(2, initializer=leave) as pool:
            pool.map_async(square, range(5)).get(WAIT_S)


def test_what_cannot_be_pickled_fails_alone(fork):
    with fork.Pool(2) as pool:
        with pytest.raises((TypeError, AttributeError)):
            pool.apply_async(square, (threading.Lock(),)).get(WAIT_S)
        with pytest.raises(mp.pool.MaybeEncodingError):
            pool.apply_async(give_lock).get(WAIT_S)
        with pytest.raises(ZeroDivisionError):
            pool.apply_async(square, (Unloadable(),)).get(WAIT_S)
        with pytest.raises(ZeroDivisionError):
            pool.apply_async(give_unloadable).get(WAIT_S)
        assert pool.apply_async(square, (3,)).get(WAIT_S) == 9


def test_workers_end_after_so_many_tasks(fork):
    with fork.Pool(1, maxtasksperchild=2) as pool:
        pids = [pool.apply_async(pid_of, (0,)).get(WAIT_S) for _ in range(6)]
    assert len(set(pids)) == 3


def test_initializer_runs_in_each_worker(quick):
    with quick.Pool(2, set_base, (100,)) as pool:
        assert pool.map(add_base, range(4)) == [100, 101, 102, 103]


def test_terminate_ends_workers_that_are_busy(fork):
    pool = fork.Pool(2)
    workers = list(pool._pool)
    pool.apply_async(count)
    pool.terminate()
    pool.join()
    assert all(worker.exitcode is not None for worker in workers)


def test_failing_iterable_fails_its_job_alone(fork):
    def numbers():
        yield 1
        raise LookupError("no more")

    with fork.Pool(2) as pool:
        results = pool.imap(square, numbers())
        assert next(results) == 1
        with pytest.raises(LookupError, match="no more"):
            next(results)
        assert pool.apply(square, (2,)) == 4


def test_arguments_are_checked():
    for arguments in ({"processes": 0}, {"maxtasksperchild": 0}):
        with pytest.raises(ValueError):
            mp.Pool(**arguments)
    with pytest.raises(TypeError, match="callable"):
        mp.Pool(1, initializer=3)
