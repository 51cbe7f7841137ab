# SPDX-License-Identifier: Apache-2.0
"""The same lines say the same with the standard library's package and with this one.

Every comparison is with the multiprocessing of the Python that runs the test.
"""

import importlib
import logging.config
import multiprocessing as standard
import os
import re
import threading

import pytest
import tenon
import tenon.multiprocessing as mp

WAIT_S = 30
PACKAGES = {"multiprocessing": standard, "tenon.multiprocessing": mp}


# ---- lines ---------------------------------------------------------------------------------------


def say(work, with_text=False):
    """What it returns, or the type of what it raises."""
    try:
        said = repr(work())
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if with_text else type(error).__name__
    return re.sub("0x[0-9a-f]+", "0x", said).replace("tenon.multiprocessing", "multiprocessing")


def in_thread(work):
    said = []
    thread = threading.Thread(target=lambda: said.append(say(work)), name="other")
    thread.start()
    thread.join()
    return said[0]


def in_child(work):
    reader, writer = os.pipe()
    process = mp.get_context("fork").Process(
        target=lambda: os.write(writer, say(work).encode()), name="child"
    )
    process.start()
    process.join(WAIT_S)
    os.close(writer)
    with open(reader) as said:
        return said.read()


def said_of(package, lines):
    names = {"in_thread": in_thread, "in_child": in_child, "threading": threading, "mp": mp}
    names["ctx"] = PACKAGES[package].get_context("fork")
    for module in "synchronize", "queues", "sharedctypes":
        names[module] = importlib.import_module(f"{package}.{module}")
    said = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        made = re.match(r"(\w+) = (.*)", line)
        if made:
            names[made[1]] = eval(made[2], names)
        else:
            said.append((line, say(lambda: eval(line, names), line.endswith("# text"))))
    return said


