# SPDX-License-Identifier: Apache-2.0
"""A child that was sent something is killed; the others go on, whatever started it."""

import _weakrefset
import contextlib
import dis
import functools
import gc
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest
import tenon
import tenon.multiprocessing as mp
from tenon import _core
from tenon.multiprocessing import _objects, _sent, synchronize

WAIT_S = 30
PACKAGE = os.path.dirname(os.path.realpath(synchronize.__file__))
MOST_LINES = 500

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing"])

LOCKS = ["Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Value", "Array"]
QUEUES = ["Queue", "SimpleQueue", "JoinableQueue"]
ARGUMENTS = {"Semaphore": (1,), "BoundedSemaphore": (1,), "Value": ("i",), "Array": ("i", 3), "Barrier": (3,)}


def lock_of(thing):
    return thing.get_lock() if hasattr(thing, "get_lock") else thing


def use(kind, thing, is_used, ready, never):
    """Be killed before the first use, or in it."""
    if not is_used:
        ready.set()
    elif kind in LOCKS:
        lock_of(thing).acquire()
        ready.set()
    else:
        ready.set()
        thing.get() if kind in QUEUES else thing.wait()
    never.wait()


def go_on(kind, thing):
    if kind in LOCKS:
        lock = lock_of(thing)
        if kind == "Semaphore":
            lock.release()  # it is a signal: a permit that the dead had is lost
        assert lock.acquire(timeout=WAIT_S)
        if kind == "Condition":
            lock.notify_all()
        lock.release()
    elif kind == "Event":
        thing.set()
        assert thing.wait(WAIT_S)
    elif kind == "Barrier":
        with pytest.raises(threading.BrokenBarrierError, match="died"):  # not: the time is over
            thing.wait(WAIT_S)
    else:
        with pytest.raises(tenon.PeerDied):
            thing.get()


@pytest.mark.parametrize("is_used", [False, True], ids=["before its first use", "in use"])
@pytest.mark.parametrize("kind", [*LOCKS, *QUEUES, "Event", "Barrier"])
def test_the_others_go_on_when_a_child_that_was_sent_it_is_killed(context, kind, is_used):
    thing = getattr(context, kind)(*ARGUMENTS.get(kind, ()))
    ready, never = context.Event(), context.Event()
    child = context.Process(target=use, args=(kind, thing, is_used, ready, never))
    child.start()
    assert ready.wait(WAIT_S)
    while kind == "Barrier" and is_used and thing.n_waiting == 0:
        os.sched_yield()
    child.kill()
    child.join()
    go_on(kind, thing)


def hold_nothing(*_, **__):
    signal.pause()


def breaks_in_time(barrier):
    """Not by the time that is given to the wait."""
    assert not barrier.broken
    with pytest.raises(threading.BrokenBarrierError, match="died"):
        barrier.wait(WAIT_S)
    barrier.reset()


@pytest.fixture
def looks_at_once(monkeypatch):
    monkeypatch.setattr(synchronize.Barrier, "_CHECK_S", 0.01)


def test_a_barrier_breaks_though_the_killed_child_had_not_begun(context, looks_at_once):
    barrier = context.Barrier(2)
    for _ in range(3):
        child = context.Process(target=hold_nothing, args=(barrier,))
        child.start()
        child.kill()
        breaks_in_time(barrier)
        child.join()


class Holder:
    def __init__(self, barrier):
        self.parts = {"barrier": [barrier]}

    def run(self):
        signal.pause()


BARRIER = mp.get_context("fork").Barrier(2)


def name_the_barrier():
    signal.pause()
    BARRIER.wait()


class HasBarrier(mp.get_context("fork").Process):
    def __init__(self, barrier):
        super().__init__(target=signal.pause)
        self.barrier = barrier


def make_closure(barrier):
    def run():
        signal.pause()
        barrier.wait()

    return run


