# SPDX-License-Identifier: Apache-2.0
"""Deaths of those who had to do with a wait, and of those who had not; and the end of a program."""

import os
import queue
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp

WAIT_S = 30

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing"])


def put_once_and_stay(target, at_it):
    target.put("first")
    at_it.set()
    signal.pause()


def put_when_told(target, told):
    told.wait()
    target.put("second")


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_a_killed_producer_is_no_news_while_another_one_lives(context, kind):
    source = getattr(context, kind)()
    at_it, told = context.Event(), context.Event()
    killed = context.Process(target=put_once_and_stay, args=(source, at_it))
    other = context.Process(target=put_when_told, args=(source, told))
    killed.start()
    other.start()
    at_it.wait(WAIT_S)
    assert source.get() == "first"
    killed.kill()
    killed.join()
    timer = threading.Timer(0.3, told.set)  # the wait begins before
    timer.start()
    assert source.get() == "second"
    timer.join()
    other.join()


def start_and_kill(context):
    """A child that has all queues of this process and does nothing with them."""
    process = context.Process(target=signal.pause)
    process.start()
    process.kill()
    process.join()
    tenon.domain().reap()


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_an_empty_queue_is_empty_whoever_died(fork, kind):
    source = getattr(fork, kind)()
    start_and_kill(fork)
    with pytest.raises(queue.Empty):
        source.get_nowait()
    start_and_kill(fork)
    with pytest.raises(queue.Empty):
        source.get(timeout=0.01)
    assert os.waitpid(os.spawnvp(os.P_NOWAIT, "true", ["true"]), 0)[1] == 0
    with pytest.raises(queue.Empty):
        source.get(timeout=0.01)


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_a_thread_of_the_process_may_still_put_after_the_last_other_process_died(fork, kind):
    source = getattr(fork, kind)()
    start_and_kill(fork)
    timer = threading.Timer(0.3, source.put, args=("late",))  # the wait begins before
    timer.start()
    assert source.get() == "late"
    timer.join()


def test_a_child_that_has_just_been_forked_may_still_put(fork):
    for i in range(30):
        source = fork.Queue()
        old = fork.Process(target=signal.pause)
        old.start()
        new = fork.Process(target=source.put, args=(i,))
        old.kill()
        old.join()
        new.start()
        assert source.get(timeout=WAIT_S) == i
        new.join()


def get_one_and_stay(source, at_it):
    source.get()
    at_it.set()
    signal.pause()


def test_a_full_queue_is_full_whoever_died(fork):
    for full, most in ((fork.Queue(4), 4), (fork.Queue(3), 3)):
        at_it = fork.Event()
        consumer = fork.Process(target=get_one_and_stay, args=(full, at_it))
        consumer.start()
        for i in range(most + 1):
            full.put(i)
        assert at_it.wait(WAIT_S)
        consumer.kill()
        consumer.join()
        tenon.domain().reap()
        for timeout in (0, 0.01):
            with pytest.raises(queue.Full):
                full.put("more", timeout=timeout)
        assert [full.get() for _ in range(most)] == list(range(1, most + 1))


@pytest.mark.parametrize("wait", ["event", "semaphore", "condition"])
def test_the_death_of_a_child_that_only_inherited_it_ends_no_wait_of_a_thread(wait):
    fork = mp.get_context("fork")
    event, semaphore, condition = fork.Event(), fork.Semaphore(0), fork.Condition()
    waits, got = threading.Event(), []

    def wait_for_it():
        if wait == "condition":
            with condition:
                waits.set()
                got.append(condition.wait(WAIT_S))
            return
        waits.set()
        got.append(event.wait(WAIT_S) if wait == "event" else semaphore.acquire(timeout=WAIT_S))

    unrelated = fork.Process(target=signal.pause)
    unrelated.start()
    thread = threading.Thread(target=wait_for_it)
    thread.start()
    waits.wait()
    unrelated.kill()
    unrelated.join()
    tenon.domain().reap()
    event.set()
    semaphore.release()
    with condition:
        condition.notify()
    thread.join()
    assert got == [True]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_what_a_killed_child_never_took_is_given_back(method):
    context = mp.get_context(method)
    before = tenon.inspect().live_bytes
    array = np.ones(1 << 20)
    process = context.Process(target=len, args=(array,))
    process.start()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    tenon.domain().reap()
    assert tenon.inspect().live_bytes - before < array.nbytes


_DAEMONS = """
import threading, numpy, tenon.multiprocessing as mp
queue, lock, condition, full = mp.Queue(), mp.Lock(), mp.Condition(), mp.Queue(1)
lock.acquire()
full.put(1)
def put():
    while True:
        full.put(numpy.ones(10))
def wait():
    with condition:
        condition.wait()
for run in (queue.get, lock.acquire, wait, put):
    threading.Thread(target=run, daemon=True).start()
print("over")
"""


def test_threads_of_daemons_that_wait_say_nothing_at_exit():
    done = subprocess.run(
        [sys.executable, "-c", _DAEMONS], capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert (done.stdout, done.stderr, done.returncode) == ("over\n", "", 0)
