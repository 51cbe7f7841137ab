# SPDX-License-Identifier: Apache-2.0
"""Queues between processes that no killed process stops.

They behave as the standard library's, except in this: put() pickles in the caller and raises
there; arrays and tensors travel in shared memory; get() raises tenon.PeerDied, a
BrokenPipeError with pid and seat, when nothing is left and the last other process that has
the queue died.
"""

import collections
import threading
from multiprocessing import util
from queue import Empty, Full

from .. import _core, _domain
from ._reader import Readable
from .synchronize import (
    Condition,
    Semaphore,
    _deadline,
    has_starting,
    _opened,
    _remaining,
    place_of,
    reset_in_child,
)

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]

_CAPACITY = 1024  # of a queue without a bound, before its overflow
_SIMPLE_CAPACITY = 256
_PRODUCER, _CONSUMER = 1, 2
_LOOK_S = 0.2  # how often who waits for room looks by himself: a consumer may die untold


def _attach(core):
    """Whoever has a queue may put and get: its death is told to nobody while another lives."""
    try:
        core.attach(_PRODUCER | _CONSUMER)
    except (_core.Error, ValueError):
        pass  # closed, or a forked child without a seat: what it calls says so


def _next(core, timeout):
    deadline = _deadline(timeout)
    while True:
        try:
            return core.get(_remaining(deadline))
        except _core.PeerDied:
            if not has_starting(core):
                raise


class _Overflow:
    """What a queue without a bound has no room for, and the thread that brings it there.

    The thread ends when all is there. It holds no reference of the queue, which may be
    collected before.
    """

    def __init__(self, core):
        self.core = core
        self.messages = collections.deque()  # (bytes, tensors)
        self.lock = threading.Lock()
        self.is_closing = False
        self.joins = True
        self._thread = None
        self._flush_at_exit = None

    def append(self, message):
        with self.lock:
            self.messages.append(message)
            if self._thread is not None:
                return
            self._thread = threading.Thread(
                target=self._feed, name="QueueFeederThread", daemon=True
            )
            self._thread.start()
            self._flush_at_exit = util.Finalize(None, self.flush, exitpriority=-5)

    def flush(self):
        """Wait until all is there, unless nobody wants that."""
        self.is_closing = True
        thread = self._thread
        if self.joins and thread is not None:
            thread.join()

    def _feed(self):
        consumers_died = False
        while True:
            with self.lock:
                if not self.messages or (consumers_died and self.is_closing):
                    self.messages.clear()
                    self._thread = None
                    self._flush_at_exit.cancel()
                    return
                data, tensors = self.messages[0]
            try:
                self.core.push(data, tensors, _LOOK_S)
                consumers_died = False
            except _core.TimedOut:
                continue
            except _core.PeerDied:
                consumers_died = True  # until a new one makes room
                continue
            except (_core.Error, ValueError):
                pass  # the queue or the domain has ended
            with self.lock:
                self.messages.popleft()


class _Gate:
    """The bound of a queue whose ring has room for more."""

    def __init__(self, lock, condition):
        self.lock = lock
        self.condition = condition

    @classmethod
    def create(cls, domain):
        return cls(_core.Lock.create(domain), _core.Condition.create(domain))

    def __reduce__(self):
        return _rebuild_gate, (place_of(self.lock), place_of(self.condition))

    def push(self, core, bound, message, timeout):
        """Push when fewer than `bound` wait; TimedOut."""
        deadline = _deadline(timeout)
        self.lock.acquire()
        try:
            while core.count() >= bound:
                remaining = _remaining(deadline)
                if remaining is not None and remaining <= 0:
                    raise _core.TimedOut("no room in the queue")
                slice_s = _LOOK_S if remaining is None else min(remaining, _LOOK_S)
                self.condition.wait(self.lock, slice_s)
            core.push(*message, 0)
        finally:
            self.lock.release()

    def tell(self):
        """After a pop."""
        self.lock.acquire()
        try:
            self.condition.signal()
        finally:
            self.lock.release()


def _rebuild_gate(lock, condition):
    return _Gate(_opened(_core.Lock, lock), _opened(_core.Condition, condition))


