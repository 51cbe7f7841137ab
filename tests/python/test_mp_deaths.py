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
def test_no_death_is_reported_while_another_producer_lives(context, kind):
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
def test_get_with_a_time_limit_raises_empty_after_any_death(fork, kind):
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
def test_a_thread_may_still_put_when_no_other_process_is_left(fork, kind):
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


def test_put_with_a_time_limit_raises_full_after_any_death(fork):
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
def test_a_wait_outlives_a_child_that_only_inherited_the_object(wait):
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


# A thread holds a lock and is inside tenon at exit; what runs after that at exit wants the lock.
_LOCKED = """
import atexit, sys, threading
lock, inside = threading.Lock(), threading.Event()
atexit.register(print, "over")
atexit.register(lock.acquire)
import numpy, tenon.multiprocessing as mp
queue, full, taken, condition = mp.Queue(), mp.Queue(1), mp.Lock(), mp.Condition()
full.put(1)
taken.acquire()
def wait():
    with condition:
        condition.wait()
def call_on():
    while True:
        queue.put(numpy.ones(10))
        queue.get()
calls = {"get": queue.get, "put": lambda: full.put(2), "acquire": taken.acquire, "wait": wait,
         "event": mp.Event().wait, "join": mp.Barrier(2).wait, "call on": call_on}
def run(call):
    with lock:
        inside.set()
        call()
threading.Thread(target=run, args=(calls[sys.argv[1]],), daemon=True).start()
inside.wait()
"""


def run_to_its_end(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize("call", ["get", "put", "acquire", "wait", "event", "join", "call on"])
def test_a_thread_of_a_daemon_gives_back_its_locks_at_exit(call):
    assert run_to_its_end(_LOCKED, call) == ("over\n", "", 0)


_LOGGING = """
import logging, logging.handlers, threading
import tenon.multiprocessing as mp
queue, enough = mp.Queue(), threading.Event()
log = logging.getLogger("a")
log.setLevel(logging.INFO)
log.addHandler(logging.handlers.QueueHandler(queue))
def work():
    while True:
        log.info("a line")
def drain():
    for _ in range(1000):
        queue.get()
    enough.set()
    while True:
        queue.get()
for run in (work, drain):
    threading.Thread(target=run, daemon=True).start()
enough.wait()
print("over")
"""


def test_a_program_ends_whose_daemon_threads_log_into_a_queue():
    assert run_to_its_end(_LOGGING) == ("over\n", "", 0)


_MANY = """
import threading, numpy, tenon, tenon.multiprocessing as mp
queue, lock, condition, full = mp.Queue(), mp.Lock(), mp.Condition(), mp.Queue(1)
barrier, event, all_run = mp.Barrier(3), mp.Event(), threading.Barrier(41)
def put_and_get():
    queue.put(numpy.ones(100))
    queue.get()
def fill():
    full.put([numpy.ones(10)])
def take():
    full.get()
def wait():
    with condition:
        condition.wait(0.001)
def guard():
    with lock:
        tenon.zeros(10)[0] = 1
def stubborn():
    try:
        event.wait()
    except BaseException:
        pass
def call_on(call):
    all_run.wait()
    while True:
        call()
for call in (put_and_get, fill, take, wait, guard, stubborn, barrier.wait, queue.qsize):
    for _ in range(5):
        threading.Thread(target=call_on, args=(call,), daemon=True).start()
all_run.wait()
print("over")
"""


def test_a_program_ends_well_under_many_threads_of_daemons():
    for _ in range(5):
        assert run_to_its_end(_MANY) == ("over\n", "", 0)


_CLOSED_IN_WAIT = """
import os, signal, sys, threading
import tenon, tenon.multiprocessing as mp
domain = tenon.domain()
def close(*_):
    domain.close()
    if sys.argv[2] == "raise":
        sys.exit(3)
    if sys.argv[2] == "close again":
        domain.close()
signal.signal(signal.SIGUSR1, close)
queue, event, lock, inside = mp.Queue(), mp.Event(), mp.Lock(), threading.Event()
lock.acquire()
calls = {"get": queue.get, "event": event.wait, "acquire": lock.acquire}
def kill_when_asleep():
    path = f"/proc/self/task/{os.getpid()}/stat"
    inside.wait()
    while open(path).read().rpartition(")")[2].split()[0] != "S":
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=kill_when_asleep, daemon=True).start()
inside.set()
try:
    calls[sys.argv[1]]()
except tenon.Closed:
    print("closed")
"""


@pytest.mark.parametrize("call", ["get", "event", "acquire"])
def test_a_handler_may_close_the_domain_that_its_thread_waits_in(call):
    assert run_to_its_end(_CLOSED_IN_WAIT, call, "raise") == ("", "", 3)
    assert run_to_its_end(_CLOSED_IN_WAIT, call, "return") == ("closed\n", "", 0)
    assert run_to_its_end(_CLOSED_IN_WAIT, call, "close again") == ("closed\n", "", 0)
