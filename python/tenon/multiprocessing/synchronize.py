# SPDX-License-Identifier: Apache-2.0
"""Locks, semaphores, conditions, events and barriers that survive killed processes.

They behave as the standard library's, with these differences. What a process holds is released when
the process ends, in whatever way. A death does not end a wait, since a thread of this process may
still end it. Objects may be pickled for any process, not only for a child that starts.
"""

import errno
import operator
import threading

from .. import _core, _domain
from .._cpython import process
from ._objects import deadline_of, keep_for_child, remaining_of, wait_on

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "Condition",
    "Event",
    "Lock",
    "RLock",
    "Semaphore",
]

MOST_WAITERS = 340  # of a condition; that of a barrier may have more
SEM_VALUE_MAX = 2**31 - 1
RECURSIVE_MUTEX, SEMAPHORE = range(2)  # kinds of a SemLock

# The kinds of a guard, as in core/guard.c.
_SIGNALS, _PERMITS, _LOCK, _RLOCK = range(4)


class SemLock(_core.Guard):
    """The base class of locks and semaphores. release() beyond `maxvalue` raises.

    If the initial value is `maxvalue`, a permit belongs to the process that acquired it, and comes
    back when that process ends. Otherwise permits are signals, which no process owns.
    """

    def __init__(self, kind, value, maxvalue, *, ctx=None):
        kind, value, maxvalue = map(operator.index, (kind, value, maxvalue))
        if kind not in (RECURSIVE_MUTEX, SEMAPHORE):
            raise ValueError("unrecognized kind")
        if value < 0:
            raise OSError(errno.EINVAL, f"a semaphore of {value} permits")
        if max(value, maxvalue) > SEM_VALUE_MAX:
            raise OverflowError(f"a semaphore of {max(value, maxvalue)} permits")
        domain = _domain.default()
        if kind == RECURSIVE_MUTEX:
            self._begin(_core.Lock.create(domain), _RLOCK, maxvalue)
        elif value == maxvalue < SEM_VALUE_MAX:
            core = _core.Semaphore.create(domain, permits=value, owned=True, any_releases=True)
            self._begin(core, _LOCK if value == 1 else _PERMITS, maxvalue)
        else:
            core = _core.Semaphore.create(domain, permits=value)
            self._begin(core, _SIGNALS, maxvalue)

    def __getstate__(self):
        return self._core, self._guard_kind, self._maxvalue

    def __setstate__(self, state):
        self._begin(*state)

    @property
    def _semlock(self):
        return _Semlock(self)

    def locked(self):
        """Whether acquire() would wait now in a process that does not hold it."""
        return self._semlock._is_zero()


class _Semlock:
    """The interface of `_multiprocessing.SemLock`, without the overrides of a subclass."""

    SEM_VALUE_MAX = SEM_VALUE_MAX
    name = None

    def __init__(self, guard):
        self._guard = guard

    @property
    def kind(self):
        return RECURSIVE_MUTEX if self._guard._guard_kind == _RLOCK else SEMAPHORE

    @property
    def maxvalue(self):
        return self._guard._maxvalue

    @property
    def handle(self):
        return self._guard._core.id

    def acquire(self, block=True, timeout=None):
        return _core.Guard.acquire(self._guard, block, timeout)

    def release(self):
        _core.Guard.release(self._guard)

    def __enter__(self):
        return _core.Guard.acquire(self._guard)

    def __exit__(self, *exception):
        _core.Guard.release(self._guard)

    def _is_mine(self):
        return self._guard._is_mine()

    def _count(self):
        return self._guard._count()

    def _get_value(self):
        core = self._guard._core
        if self.kind == SEMAPHORE:
            return core.get()
        if self._guard._count() or core.acquire(0) < 0:
            return 0
        core.release()
        return 1

    def _is_zero(self):
        return self._get_value() == 0


def _this_thread():
    name = process.current_process().name
    thread = threading.current_thread().name
    return name if thread == "MainThread" else f"{name}|{thread}"