@pytest.mark.parametrize(
    "make",
    [
        lambda process, barrier: process(target=hold_nothing, args=([{"it": (barrier,)}],)),
        lambda process, barrier: process(target=hold_nothing, kwargs={"it": Holder(barrier)}),
        lambda process, barrier: process(target=functools.partial(hold_nothing, barrier)),
        lambda process, barrier: process(target=Holder(barrier).run),
        lambda process, barrier: process(target=make_closure(barrier)),
        lambda process, barrier: process(target=name_the_barrier),
        lambda process, barrier: HasBarrier(barrier),
    ],
    ids=["nested", "keyword", "partial", "method", "closure", "global", "attribute"],
)
def test_a_forked_child_is_sent_what_its_process_refers_to(fork, make, looks_at_once):
    child = make(fork.Process, BARRIER)
    child.start()
    child.kill()
    child.join()
    breaks_in_time(BARRIER)


def test_a_forked_child_starts_while_a_thread_makes_barriers(fork):
    """And lets them go: at each line of what looks for the barriers that the child is sent."""
    barriers, lines, starter = [fork.Barrier(2) for _ in range(4)], set(), os.getpid()
    files = _sent.__file__, _objects.__file__, _weakrefset.__file__

    def replace_one():
        barriers.append(fork.Barrier(2))
        del barriers[1]

    def trace(frame, event, _):
        if os.getpid() == starter and event == "line" and frame.f_code.co_filename in files:
            lines.add(frame.f_lineno)
            thread = threading.Thread(target=replace_one)
            thread.start()
            thread.join()
        return trace

    child = fork.Process(target=len, args=(barriers[:1],))
    sys.settrace(trace)
    try:
        child.start()
    finally:
        sys.settrace(None)
    child.join()
    assert child.exitcode == 0
    assert len(lines) > 10


class SaysItIsShort(list):
    def __len__(self):
        return 1


@pytest.mark.parametrize(
    "large",
    [
        [[] for _ in range(100000)],
        SaysItIsShort([] for _ in range(100000)),
        dict.fromkeys(range(100000), {}),
        [[[0] * 200 for _ in range(100)] for _ in range(10)],
    ],
    ids=["list", "subclass", "dict", "many lists"],
)
def test_a_start_looks_at_a_bounded_number_of_objects(fork, monkeypatch, large):
    looked_at, is_tracked = 0, gc.is_tracked

    def count(thing):
        nonlocal looked_at
        looked_at += 1
        return is_tracked(thing)

    monkeypatch.setattr(gc, "is_tracked", count)
    monkeypatch.setattr(_sent, "_MOST_OBJECTS", 1000)
    monkeypatch.setattr(_sent, "_MOST_REFERENCES", 5000, raising=False)
    barrier, other_barrier = fork.Barrier(2), fork.Barrier(2)
    child = fork.Process(target=hold_nothing, args=(barrier, large))
    assert _sent.find(child) == [barrier]
    assert looked_at <= 6000 and not other_barrier.broken


def meet(barrier, passed):
    barrier.wait(WAIT_S)
    passed.set()


def test_a_barrier_holds_when_children_exit_or_only_inherit_it(fork, looks_at_once):
    barrier, other_barrier, passed = fork.Barrier(2), fork.Barrier(2), fork.Event()
    idle = fork.Process(target=hold_nothing, args=(other_barrier,))
    ended = fork.Process(target=len, args=([barrier],))
    raw = os.fork()
    if raw == 0:
        signal.pause()
    for child in (idle, ended):
        child.start()
    ended.join()
    assert ended.exitcode == 0
    party = fork.Process(target=meet, args=(barrier, passed))
    party.start()
    while barrier.n_waiting == 0:
        os.sched_yield()
    idle.kill()
    os.kill(raw, signal.SIGKILL)
    idle.join()
    os.waitpid(raw, 0)
    tenon.domain().reap()
    barrier.wait(WAIT_S)
    assert passed.wait(WAIT_S)
    party.join()
    assert not barrier.broken


def test_a_barrier_knows_a_child_of_os_fork_from_its_first_wait(looks_at_once):
    barrier = mp.get_context("fork").Barrier(3)
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait(0)  # this process has a seat, which is not the child's
    barrier.reset()
    child = os.fork()
    if child == 0:
        barrier.wait()
        os._exit(1)
    while barrier.n_waiting == 0:
        os.sched_yield()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    breaks_in_time(barrier)