LINES = {
    "lock": """
        taken = ctx.Lock()
        taken.acquire('x', 0)
        taken.acquire(None, 0)
        taken.acquire(1.5, 0)
        taken.acquire(2**70, 0)
        lock = ctx.Lock()
        lock
        lock.acquire(True, 'a')
        lock.acquire(1, 2, 3)
        lock.acquire(blocking=True)
        lock.acquire(), lock.acquire(False), lock.acquire(False, 'a'), lock.acquire(True, 0.01)
        lock.acquire(True, -1), lock.acquire(timeout=0)
        lock
        in_thread(lambda: lock)
        in_child(lambda: lock)
        in_thread(lock.release)
        lock
        lock.release()  # text
        in_thread(lock.acquire)
        lock
        in_child(lambda: lock)
        in_child(lambda: (lock.release(), lock.acquire(), lock.release()))
        lock._semlock._get_value(), lock._semlock._is_zero()
        lock._semlock.kind, lock._semlock.maxvalue
        isinstance(lock, synchronize.BoundedSemaphore), isinstance(lock, synchronize.SemLock)
    """,
    "recursive lock": """
        lock = ctx.RLock()
        lock
        lock.release()  # text
        lock.acquire(), lock.acquire(), lock.acquire(False)
        lock
        in_thread(lambda: lock)
        in_child(lambda: lock)
        in_thread(lock.release)
        in_thread(lambda: lock.acquire(False)), in_child(lambda: lock.acquire(True, 0.01))
        in_child(lock.release)
        lock._semlock._count(), lock._semlock._is_mine(), lock._semlock._get_value()
        lock._semlock.kind, lock._semlock.maxvalue
        lock.release(), lock.release(), lock.release()
        lock
        lock.release()  # text
        in_thread(lambda: (lock.acquire(), lock))
        lock
        in_child(lambda: lock)
        lock.acquire(False), lock.acquire(True, 0.1), lock.acquire(True, -1)
        in_child(lambda: (lock.acquire(False), lock.acquire(True, 0.1)))
        lock.release()  # text
    """,
    "semaphores": """
        ctx.Semaphore('a')
        ctx.Semaphore(1.5)
        ctx.Semaphore(None)
        ctx.Semaphore(-1)
        ctx.Semaphore(2**31)
        ctx.Semaphore(True), ctx.Semaphore(2**31 - 1), ctx.BoundedSemaphore(0)
        ctx.BoundedSemaphore('a')
        ctx.BoundedSemaphore(-1)
        ctx.BoundedSemaphore(2**40)
        semaphore = ctx.Semaphore(2)
        semaphore.acquire(), semaphore.acquire(), semaphore.acquire(False), semaphore
        semaphore._semlock._count(), semaphore._semlock._is_mine()
        semaphore.release(), semaphore.release(), semaphore.release(), semaphore.get_value()
        semaphore.acquire('x')
        semaphore.acquire(True, 'a')
        bounded = ctx.BoundedSemaphore(2)
        bounded.release()  # text
        bounded.acquire(), bounded.acquire(), bounded.acquire(False), bounded
        bounded._semlock._count(), in_child(lambda: (bounded, bounded._semlock._count()))
        in_child(bounded.release), bounded
        most = ctx.Semaphore(2**31 - 1)
        most.release()  # text
        semlock = synchronize.SemLock(1, 0, 1, ctx=ctx)
        semlock.acquire(False), semlock.release(), in_child(lambda: semlock.acquire(False))
        semlock.release()
        semlock.release()  # text
        recursive = synchronize.SemLock(0, 1, 1, ctx=ctx)
        recursive.acquire(), recursive.acquire(), recursive.release(), recursive.release()
        recursive.release()  # text
        synchronize.SemLock(5, 1, 1, ctx=ctx)  # text
        synchronize.SemLock('a', 1, 1, ctx=ctx)
        synchronize.SemLock(1, 'a', 1, ctx=ctx)
        synchronize.SEM_VALUE_MAX, synchronize.RECURSIVE_MUTEX, synchronize.SEMAPHORE
    """,
    "event": """
        event = ctx.Event()
        event.is_set(), event.wait(0), event.wait(-1), event.wait(0.01)
        event.wait('x')
        event.set(), event.wait(), event.is_set()
        event.clear(), in_child(event.set), event.is_set()
    """,
    "condition": """
        condition = ctx.Condition()
        condition
        condition.wait(0)  # text
        condition.notify()  # text
        condition.release()  # text
        condition.acquire(), condition.wait(0), condition.wait(-1), condition.wait(0.01), condition
        condition.wait('x')
        condition.wait_for(lambda: 5), condition.wait_for(lambda: 0, 0.01)
        condition.wait_for(lambda: 0, 'x')
        condition.notify(0), condition.notify(-1), condition.notify(1.5), condition.notify(2**70)
        condition.notify('a')
        condition.notify(None)
        condition.release(), in_thread(condition.acquire), condition
    """,
    "condition over other locks": """
        ctx.Condition(5)
        ctx.Condition('a')
        ctx.Condition(ctx.Event())
        ctx.Condition([])
        foreign = ctx.Condition(threading.Lock())
        foreign.acquire(), foreign.release(), foreign.__enter__(), foreign.__exit__()
        foreign.wait(0)
        foreign.notify()
        semaphore = ctx.Semaphore(3)
        over = ctx.Condition(semaphore)
        over, over.acquire(), over.acquire(), over.wait(0.01), over.notify(), semaphore
        over.release(), over.release(), semaphore
        single = ctx.Condition(ctx.BoundedSemaphore(1))
        single.acquire(), single.wait(0), single.notify(), single.release()
        single.release()  # text
        standards = ctx.Condition(__import__("multiprocessing").RLock())
        standards, standards.acquire(), standards.acquire(), standards.wait(0.01), standards
        standards.notify(), standards.release(), standards.release(), standards
    """,
    "queue": """
        ctx.Queue('a')
        ctx.Queue(1.5)
        ctx.Queue(None)
        ctx.JoinableQueue('a')
        queue = ctx.Queue(1)
        queue.get(False)
        queue.get(False, 5)
        queue.get(False, -5)
        queue.get(False, 'a')
        queue.get(True, 'a')
        queue.put(1)
        queue.put(1, False, 5)
        queue.put(1, False, 'a')
        queue.put(1, True, 'a')
        queue.get(True, 30), queue.put(1, True, 0), queue.get(timeout=30)
    """,
    "shared values": """
        value = ctx.Value('i', 7)
        value.__delattr__('value')
        ctx.Value('d', 1.5).__delattr__('value')
        value.value
        ctx.Array('i', [1, 2]).__delitem__(0)
    """,
}


@pytest.mark.parametrize("lines", sorted(LINES))
def test_lines_say_what_they_say_of_the_standard_library(lines):
    assert said_of("tenon.multiprocessing", LINES[lines]) == said_of(
        "multiprocessing", LINES[lines]
    )


def test_repr_of_an_event_says_whether_it_is_set():  # before Python 3.11 none is
    event = mp.Event()
    before = repr(event)
    event.set()
    assert (before, repr(event)) == tuple(
        f"<Event at {id(event):#x} {state}>" for state in ("unset", "set")
    )


def test_repr_of_a_lock_that_another_process_released_is_a_free_lock():
    lock = mp.Lock()
    lock.acquire()
    in_child(lock.release)
    assert repr(lock) == "<Lock(owner=None)>"


def test_isinstance_takes_queues_for_the_standard_librarys():
    context = mp.get_context("fork")
    for kind in "Queue", "JoinableQueue", "SimpleQueue":
        assert isinstance(getattr(context, kind)(), getattr(standard.queues, kind))
    handler = {"class": "logging.handlers.QueueHandler", "queue": context.Queue()}
    logging.config.dictConfig(
        {"version": 1, "handlers": {"queue": handler}, "disable_existing_loggers": False}
    )


@pytest.mark.parametrize("timeout", [float("nan"), -float("nan")])
def test_a_timeout_that_is_no_number_ends_no_wait_silently(timeout):
    lock, event, condition = mp.Lock(), mp.Event(), mp.Condition()
    lock.acquire(), condition.acquire()
    waits = lock.acquire, event.wait, condition.wait, mp.Queue().get, mp.Barrier(2).wait
    for wait in waits:
        with pytest.raises(ValueError, match="NaN"):
            wait(timeout=timeout)


