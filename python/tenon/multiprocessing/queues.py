# SPDX-License-Identifier: Apache-2.0
"""Queues between processes. A killed process does not stop the others.

The queues behave as those of the standard library, with three differences. put() pickles in the
caller and raises there. Arrays and tensors travel in shared memory. A wait that no one can end any
more raises tenon.PeerDied, a BrokenPipeError with pid and seat, which is an Empty or a Full too: the
last other process that had the queue died, and this process has no other thread.
"""

import threading
import types
from queue import Empty, Full

from .. import _core, _domain
from .._cpython import queues as _standard
from ._backlog import Feeder, SharedCount
from ._objects import deadline_of, has_starting, remaining_of, reset_in_child
from ._reader import Readable, watch_again
from ._unfinished import Unfinished

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]

# Slots of a queue without a bound; further messages wait in the process that puts them. A pipe of
# 64 KiB takes as many of the shortest messages of the standard library, which have 8 bytes.
_CAPACITY = 8192
_INLINE_BYTES = 64  # slots of 128 bytes: 1 MiB
_SIMPLE_CAPACITY = 1024
_PRODUCER, _CONSUMER = 1, 2
_CHECK_S = 0.2  # how often a waiting thread checks by itself: a process may die without notice


class _ClosedQueue(ValueError, OSError):
    """The standard library raises one or the other, depending on method and version."""


def _attach(core):
    """Attach as producer and consumer: every process that has a queue may put and get."""
    try:
        core.attach(_PRODUCER | _CONSUMER)
    except (_core.Error, ValueError):
        pass  # closed, or a forked child without a seat: the next call raises that


class _NobodyPuts(_core.PeerDied, Empty):
    pass


class _NobodyGets(_core.PeerDied, Full):
    pass


def _wait(core, attempt, timeout, roles, kind):
    """Call attempt(seconds) until it succeeds, the timeout passes, or no one is left to end the wait.

    PeerDied ends the wait only if no other process has the queue, no child that starts may still
    open it, and this process has no other thread.
    """
    deadline = deadline_of(timeout)
    death = None
    while True:
        seconds = remaining_of(deadline)
        if death is not None:
            seconds = _CHECK_S if seconds is None else min(seconds, _CHECK_S)
        try:
            return attempt(seconds)
        except _core.TimedOut:
            if remaining_of(deadline) == 0:
                raise
        except _core.PeerDied as error:
            if timeout == 0:
                raise _core.TimedOut(*error.args) from None
            death = error
        if death is None:
            continue
        if core.peers(roles) > 0:
            death = None
        elif not has_starting(core) and not _has_other_threads():
            made = kind(*death.args)
            made.__dict__.update(death.__dict__)
            raise made from None


def _at_once(timeout):
    """The timeout 0. A timeout that is no number raises TypeError all the same."""
    if timeout is not None:
        timeout < 0
    return 0


def _has_other_threads():
    others = set(threading.enumerate()) - {threading.current_thread()}
    return not all(hasattr(thread, "puts_and_gets_nothing") for thread in others)


def _next(core, timeout, attempt=None):
    return _wait(core, attempt or core.get, timeout, _PRODUCER, _NobodyPuts)


async def _take(queue, get, timeout):
    """Call get(0) until it gives something. Another coroutine may put meanwhile, so no death ends this wait."""
    from .. import _async  # imports asyncio, which takes long

    def get_now(_):
        queue._check()
        return get(0)

    queue._check()
    core = queue._core
    try:
        return await _async.take(core, get_now, timeout)
    finally:
        watch_again(core)


def _put_into(core, obj, timeout):
    try:
        core.put(obj, timeout)
    except _core.PeerDied:
        message = _core.dumps(obj, core.domain)
        _wait(core, lambda s: core.push(*message, s), timeout, _CONSUMER, _NobodyGets)


