# SPDX-License-Identifier: Apache-2.0
"""Locks and the like of tenon.multiprocessing, whose holders are killed."""

import os
import signal
import threading

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
    with pytest.raises(TypeError, match="lock"):
        mp.Condition(threading.Lock())


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
    if quick.get_start_method() == "fork":
        victim = start(quick, meet_broken, barrier, ready, broken)
        while barrier.n_waiting < 2:
            os.sched_yield()
    else:
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