def test_an_untimed_acquire_says_that_the_owner_has_ended():
    lock = mp.RLock()
    in_thread(lock.acquire)
    assert not lock.acquire(timeout=0.01)
    with pytest.raises(tenon.Corrupt, match="has ended"):
        lock.acquire()


def own_and_end_a_thread(lock, ready, may_end):
    in_thread(lock.acquire)
    ready.set()
    may_end.wait()


def test_a_timed_acquire_outlasts_the_process_whose_thread_ended():
    context = mp.get_context("fork")
    lock, ready, may_end = context.RLock(), context.Event(), context.Event()
    process = context.Process(target=own_and_end_a_thread, args=(lock, ready, may_end))
    process.start()
    assert ready.wait(WAIT_S)
    assert not lock.acquire(timeout=0.01)
    may_end.set()
    assert lock.acquire(timeout=WAIT_S)
    process.join(WAIT_S)
    lock.release()


def wait_at(condition, ready):
    with condition:
        ready.release()
        condition.wait()


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_repr_of_a_condition_counts_waiting_threads(package):
    context = PACKAGES[package].get_context("fork")
    condition, ready = context.Condition(), context.Semaphore(0)
    waiters = [context.Process(target=wait_at, args=(condition, ready)) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
        ready.acquire()
    with condition:
        assert repr(condition) == "<Condition(<RLock(MainProcess, 1)>, 2)>"
        condition.notify_all()
    for waiter in waiters:
        waiter.join(WAIT_S)
    assert repr(condition) == "<Condition(<RLock(None, 0)>, 0)>"


# ---- subclasses ----------------------------------------------------------------------------------


class WithState:
    """What it adds to the state of its base, and takes from it."""

    def __getstate__(self):
        return super().__getstate__(), self.tag

    def __setstate__(self, state):
        super().__setstate__(state[0])
        self.tag = state[1]


class WithDict:
    def __getstate__(self):
        return dict(self.__dict__, tag=self.tag.upper())

    def __setstate__(self, state):
        self.__dict__.update(state)


KINDS = {
    "Lock": (),
    "RLock": (),
    "Semaphore": (2,),
    "BoundedSemaphore": (2,),
    "Condition": (),
    "Barrier": (1,),
    "Queue": (3,),
    "JoinableQueue": (),
    "SimpleQueue": (),
    "Event": (),
}


def _name(package, kind, suffix):
    return f"{package.replace('.', '_')}_{kind}{suffix}"


for _package in PACKAGES:
    for _kind in KINDS:
        _room = "queues" if _kind.endswith("Queue") else "synchronize"
        _base = getattr(importlib.import_module(f"{_package}.{_room}"), _kind)
        _mixin = WithDict if _kind == "Event" else WithState
        for _suffix, _bases in ("Plain", (_base,)), ("Own", (_mixin, _base)):
            _named = _name(_package, _kind, _suffix)
            globals()[_named] = type(_named, _bases, {"__module__": __name__})

USES = {
    "Event": lambda event: (event.set(), event.is_set()),
    "Barrier": lambda barrier: barrier.wait(),
    "Condition": lambda condition: (condition.acquire(), condition.wait(0), condition.release()),
}


def use_queue(queue):
    queue.put("in")
    return queue.get()


def describe(thing):
    kind = type(thing).__name__.rsplit("_", 1)[1]
    bare = re.sub("Plain|Own", "", kind)
    use = USES.get(bare, use_queue if bare.endswith("Queue") else lambda lock: lock.acquire())
    return kind, getattr(thing, "tag", None), use(thing)


def send_descriptions(pipe, things):
    pipe.send([describe(thing) for thing in things])
    pipe.close()


def described_by_child(package, method):
    context = PACKAGES[package].get_context(method)
    things = []
    for kind, arguments in KINDS.items():
        # The standard library's __init__() of a Barrier calls __setstate__().
        for suffix in ("Plain",) if kind == "Barrier" else ("Plain", "Own"):
            thing = globals()[_name(package, kind, suffix)](*arguments, ctx=context)
            if kind == "Barrier":
                thing._timeout = WAIT_S
            thing.tag = "mine"
            things.append(thing)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=send_descriptions, args=(writer, things))
    process.start()
    writer.close()
    described = reader.recv()
    process.join(WAIT_S)
    return described


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_subclasses_are_pickled_as_the_standard_librarys(method):
    ours = described_by_child("tenon.multiprocessing", method)
    assert ours == described_by_child("multiprocessing", method)


def test_objects_with_a_state_of_their_own_travel_through_a_queue():
    context = mp.get_context("fork")
    queue = context.Queue()
    for kind, arguments in KINDS.items():
        thing = globals()[_name("tenon.multiprocessing", kind, "Own")](*arguments, ctx=context)
        thing.tag = "mine"
        queue.put(thing)
        arrived = queue.get(timeout=WAIT_S)
        assert (type(arrived), arrived.tag.lower()) == (type(thing), "mine")