class Queue(Readable, _standard.Queue):
    """multiprocessing.Queue. isinstance() takes it for a queue of the standard library."""

    __class_getitem__ = classmethod(types.GenericAlias)
    _is_told_of_errors = False

    def __init_subclass__(cls, **keywords):
        # concurrent.futures has such a subclass: it learns there what cannot be pickled, not from put().
        super().__init_subclass__(**keywords)
        cls._is_told_of_errors = cls._on_queue_feeder_error is not _standard.Queue._on_queue_feeder_error

    def __init__(self, maxsize=0, *, ctx=None):
        maxsize = max(maxsize, 0)
        if maxsize > 2**20:
            raise OverflowError(f"a queue of {maxsize} messages: 2**20 are the most")
        domain = _domain.default()
        if maxsize == 0:
            core = _core.Queue.create(domain, capacity=_CAPACITY, inline_bytes=_INLINE_BYTES)
            self._begin(core, maxsize, SharedCount.create(domain))
        else:
            self._begin(_core.Queue.create(domain, capacity=maxsize), maxsize, None)

    def _begin(self, core, maxsize, waiting):
        self._core = core
        self._waiting = waiting
        self._maxsize = maxsize
        self._joins = True
        self._closed = False
        self._make_backlog()
        _attach(core)
        reset_in_child(self)

    def _reset(self):
        self._backlog = self._feeder = None  # the backlog of the parent belongs to the parent
        if self._core is not None:
            _attach(self._core)
            self._make_backlog()

    def _make_backlog(self, *more_counts, after=None):
        self._backlog = self._feeder = None  # of a queue with a bound
        if self._waiting is not None:
            counts = (*more_counts, self._waiting)
            self._backlog = _core.Backlog(self._core, *(count.core for count in counts))
            self._feeder = Feeder(self._joins, after)

    def __getstate__(self):
        self._check()
        return self._core, self._maxsize, self._waiting

    def __setstate__(self, state):
        self._begin(*state)

    def _check(self):
        if self._closed:
            raise _ClosedQueue(f"Queue {self!r} is closed")

    def put(self, obj, block=True, timeout=None):
        if self._closed:
            self._check()
        try:
            if self._backlog is None:
                _put_into(self._core, obj, timeout if block else _at_once(timeout))
            elif self._backlog.put(obj):
                self._feeder.start(self._backlog)
        except _core.TimedOut:
            raise Full from None
        except Exception as error:
            if not self._is_told_of_errors or isinstance(error, _core.PeerDied):
                raise
            self._on_queue_feeder_error(error, obj)

    def _get(self, timeout):
        return _next(self._core, timeout)

    def get(self, block=True, timeout=None):
        if self._closed:
            self._check()
        try:
            return self._get(timeout if block else _at_once(timeout))
        except _core.TimedOut:
            raise Empty from None
        finally:
            if self._made_reader is not None:
                self._made_reader.update()

    async def get_async(self, timeout=None):
        """The same as get() for a coroutine: the event loop does other work meanwhile, and no thread is needed.

        If the coroutine is cancelled, no message is lost. PeerDied is never raised: the event loop may still put.

        Parameters
        ----------
        timeout : float or None, seconds; None waits without a limit, 0 tries once

        Raises
        ------
        queue.Empty
            The time has passed.
        """
        try:
            return await _take(self, self._get, timeout)
        except _core.TimedOut:
            raise Empty from None

    def get_nowait(self):
        return self.get(False)

    def put_nowait(self, obj):
        return self.put(obj, False)

    def _count(self):
        """The number of messages in the queue, even if this process has closed it."""
        if not self._closed:
            return self._core.count()
        domain, place, last = self._left
        try:
            core = _core.Queue.open(domain, place)
        except (_core.Error, ValueError, TypeError):
            return last  # no process has the queue any more
        try:
            return core.count()
        finally:
            core.close()

    def qsize(self):
        # In this order a message that enters the queue meanwhile is counted twice, and none is missed.
        waiting = self._waiting.count() if self._waiting is not None else 0
        return waiting + self._count()

    def empty(self):
        return self._count() == 0

    def full(self):
        return self._maxsize != 0 and self._count() >= self._maxsize

    def close(self):
        """Stop putting and getting in this process. What it has put still arrives."""
        if not self._closed:
            try:
                self._left = self._core.domain, self._core.id, self._core.count()
            except (_core.Error, ValueError):
                self._left = None, 0, 0  # the domain has ended
        self._closed = True
        if self._backlog is not None:
            self._feeder.close()
            self._backlog = None
        self._core = None  # not closed: a child that starts may not have opened it yet

    def _terminate_broken(self):
        # concurrent.futures calls it when a worker has died. No put() waits for a pipe that nobody reads.
        self.close()

    def join_thread(self):
        assert self._closed, f"Queue {self!r} not closed"
        if self._feeder is not None:
            self._feeder.flush()

    def cancel_join_thread(self):
        self._joins = False
        if self._feeder is not None:
            self._feeder.joins = False

    def __repr__(self):
        return f"<{type(self).__module__}.{type(self).__qualname__} object at {id(self):#x}>"