class Semaphore(SemLock):
    """Permits that any process may release, as signals. Those of a dead process do not come back."""

    def __init__(self, value=1, *, ctx=None):
        super().__init__(SEMAPHORE, value, SEM_VALUE_MAX, ctx=ctx)

    def get_value(self):
        return self._core.get()

    def __repr__(self):
        return f"<{type(self).__name__}(value={self._value_text()})>"

    def _value_text(self):
        try:
            return self._core.get()
        except Exception:
            return "unknown"


class BoundedSemaphore(Semaphore):
    """Permits that come back when the process that holds them ends.

    A process that holds none and calls release() releases a permit of another process.
    """

    def __init__(self, value=1, *, ctx=None):
        SemLock.__init__(self, SEMAPHORE, value, value, ctx=ctx)

    def __repr__(self):
        return f"<{type(self).__name__}(value={self._value_text()}, maxvalue={self._maxvalue})>"


class Lock(SemLock):
    """A lock that any thread of any process may release."""

    def __init__(self, *, ctx=None):
        super().__init__(SEMAPHORE, 1, 1, ctx=ctx)

    def __repr__(self):
        return f"<{type(self).__name__}(owner={_owner(self)[0]})>"


class RLock(SemLock):
    """A lock that its thread may acquire again."""

    def __init__(self, *, ctx=None):
        super().__init__(RECURSIVE_MUTEX, 1, 1, ctx=ctx)

    def __repr__(self):
        owner, count = _owner(self)
        return f"<{type(self).__name__}({owner}, {count})>"


def _owner(lock):
    """The owner and the count, in the words of the standard library's repr()."""
    try:
        if lock._semlock._get_value() == 1:
            return "None", 0  # another process may have released what this thread acquired
        if lock._is_mine():
            return _this_thread(), lock._count()
        return "SomeOtherThread" if lock._count() > 0 else "SomeOtherProcess", "nonzero"
    except Exception:
        return "unknown", "unknown"


def _table(most):
    """The table for so many waiting threads, as core/turns.c lays it out."""
    return _domain.default().zeros((2 + 2 * most,), "int64")


class Condition(_core.GuardCondition):
    """A condition over a lock. notify(n) wakes n threads.

    wait() and notify() ask the lock's _semlock for the owner, as in the standard library.
    """

    def __init__(self, lock=None, *, ctx=None):
        self._make(lock or RLock(), MOST_WAITERS)

    def _make(self, lock, most):
        domain = _domain.default()
        self._hold(lock, _core.Lock.create(domain), _core.Condition.create(domain), _table(most))

    def _hold(self, lock, gate, core, table):
        self._begin(lock, gate, core, table)
        self._table = table
        self.acquire = lock.acquire
        self.release = lock.release

    def __getstate__(self):
        return self._lock, self._gate, self._core, keep_for_child(self._table)

    def __setstate__(self, state):
        self._hold(*state)

    def wait_for(self, predicate, timeout=None):
        result = predicate()
        if result:
            return result
        deadline = deadline_of(timeout)
        while not result:
            remaining = remaining_of(deadline)
            if remaining is not None and remaining <= 0:
                break
            self.wait(remaining)
            result = predicate()
        return result

    def __repr__(self):
        try:
            waiting = self._count_waiting()
        except Exception:
            waiting = "unknown"
        return f"<{type(self).__name__}({self._lock}, {waiting})>"


class Event:
    """An event that processes set, clear and wait for."""

    def __init__(self, *, ctx=None):
        self._core = _core.Event.create(_domain.default())

    def is_set(self):
        return self._core.is_set()

    def set(self):
        self._core.set()

    def clear(self):
        self._core.clear()

    def wait(self, timeout=None):
        return wait_on(self._core.wait, timeout)

    def __repr__(self):
        try:
            state = "set" if self.is_set() else "unset"
        except Exception:
            state = "unknown"
        return f"<{type(self).__qualname__} at {id(self):#x} {state}>"


def __getattr__(name):
    """Barrier, which is imported on first use, and the other names of the standard library's module."""
    if name == "Barrier":
        from ._barrier import Barrier

        return globals().setdefault(name, Barrier)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .._cpython import synchronize as _standard

    return getattr(_standard, name)