class Queue(Readable):
    """multiprocessing.Queue."""

    def __init__(self, maxsize=0, *, ctx=None):
        maxsize = max(maxsize, 0)
        if maxsize > 2**20:
            raise ValueError(f"a queue of {maxsize} messages: 2**20 are the most")
        domain = _domain.default()
        core = _core.Queue.create(domain, capacity=maxsize or _CAPACITY)
        gate = _Gate.create(domain) if maxsize not in (0, core.capacity) else None
        self._begin(core, maxsize, gate)

    def _begin(self, core, maxsize, gate):
        self._core = core
        self._maxsize = maxsize
        self._gate = gate
        self._capacity = core.capacity
        self._joins = True
        self._closed = False
        self._overflow = None
        self._put_lock = threading.Lock()
        _attach(core)
        reset_in_child(self)

    def _reset(self):
        if self._core is not None:
            _attach(self._core)
        # What its parent could not put yet is the parent's.
        self._overflow = None
        self._put_lock = threading.Lock()

    def _state(self):
        self._check()
        return place_of(self._core), self._maxsize, self._gate

    def __reduce__(self):
        return _rebuild_queue, (type(self), *self._state())

    def _check(self):
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")

    def put(self, obj, block=True, timeout=None):
        self._check()
        self._put(obj, timeout if block else 0)

    def _put(self, obj, timeout):
        if self._maxsize == 0:
            self._put_unbounded(obj)
            return
        try:
            if self._gate is None:
                self._core.put(obj, timeout)
            else:
                message = _core.dumps(obj, self._core.domain)
                self._gate.push(self._core, self._maxsize, message, timeout)
        except _core.TimedOut:
            raise Full from None

    def _put_unbounded(self, obj):
        with self._put_lock:
            waiting = self._overflow is not None and self._overflow.messages
            if not waiting and self._core.count() < self._capacity:
                try:
                    self._core.put(obj, 0)
                    return
                except (_core.TimedOut, _core.PeerDied):
                    pass
            message = _core.dumps(obj, self._core.domain)
            if self._overflow is None:
                self._overflow = _Overflow(self._core)
                self._overflow.joins = self._joins
            self._overflow.append(message)

    def get(self, block=True, timeout=None):
        self._check()
        try:
            return _next(self._core, timeout if block else 0)
        except _core.TimedOut:
            raise Empty from None
        finally:
            if self._made_reader is not None:
                self._made_reader.settle()
            if self._gate is not None:
                self._gate.tell()

    def get_nowait(self):
        return self.get(False)

    def put_nowait(self, obj):
        return self.put(obj, False)

    def qsize(self):
        self._check()
        return self._core.count() + (len(self._overflow.messages) if self._overflow else 0)

    def empty(self):
        self._check()
        return self._core.count() == 0

    def full(self):
        self._check()
        return self._maxsize != 0 and self._core.count() >= self._maxsize

    def close(self):
        """This process puts and gets no more; what it has put still arrives."""
        self._closed = True
        if self._overflow is not None:
            self._overflow.is_closing = True
        self._core = None  # ends with its last user: a child that starts may not have it yet

    def join_thread(self):
        assert self._closed, f"Queue {self!r} not closed"
        if self._overflow is not None and self._joins:
            self._overflow.flush()

    def cancel_join_thread(self):
        self._joins = False
        if self._overflow is not None:
            self._overflow.joins = False

    def __repr__(self):
        return f"<{type(self).__module__}.{type(self).__qualname__} object at {id(self):#x}>"


def _rebuild_queue(kind, place, maxsize, gate):
    made = kind.__new__(kind)
    made._begin(_opened(_core.Queue, place), maxsize, gate)
    return made


class JoinableQueue(Queue):
    """A queue that knows how much of it is not done yet."""

    def __init__(self, maxsize=0, *, ctx=None):
        super().__init__(maxsize, ctx=ctx)
        self._unfinished = Semaphore(0)
        self._all_done = Condition()

    def __reduce__(self):
        parts = self._unfinished, self._all_done
        return _rebuild_joinable, (type(self), *self._state(), *parts)

    def _put(self, obj, timeout):
        super()._put(obj, timeout)
        self._unfinished.release()

    def task_done(self):
        with self._all_done:
            # A put() counts just after its object can be got.
            if not self._unfinished.acquire(timeout=_LOOK_S):
                raise ValueError("task_done() called too many times")
            if self._unfinished.get_value() == 0:
                self._all_done.notify_all()

    def join(self):
        with self._all_done:
            while self._unfinished.get_value() != 0:
                self._all_done.wait()


def _rebuild_joinable(kind, place, maxsize, gate, unfinished, all_done):
    made = _rebuild_queue(kind, place, maxsize, gate)
    made._unfinished = unfinished
    made._all_done = all_done
    return made


class SimpleQueue(Readable):
    """A bounded queue: put() waits for room, get() for an object."""

    def __init__(self, *, ctx=None):
        self._begin(_core.Queue.create(_domain.default(), capacity=_SIMPLE_CAPACITY))

    def _begin(self, core):
        self._core = core
        _attach(core)
        reset_in_child(self)

    def _reset(self):
        if self._core is not None:
            _attach(self._core)

    def __reduce__(self):
        self._check()
        return _rebuild_simple, (type(self), place_of(self._core))

    def _check(self):
        if self._core is None:
            raise ValueError(f"Queue {self!r} is closed")

    def put(self, obj):
        self._check()
        self._core.put(obj)

    def get(self):
        self._check()
        try:
            return _next(self._core, None)
        finally:
            if self._made_reader is not None:
                self._made_reader.settle()

    def empty(self):
        self._check()
        return self._core.count() == 0

    def close(self):
        self._core = None


def _rebuild_simple(kind, place):
    made = kind.__new__(kind)
    made._begin(_opened(_core.Queue, place))
    return made
