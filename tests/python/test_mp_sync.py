# SPDX-License-Identifier: Apache-2.0
"""Locks and the like of tenon.multiprocessing, whose holders are killed."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import pytest
import tenon
import tenon.multiprocessing as mp

WAIT_S = 30

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing"])


def start(context, target, *arguments):
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(WAIT_S)
    assert process.exitcode == -signal.SIGKILL


def end_well(*processes):
    for process in processes:
        process.join(WAIT_S)
        assert process.exitcode == 0


def hold(lock, ready, never):
    lock.acquire()
    ready.set()
    never.wait()


def wait_told(condition, ready, told):
    with condition:
        ready.release()
        condition.wait(WAIT_S)
    told.release()


def pass_barrier(barrier, passed):
    barrier.wait(WAIT_S)
    passed.release()


def meet_broken(barrier, ready, broken):
    ready.release()
    try:
        barrier.wait(WAIT_S)
    except threading.BrokenBarrierError:
        broken.release()


def have_barrier(barrier, ready, never):
    assert barrier.parties == 3
    ready.release()
    never.wait()


def use_all(things, done):
    lock, rlock, semaphore, bounded, condition, event = things.get()
    with lock, rlock, bounded, condition:
        semaphore.release()
        event.set()
    done.set()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "BoundedSemaphore", "Condition"])
def test_lock_of_a_killed_holder_comes_back(context, kind):
    lock, ready, never = getattr(context, kind)(), context.Event(), context.Event()
    process = start(context, hold, lock, ready, never)
    assert ready.wait(WAIT_S)
    assert not lock.acquire(False)
    assert not lock.acquire(timeout=0.01)
    kill(process)
    assert lock.acquire(timeout=WAIT_S)
    lock.release()


def test_lock_is_released_by_any_thread_of_its_process():
    lock = mp.Lock()
    assert lock.acquire()
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert lock.acquire(timeout=-1)
    lock.release()
    with pytest.raises(ValueError, match="released too many times"):
        lock.release()


def test_rlock_is_its_threads():
    lock = mp.RLock()
    with pytest.raises(AssertionError, match="not owned by thread"):
        lock.release()
    with lock, lock:
        others = []
        thread = threading.Thread(target=lambda: others.append(lock.acquire(False)))
        thread.start()
        thread.join()
        assert others == [False]
    assert not lock.locked()


def test_semaphores_count():
    semaphore, bounded = mp.Semaphore(2), mp.BoundedSemaphore(2)
    for one in (semaphore, bounded):
        assert one.acquire() and one.acquire(False) and not one.acquire(False)
        one.release()
        one.release()
        assert one.get_value() == 2
    semaphore.release()
    assert semaphore.get_value() == 3
    with pytest.raises(ValueError, match="released too many times"):
        bounded.release()
    with pytest.raises(OSError, match="-1"):  # as the standard library's
        mp.Semaphore(-1)
    none = mp.BoundedSemaphore(0)
    assert not none.acquire(False)
    with pytest.raises(ValueError, match="released too many times"):
        none.release()


def release_it(semaphore):
    semaphore.release()


def test_permit_is_given_back_by_another_process(quick):
    bounded, lock, signal_ = quick.BoundedSemaphore(1), quick.Lock(), quick.Semaphore(0)
    for one in (bounded, lock):
        assert one.acquire() and not one.acquire(False)
    for one in (bounded, lock, signal_):
        process = start(quick, release_it, one)
        assert one.acquire(timeout=WAIT_S)
        end_well(process)


def test_condition_notifies_as_many_as_it_is_told(quick):
    condition = quick.Condition()
    ready, told = quick.Semaphore(0), quick.Semaphore(0)
    processes = [start(quick, wait_told, condition, ready, told) for _ in range(2)]
    for _ in processes:
        assert ready.acquire(timeout=WAIT_S)
    with condition:
        condition.notify()
    assert told.acquire(timeout=WAIT_S)
    assert not told.acquire(timeout=0.1)
    with condition:
        condition.notify_all()
    assert told.acquire(timeout=WAIT_S)
    end_well(*processes)


def test_killed_waiter_takes_no_notification_along(quick):
    condition = quick.Condition(quick.Lock())
    ready, told = quick.Semaphore(0), quick.Semaphore(0)
    victim = start(quick, wait_told, condition, ready, told)
    assert ready.acquire(timeout=WAIT_S)
    other = start(quick, wait_told, condition, ready, told)
    assert ready.acquire(timeout=WAIT_S)
    with condition:
        pass  # both are in wait(), which let go of the lock
    kill(victim)
    with condition:
        condition.notify()
    assert told.acquire(timeout=WAIT_S)
    end_well(other)


def test_condition_is_used_with_its_lock_held():
    condition = mp.Condition()
    for use in (condition.wait, condition.notify, condition.notify_all):
        with pytest.raises(AssertionError):
            use()
    with condition, condition:
        assert not condition.wait(0.01)
        assert condition.wait_for(lambda: True)
        assert not condition.wait_for(lambda: False, timeout=0.01)


class HasItsCondition:
    """A lock that its own condition refers to."""

    def __init__(self):
        self.acquire = self.release = int
        self.condition = mp.Condition(self)


def test_a_condition_and_the_lock_that_has_it_are_collected():
    gone = weakref.ref(HasItsCondition())
    gc.collect()
    assert gone() is None


def test_event_is_set_and_cleared():
    event = mp.Event()
    assert not event.is_set() and not event.wait(0.01)
    event.set()
    assert event.is_set() and event.wait()
    event.clear()
    assert not event.is_set()


def test_barrier_lets_all_pass(context):
    barrier, passed = context.Barrier(3), context.Semaphore(0)
    processes = [start(context, pass_barrier, barrier, passed) for _ in range(2)]
    assert barrier.wait(WAIT_S) in range(3)
    for _ in processes:
        assert passed.acquire(timeout=WAIT_S)
    end_well(*processes)
    assert barrier.n_waiting == 0 and not barrier.broken


def test_barrier_breaks_when_one_that_waits_or_was_sent_it_is_killed(quick):
    barrier, never = quick.Barrier(3), quick.Event()
    ready, broken = quick.Semaphore(0), quick.Semaphore(0)
    waiter = start(quick, meet_broken, barrier, ready, broken)
    assert ready.acquire(timeout=WAIT_S)
    victim = start(quick, have_barrier, barrier, ready, never)
    assert ready.acquire(timeout=WAIT_S)
    kill(victim)
    assert broken.acquire(timeout=WAIT_S)
    end_well(waiter)
    assert barrier.broken
    barrier.reset()
    assert not barrier.broken


def test_barrier_outlives_a_child_that_only_inherited_it(fork):
    barrier, passed = fork.Barrier(2), fork.Semaphore(0)
    unrelated = start(fork, signal.pause)
    other = start(fork, pass_barrier, barrier, passed)
    while barrier.n_waiting == 0:
        os.sched_yield()
    kill(unrelated)
    tenon.domain().reap()
    barrier.wait(WAIT_S)
    assert passed.acquire(timeout=WAIT_S)
    end_well(other)


def test_barrier_is_for_as_many_threads_as_it_says():
    parties = 350
    barrier, passed = mp.Barrier(parties), []
    threads = [
        threading.Thread(target=lambda: passed.append(barrier.wait(WAIT_S))) for _ in range(parties)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(passed) == list(range(parties))


def test_barrier_breaks_when_the_time_is_over():
    barrier = mp.Barrier(2)
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait(0.01)
    assert barrier.broken


def test_objects_travel_through_a_queue(context):
    kinds = "Lock RLock Semaphore BoundedSemaphore Condition Event"
    things = [getattr(mp, kind)() for kind in kinds.split()]
    source, done = context.Queue(), context.Event()
    process = start(context, use_all, source, done)
    source.put(things)
    assert done.wait(WAIT_S)
    end_well(process)
    assert things[2].get_value() == 2 and things[5].is_set()


def test_interrupt_ends_a_wait(quick):
    ready, never = quick.Event(), quick.Lock()
    never.acquire()
    process = start(quick, wait_interrupted, ready, never)
    assert ready.wait(WAIT_S)
    os.kill(process.pid, signal.SIGINT)
    process.join(WAIT_S)
    assert process.exitcode == 42
    never.release()


def wait_interrupted(ready, never):
    try:
        ready.set()
        never.acquire()
    except KeyboardInterrupt:
        os._exit(42)


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore", "BoundedSemaphore"])
def test_acquire_takes_what_the_standard_librarys_takes(kind):
    lock = getattr(mp, kind)()
    for arguments in ((True, "a"), (False, "a"), (True, 1, 2)):
        with pytest.raises(TypeError):
            lock.acquire(*arguments)
    with pytest.raises(TypeError):
        lock.acquire(wait=True)
    assert lock.acquire(block=True, timeout=-1)
    assert kind == "RLock" or not lock.acquire(False, timeout=WAIT_S)
    assert kind == "RLock" or not lock.acquire(timeout=0)
    lock.release()
    with lock as taken:
        assert taken is True


def test_rlock_counts_and_a_child_has_none_of_it():
    lock = mp.get_context("fork").RLock()
    with lock, lock:
        assert lock._is_mine() and lock._count() == 2
        process = start(mp.get_context("fork"), find_taken, lock)
        end_well(process)
    assert not lock._is_mine() and lock._count() == 0


def find_taken(lock):
    assert not lock._is_mine() and lock._count() == 0
    assert not lock.acquire(False) and lock.locked()
    with pytest.raises(AssertionError, match="not owned"):
        lock.release()


def test_condition_passes_over_a_waiter_that_was_killed(quick):
    condition = quick.Condition()
    ready, told = quick.Semaphore(0), quick.Semaphore(0)
    first, second = (start(quick, wait_told, condition, ready, told) for _ in range(2))
    for _ in range(2):
        assert ready.acquire(timeout=WAIT_S)
    with condition:  # both wait by now
        pass
    kill(first)
    with condition:
        condition.notify()
    assert told.acquire(timeout=WAIT_S)
    end_well(second)


def notify_and_die(condition):
    with condition:
        condition.notify_all()
        os.kill(os.getpid(), signal.SIGKILL)


def test_condition_waiter_wakes_though_its_notifier_was_killed(quick):
    condition = quick.Condition()
    ready, told = quick.Semaphore(0), quick.Semaphore(0)
    waiter = start(quick, wait_told, condition, ready, told)
    assert ready.acquire(timeout=WAIT_S)
    with condition:
        pass
    start(quick, notify_and_die, condition).join(WAIT_S)
    assert told.acquire(timeout=WAIT_S)
    end_well(waiter)


def test_condition_wakes_waiters_when_the_lock_is_given_back_for_good():
    for lock in (mp.RLock(), mp.Lock()):
        one, other = mp.Condition(lock), mp.Condition(lock)
        told = []
        waiting = threading.Semaphore(0)

        def wait_for(condition, told=told, waiting=waiting):
            with condition:
                waiting.release()
                told.append(condition.wait(WAIT_S))

        threads = [threading.Thread(target=wait_for, args=(c,)) for c in (one, other)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waiting.acquire(timeout=WAIT_S)
        with lock:
            one.notify()
            other.notify_all()
        for thread in threads:
            thread.join(WAIT_S)
        assert told == [True, True]


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_int)]


def add_to_all(value, array, text, point, lock):
    value.value += 1
    array[1] += 1
    text.value += b"!"
    point.x += 1
    with value.get_lock():
        assert value.get_lock().acquire(False)
        value.get_lock().release()


def test_values_and_arrays_are_taken_behind_their_lock(context):
    lock = context.Lock()
    value, array = context.Value("i", 1), context.Array("d", [1, 2, 3])
    text, point = context.Array("c", b"tenon\0\0"), context.Value(Point, 1, 2, lock=lock)
    end_well(start(context, add_to_all, value, array, text, point, lock))
    assert (value.value, array[:], text.value) == (2, [1.0, 3.0, 3.0], b"tenon!")
    assert (point.x, point.y, len(array), list(array)) == (2, 2, 3, [1.0, 3.0, 3.0])
    with pytest.raises(IndexError):
        array[3]
    with pytest.raises(TypeError):
        value.value = "one"
    with pytest.raises(AttributeError):
        point.z
    assert lock.acquire(False)  # each of them gave it back
    lock.release()


class OwnLock:
    def __init__(self):
        self.calls = []

    def acquire(self):
        self.calls.append("acquire")

    def release(self):
        self.calls.append("release")


def test_a_value_takes_any_lock():
    lock = OwnLock()
    value, array = mp.Value("i", 1, lock=lock), mp.Array("i", 2, lock=lock)
    value.value += array[0] + 1
    assert lock.calls == ["acquire", "release"] * 3 and value.value == 2


# ---- the end of a process ----------------------------------------------------------------------

_WAIT_AND_END = """
import threading
import tenon.multiprocessing as mp

condition, barrier = mp.Condition(), mp.Barrier(9)
is_in = threading.Semaphore(0)


def wait():
    with condition:
        is_in.release()
        condition.wait()


for _ in range(4):
    threading.Thread(target=wait, daemon=True).start()
    threading.Thread(target=barrier.wait, daemon=True).start()
for _ in range(4):
    is_in.acquire()
while barrier.n_waiting < 4:
    pass
with condition:
    pass  # all four are in wait(), which let go of the lock
"""


def test_a_process_ends_while_daemon_threads_wait_for_one_condition():
    subprocess.run([sys.executable, "-c", _WAIT_AND_END], check=True, timeout=60)