def meet_in_threads(barrier):
    """All parties meet, as threads of this process."""
    met = []
    threads = [
        threading.Thread(target=lambda: met.append(barrier.wait(WAIT_S)), daemon=True)
        for _ in range(barrier.parties)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(met) == list(range(barrier.parties))


def start_waiting(context, barrier):
    child = context.Process(target=barrier.wait)
    child.start()
    while barrier.n_waiting == 0:
        os.sched_yield()
    return child


def stop_waiting(barrier, child):
    """Stop the child while it has neither the lock of the barrier nor that of its condition, for which all would wait."""
    with barrier._cond:
        barrier._cond._gate.acquire()
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        barrier._cond._gate.release()


def test_a_reset_barrier_counts_no_party_that_was_killed_in_wait(fork, looks_at_once):
    barrier = fork.Barrier(3)
    for has_been_seen in (False, True):
        child = start_waiting(fork, barrier)
        child.kill()
        child.join()
        tenon.domain().reap()
        if has_been_seen:
            with pytest.raises(threading.BrokenBarrierError, match="died"):
                barrier.wait(WAIT_S)
        barrier.reset()
        assert not barrier.broken and barrier.n_waiting == 0
        meet_in_threads(barrier)


def test_a_party_killed_after_its_release_breaks_the_next_round(fork, looks_at_once):
    barrier = fork.Barrier(2)
    child = start_waiting(fork, barrier)
    stop_waiting(barrier, child)
    assert barrier.wait(WAIT_S) == 1
    child.kill()
    child.join()
    tenon.domain().reap()
    breaks_in_time(barrier)
    meet_in_threads(barrier)


def test_a_wait_behind_a_party_that_does_not_leave_ends_in_time(fork, looks_at_once):
    barrier = fork.Barrier(2)
    child = start_waiting(fork, barrier)
    stop_waiting(barrier, child)
    assert barrier.wait(WAIT_S) == 1
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait(0.1)
    child.kill()
    child.join()


def have_two_and_drop_one(barrier, ready):
    other = _core.loads(*_core.dumps(barrier))
    assert other is not barrier
    del other
    gc.collect()
    ready.set()
    signal.pause()


def test_a_barrier_breaks_for_a_process_that_dropped_a_copy(fork, looks_at_once):
    barrier, ready = fork.Barrier(2), fork.Event()
    child = fork.Process(target=have_two_and_drop_one, args=(barrier, ready))
    child.start()
    assert ready.wait(WAIT_S)
    child.kill()
    breaks_in_time(barrier)
    child.join()


class LateDomain:
    """A domain in which this process has a seat beyond a barrier's places."""

    seat = 1500

    def __init__(self, domain):
        self.member, self.has_member = domain.member, domain.has_member


def test_a_barrier_has_a_place_for_a_process_on_any_seat(fork):
    barrier = fork.Barrier(1)
    barrier._cells.domain = LateDomain(barrier._cells.domain)
    assert barrier.wait(WAIT_S) == 0
    assert not any(barrier._view[barrier._CHILDREN :])


def trace_lines_of(function, at_line):
    """Call at_line(number) before each line of it that this thread comes to."""

    def trace(frame, event, _):
        if frame.f_code is not function.__code__:
            return None
        if event == "line":
            at_line(frame.f_lineno)
        return trace

    sys.settrace(trace)


def have_and_end(barrier, ready, ends):
    assert barrier.parties == 2
    ready.set()
    assert ends.wait(WAIT_S)


def give_up_sending_and_end(barrier, ready, ends):
    """As if a child of this process could not start."""
    place = barrier._expect()
    ready.set()
    assert ends.wait(WAIT_S)
    barrier._forget_child(place)


@pytest.mark.parametrize("target", [have_and_end, give_up_sending_and_end])
def test_a_barrier_holds_when_a_child_exits_during_a_check(quick, target):
    barrier = quick.Barrier(2)
    find_dead = synchronize.Barrier._check_for_dead
    came_to = set()
    for end_at in sorted({line for _, line in dis.findlinestarts(find_dead.__code__)}):
        ready, ends = quick.Event(), quick.Event()
        child = quick.Process(target=target, args=(barrier, ready, ends))
        child.start()
        assert ready.wait(WAIT_S)

        def at_line(line, end_at=end_at, child=child, ends=ends):
            came_to.add(line)
            if line == end_at:
                ends.set()
                child.join()

        with barrier._cond:
            trace_lines_of(find_dead, at_line)
            try:
                barrier._check_for_dead()
            finally:
                sys.settrace(None)
        ends.set()
        child.join()
        assert child.exitcode == 0
        assert not barrier.broken
    assert len(came_to) > 5


def start_another(method, barrier, depth):
    if depth > 0:
        arguments = method, barrier, depth - 1
        child = mp.get_context(method).Process(target=start_another, args=arguments)
        child.start()
        child.join()
        assert child.exitcode == 0


@pytest.mark.parametrize("daemon", [False, True], ids=["child", "daemon"])
def test_a_process_that_ends_well_leaves_no_place_in_a_barrier(context, daemon):
    barrier = context.Barrier(2)
    child = context.Process(
        target=start_another, args=(context._name, barrier, not daemon), daemon=daemon
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    assert not any(barrier._view[barrier._MEMBERS : barrier._CHILDREN])
    assert not expects_a_child(barrier)


def expects_a_child(barrier):
    return any(barrier._view[barrier._CHILDREN : barrier._END : 2])


def test_a_barrier_expects_no_child_that_could_not_start(fork, monkeypatch, looks_at_once):
    barrier, passed = fork.Barrier(2), fork.Event()

    def fail():
        raise BlockingIOError

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", fail)
        with pytest.raises(BlockingIOError):
            fork.Process(target=meet, args=(barrier, passed)).start()
    spawned = mp.get_context("spawn").Process(target=meet, args=(barrier, threading.Lock()))
    with pytest.raises(TypeError):
        spawned.start()
    assert not expects_a_child(barrier)
    party = fork.Process(target=meet, args=(barrier, passed))
    party.start()
    barrier.wait(WAIT_S)
    assert passed.wait(WAIT_S)
    party.join()
    assert not expects_a_child(barrier)


def kill_at(line):
    """Kill this process at the `line`th line of the package that it comes to."""
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


class KilledAt(mp.get_context("fork").Process):
    """It is killed at a line of what runs before its target, or when it is at that."""

    def __init__(self, line, *args):
        super().__init__(target=hold_nothing, args=args)
        self.line = line

    def _bootstrap(self, *args, **keywords):
        kill_at(self.line)
        return super()._bootstrap(*args, **keywords)

    def run(self):
        sys.settrace(None)
        self._args[1].set()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_barrier_breaks_wherever_a_child_is_killed_on_its_way(fork, looks_at_once):
    barrier, arrived = fork.Barrier(2), fork.Event()
    line = 0
    while not arrived.is_set():
        line += 1
        assert line < MOST_LINES
        child = KilledAt(line, barrier, arrived)
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        breaks_in_time(barrier)
    assert line > 20, f"only {line} lines"


@pytest.fixture
def many_descriptors():
    """The next descriptor of this process is 1024, or more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with contextlib.ExitStack() as opened:
        descriptor = 0
        while descriptor < 1024:
            descriptor = os.open(os.devnull, os.O_RDONLY)
            opened.callback(os.close, descriptor)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_barrier_breaks_in_a_process_of_many_descriptors(fork, many_descriptors, looks_at_once):
    barrier = fork.Barrier(2)
    child = KilledAt(1, barrier, fork.Event())
    child.start()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it keeps its pid until join()
    breaks_in_time(barrier)
    child.join()


def test_a_process_with_many_descriptors_knows_which_pids_live(many_descriptors):
    child = subprocess.Popen(["sleep", "infinity"])
    try:
        assert _objects.lives(child.pid)
    finally:
        child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not _objects.lives(child.pid)
    child.wait()
    assert not _objects.lives(child.pid)


def test_a_place_comes_back_wherever_the_starter_is_killed(fork, looks_at_once):
    barrier, done, line = fork.Barrier(2), fork.Event(), 0
    while not done.is_set():
        line += 1
        assert line < MOST_LINES
        starter = os.fork()
        if starter == 0:
            kill_at(line)
            mp.get_context("fork").Process(target=len, args=([barrier],)).start()
            sys.settrace(None)
            done.set()
            os.kill(os.getpid(), signal.SIGKILL)
        _, status = os.waitpid(starter, 0)
        assert status == signal.SIGKILL
        tenon.domain().reap()
        while expects_a_child(barrier):
            with contextlib.suppress(threading.BrokenBarrierError), barrier._cond:
                barrier._check_for_dead()
        barrier.reset()
        assert not barrier.broken
    assert line > 20, f"only {line} lines"