class JoinableQueue(Queue, _standard.JoinableQueue):
    """A queue whose join() waits until every object is finished.

    If a process ends after get() and before task_done(), the object counts as finished.
    """

    _unfinished = None

    def __init__(self, maxsize=0, *, ctx=None):
        super().__init__(maxsize, ctx=ctx)
        self._count_unfinished(Unfinished(self._core))

    def _count_unfinished(self, unfinished):
        self._unfinished = unfinished
        self._make_backlog()

    def __getstate__(self):
        return (*super().__getstate__(), self._unfinished)

    def __setstate__(self, state):
        super().__setstate__(state[:-1])
        self._count_unfinished(state[-1])

    def _make_backlog(self):
        if self._unfinished is not None:  # else __init__() or __setstate__() calls it again
            super()._make_backlog(self._unfinished.held, after=self._unfinished.wake_if_done_at_end)

    def _get(self, timeout):
        return _next(self._core, timeout, self._pop)

    def _pop(self, seconds):
        _core.Queue.wait_any([self._core], seconds)
        self._unfinished.add()
        try:
            got = self._core.get(0)
        except BaseException:
            self._unfinished.remove()
            raise
        self._unfinished.apply_early_task_done()
        return got

    def task_done(self):
        try:
            self._unfinished.remove()
        except ValueError:
            self._unfinished.note_early_task_done()

    def join(self):
        self._unfinished.join()


class SimpleQueue(Readable, _standard.SimpleQueue):
    """A queue with a bound: put() waits for room, get() for an object."""

    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, *, ctx=None):
        self._begin(_core.Queue.create(_domain.default(), capacity=_SIMPLE_CAPACITY))

    def _begin(self, core):
        self._core = core
        _attach(core)
        reset_in_child(self)

    def _reset(self):
        if self._core is not None:
            _attach(self._core)

    def __getstate__(self):
        self._check()
        return (self._core,)

    def __setstate__(self, state):
        self._begin(*state)

    def _check(self):
        if self._core is None:
            raise _ClosedQueue(f"Queue {self!r} is closed")

    def put(self, obj):
        self._check()
        _put_into(self._core, obj, None)

    def get(self):
        self._check()
        try:
            return _next(self._core, None)
        finally:
            if self._made_reader is not None:
                self._made_reader.update()

    async def get_async(self):
        """The same as get() for a coroutine: see Queue.get_async()."""
        return await _take(self, lambda seconds: _next(self._core, seconds), None)

    def empty(self):
        self._check()
        return self._core.count() == 0

    def close(self):
        self._core = None


def __getattr__(name):
    """The other names of the standard library's module."""
    return getattr(_standard, name)
