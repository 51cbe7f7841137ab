# SPDX-License-Identifier: Apache-2.0
"""Deaths of those who had to do with a wait, and of those who had not; and the end of a program."""

import os
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


def put_once_and_stay(queue, at_it):
    queue.put("first")
    at_it.set()
    signal.pause()


def put_when_told(queue, told):
    told.wait()
    queue.put("second")


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_a_killed_producer_is_no_news_while_another_one_lives(context, kind):
    queue = getattr(context, kind)()
    at_it, told = context.Event(), context.Event()
    killed = context.Process(target=put_once_and_stay, args=(queue, at_it))
    other = context.Process(target=put_when_told, args=(queue, told))
    killed.start()
    other.start()
    at_it.wait(WAIT_S)
    assert queue.get() == "first"
    killed.kill()
    killed.join()
    timer = threading.Timer(0.3, told.set)  # the wait begins before
    timer.start()
    assert queue.get() == "second"
    timer.join()
    other.join()


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
