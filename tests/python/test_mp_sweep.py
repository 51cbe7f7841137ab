# SPDX-License-Identifier: Apache-2.0
"""A process is killed at each line or kill point that it passes, and the others go on."""

import collections
import os
import pathlib
import signal
import sys
import threading

import pytest
import tenon.multiprocessing as mp
from tenon.multiprocessing import queues, synchronize

WAIT_S = 30
PACKAGE = str(pathlib.Path(synchronize.__file__).resolve().parent)
MOST_LINES = 2000


def kill_at(line):
    """Kill this process at the `line`th line of the package that its main thread comes to."""
    passed = 0

    def trace(frame, event, _):
        nonlocal passed
        if os.path.dirname(os.path.realpath(frame.f_code.co_filename)) != PACKAGE:
            return None
        if event == "line":
            passed += 1
            if passed == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def dies_at(line, run):
    """Whether a child that runs `run` comes to that line."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(line)
            run()
            sys.settrace(None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the child ended with {status} before line {line}"
    return status != 0


def sweep(run, judge, least):
    """Let children die at each line of `run`, and judge after each death; `least` lines."""
    line = 1
    while dies_at(line, run):
        judge()
        line += 1
        assert line < MOST_LINES
    assert line > least, f"only {line - 1} lines"
    judge()


def in_time(run):
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits for ever"


class Waiter:
    """A thread in wait()."""

    def __init__(self, condition):
        self._condition = condition
        self._is_in = threading.Event()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()
        assert self._is_in.wait(WAIT_S)
        with condition:
            pass  # it is in wait(), which let go of the lock

    def _wait(self):
        with self._condition:
            self._is_in.set()
            assert self._condition.wait(WAIT_S)

    def is_told(self):
        self._thread.join(WAIT_S)
        return not self._thread.is_alive()


# ---- locks and conditions, which are C: at the kill points of a debug build -------------------


def spawned(target, args, **environment):
    """The exit code of a new process that runs it."""
    child = mp.get_context("spawn").Process(target=target, args=args)
    os.environ.update(environment)
    try:
        child.start()
    finally:
        for name in environment:
            del os.environ[name]
    child.join(WAIT_S)
    return child.exitcode


def points_passed(target, args, tmp_path):
    listed = tmp_path / "points"
    listed.write_text("")
    assert spawned(target, args, TENON_KILL_LIST=str(listed)) == 0
    return collections.Counter(listed.read_text().split())


def do_nothing(*_):
    pass


def sweep_points(target, args, judge, tmp_path, least):
    """Let new processes die at each kill point of `target`; at least so many must die."""
    before = points_passed(do_nothing, args, tmp_path)
    if not before:
        pytest.skip("a build without kill points")
    deaths = 0
    for name, count in points_passed(target, args, tmp_path).items():
        for passing in range(before[name] + 1, count + 1):
            status = spawned(target, args, TENON_KILL_POINT=f"{name}:{passing}")
            assert status in (0, -signal.SIGKILL)
            deaths += status != 0
            judge()
    assert deaths >= least


def wait_shortly(condition):
    with condition:
        condition.wait(0.001)


def notify_one(condition):
    with condition:
        condition.notify()


def notify_each(condition):
    with condition:
        condition.notify_all()


def hold(lock):
    with lock:
        pass


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_condition_outlives_waiters(kind, tmp_path):
    condition = mp.Condition(getattr(mp, kind)())

    def judge():
        waiter = Waiter(condition)
        notify_one(condition)
        assert waiter.is_told()

    sweep_points(wait_shortly, (condition,), judge, tmp_path, 4)


@pytest.mark.parametrize("notify", [notify_one, notify_each])
def test_a_condition_survives_the_death_of_a_notifier(notify, tmp_path):
    condition = mp.Condition()
    waiters = [Waiter(condition)]

    def judge():
        waiters.append(Waiter(condition))
        if len(waiters) == 4:
            notify_each(condition)
            assert all(waiter.is_told() for waiter in waiters)
            waiters[:] = [Waiter(condition)]

    sweep_points(notify, (condition,), judge, tmp_path, 3)
    notify_each(condition)
    assert all(waiter.is_told() for waiter in waiters)


def test_the_next_notify_wakes_a_waiter_that_a_dead_process_told(tmp_path):
    condition = mp.Condition()
    bystander_reads, parent_writes = os.pipe()
    bystander = os.fork()  # with it, no death is that of the last other member
    if bystander == 0:
        os.close(parent_writes)
        os.read(bystander_reads, 1)
        os._exit(0)
    waiters = []

    def judge():
        for waiter in waiters:
            notify_one(condition)
            assert waiter.is_told()
        waiters[:] = [Waiter(condition)]

    judge()
    sweep_points(notify_one, (condition,), judge, tmp_path, 3)
    notify_one(condition)
    assert waiters[0].is_told()
    os.close(parent_writes)
    os.waitpid(bystander, 0)


@pytest.mark.parametrize("kind", ["Lock", "RLock", "BoundedSemaphore"])
def test_locks_outlive_their_holders(kind, tmp_path):
    lock = getattr(mp, kind)()

    def judge():
        assert lock.acquire(timeout=WAIT_S)
        lock.release()

    sweep_points(hold, (lock,), judge, tmp_path, 1)


# ---- queues and pools, at each line ------------------------------------------------------------


def drain(source):
    """Get and do all that is there."""
    while not source.empty():
        source.get(timeout=WAIT_S)
        source.task_done()


@pytest.mark.parametrize("maxsize", [0, 3])
def test_join_outlives_producers_and_consumers(maxsize):
    source = mp.JoinableQueue(maxsize)

    def put():
        source.put("by a child")

    def get():
        source.get()
        source.task_done()

    def judge_producer():
        drain(source)
        in_time(source.join)
        assert source._unfinished.count() == 0  # nor will one that comes be taken for done

    def judge_consumer():
        judge_producer()
        source.put("for a child")

    sweep(put, judge_producer, 3)
    source.put("for a child")
    sweep(get, judge_consumer, 30)


def test_join_does_not_wait_for_the_backlog_of_a_killed_producer():
    source = mp.JoinableQueue()

    def put_more_than_fits():
        for i in range(queues._CAPACITY + 2):
            source.put(i)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        put_more_than_fits()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    drain(source)
    in_time(source.join)


@pytest.mark.parametrize("maxsize", [0, 3])
def test_queue_outlives_producers_and_consumers(maxsize):
    source = mp.Queue(maxsize)

    def put():
        source.put("by a child")

    def judge():
        while not source.empty():
            source.get(timeout=WAIT_S)
        for i in range(3):
            source.put(i, timeout=WAIT_S)

    sweep(lambda: source.get(timeout=WAIT_S), judge, 5)

    def judge_producer():
        judge()
        source.get(timeout=WAIT_S)

    source.get(timeout=WAIT_S)
    sweep(put, judge_producer, 3)


class Once:
    """An initializer that has the first worker die at a line of the package."""

    def __init__(self, line):
        self.line = line
        self.left = mp.Value("i", 1)

    def __call__(self):
        with self.left.get_lock():
            is_first, self.left.value = self.left.value == 1, 0
        if is_first:
            kill_at(self.line)


def test_pool_outlives_its_workers():
    context = mp.get_context("fork")
    for line in range(1, 40):
        once = Once(line)
        with context.Pool(1, once) as pool:
            assert pool.map(abs, [-1, -2], chunksize=1) == [1, 2]


# ---- a queue whose pusher is killed behind its push, before it moves the tail on ----------------


def put_one(queue):
    queue.put("one")


@pytest.mark.parametrize("kind", ["SimpleQueue", "Queue", "JoinableQueue"])
def test_message_of_a_killed_putter_is_seen(kind):
    queue = getattr(mp, kind)()
    status = spawned(put_one, (queue,), TENON_KILL_POINT="push_full:1")
    if status == 0:
        pytest.skip("a build without kill points")
    assert status == -signal.SIGKILL
    assert not queue.empty()
    assert mp.connection.wait([queue._reader], WAIT_S) == [queue._reader]
    assert queue.get(*([True, WAIT_S] if kind != "SimpleQueue" else [])) == "one"
    assert queue.empty()
