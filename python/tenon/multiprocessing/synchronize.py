# SPDX-License-Identifier: Apache-2.0
"""Locks and the like, which a killed process cannot keep.

They behave as the standard library's, except in this: what a process holds comes back when it
ends, however that ends. A death ends no wait: a thread of this process may end it just as well.
"""

import errno
import operator
import threading
from multiprocessing import util

from .. import _core, _domain
from ._cells import Cells
from ._objects import deadline_of, keep_for_child, opened, place_of, remaining_of, wait_on

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "Condition",
    "Event",
    "Lock",
    "RLock",
    "Semaphore",
]

_MOST_PERMITS = 2**31 - 1
_MOST_WAITERS = 340  # of a condition that is no barrier's
SEM_VALUE_MAX = _MOST_PERMITS


# What a guard is: as guard.h has it.
_SIGNALS, _PERMITS, _LOCK, _RLOCK = range(4)


class _Guard(_core.Guard):
    """What the standard library's queues ask of a lock."""

    @property
    def _semlock(self):
        return self

    def _is_zero(self):
        return self.locked()

    def _get_value(self):
        return self.get_value()


class Semaphore(_Guard):
    """Permits that any process may give, as signals: those of a process that died stay away."""

    _kind = _SIGNALS
    _options = {}

    def __init__(self, value=1, *, ctx=None):
        value = operator.index(value)
        if value < 0:
            raise OSError(errno.EINVAL, f"a semaphore of {value} permits")
        if value > _MOST_PERMITS:
            raise OverflowError(f"a semaphore of {value} permits")
        core = _core.Semaphore.create(_domain.default(), permits=value, **self._options)
        self._begin(core, self._kind)
        self._most = value

    def __reduce__(self):
        return _rebuild_semaphore, (type(self), place_of(self._core), self._most)

    def get_value(self):
        return self._core.get()

    def locked(self):
        """Whether no permit is free."""
        return self._core.get() == 0

    def __repr__(self):
        return f"<{type(self).__name__}(value={self._value_text()})>"

    def _value_text(self):
        try:
            return self._core.get()
        except Exception:
            return "unknown"


class BoundedSemaphore(Semaphore):
    """Permits that come back when the process that has them ends.

    A release by a process that has none gives back one of another's.
    """

    _kind = _PERMITS
    _options = {"owned": True, "any_releases": True}

    def __repr__(self):
        return f"<{type(self).__name__}(value={self._value_text()}, maxvalue={self._most})>"


class Lock(BoundedSemaphore):
    """A lock that any thread of any process may release."""

    _kind = _LOCK

    def __init__(self, *, ctx=None):
        super().__init__(1, ctx=ctx)

    def __repr__(self):
        if self._is_mine():
            owner = threading.current_thread().name
        else:
            owner = "None" if self._value_text() else "SomeOtherThread"
        return f"<{type(self).__name__}(owner={owner})>"


def _rebuild_semaphore(kind, place, most):
    made = kind.__new__(kind)
    made._begin(opened(_core.Semaphore, place), kind._kind)
    made._most = most
    return made


class RLock(_Guard):
    """A lock of a thread, which may acquire it again."""

    def __init__(self, *, ctx=None):
        self._begin(_core.Lock.create(_domain.default()), _RLOCK)

    def __reduce__(self):
        return _rebuild_rlock, (type(self), place_of(self._core))

    def locked(self):
        """Whether some thread of some process holds it."""
        if self._count() or self._core.acquire(0) < 0:
            return True
        self._core.release()
        return False

    def __repr__(self):
        if self._is_mine():
            return f"<{type(self).__name__}({threading.current_thread().name}, {self._count()})>"
        return f"<{type(self).__name__}(None, 0)>"


def _rebuild_rlock(kind, place):
    made = kind.__new__(kind)
    made._begin(opened(_core.Lock, place), _RLOCK)
    return made


def _table(most):
    """Memory for so many that wait, as condition.c wants it."""
    return _domain.default().zeros((2 + 2 * most,), "int64")


class Condition(_core.GuardCondition):
    """A condition over a Lock or an RLock of this package. notify(n) wakes n."""

    def __init__(self, lock=None, *, ctx=None):
        lock = RLock() if lock is None else lock
        if not isinstance(lock, (Lock, RLock)):
            raise TypeError(f"a Lock or RLock of tenon's is needed, not {type(lock).__name__}")
        self._make(lock, _MOST_WAITERS)

    def _make(self, lock, most):
        domain = _domain.default()
        self._hold(lock, _core.Lock.create(domain), _core.Condition.create(domain), _table(most))

    def _hold(self, lock, gate, core, table):
        self._begin(lock, gate, core, table)
        self._table = table
        self.acquire = lock.acquire
        self.release = lock.release

    def __reduce__(self):
        places = place_of(self._gate), place_of(self._core)
        return _rebuild_condition, (
            type(self),
            self._lock,
            *places,
            keep_for_child(self._table),
        )

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
        return f"<{type(self).__name__}({self._lock!r})>"


def _rebuild_condition(kind, lock, gate, place, table):
    made = kind.__new__(kind)
    made._hold(lock, opened(_core.Lock, gate), opened(_core.Condition, place), table)
    return made


class Event:
    def __init__(self, *, ctx=None):
        self._core = _core.Event.create(_domain.default())

    def __reduce__(self):
        return _rebuild_event, (type(self), place_of(self._core))

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
        return f"<{type(self).__name__} at {id(self):#x} {state}>"


def _rebuild_event(kind, place):
    made = kind.__new__(kind)
    made._core = opened(_core.Event, place)
    return made


class Barrier(threading.Barrier):
    """threading.Barrier between processes.

    It breaks when a process dies that was sent it, or has waited at it. One that only inherited
    it from its parent may have nothing to do with it.
    """

    # Cells: state, count, then the member on each seat that is such a process.
    _MEMBERS = 2
    _SEATS = 1024
    _LOOK_S = 0.5  # how often a waiter looks whether all are alive

    def __init__(self, parties, action=None, timeout=None, *, ctx=None):
        if parties < 1:
            raise ValueError("parties must be > 0")
        cells = Cells(self._MEMBERS + self._SEATS)
        condition = Condition.__new__(Condition)
        condition._make(RLock(), max(parties, _MOST_WAITERS))
        self.__setstate__((parties, action, timeout, condition, cells))

    def __setstate__(self, state):
        self._parties, self._action, self._timeout, self._cond, self._cells = state
        self._view = self._cells.view
        self._is_seated = False
        util.register_after_fork(self, Barrier._reset)

    def __getstate__(self):
        return self._parties, self._action, self._timeout, self._cond, self._cells

    def __reduce__(self):
        return _rebuild_barrier, (type(self), self.__getstate__())

    def _reset(self):
        self._is_seated = False

    def wait(self, timeout=None):
        if not self._is_seated:
            self._take_seat()
        return super().wait(timeout)

    def _take_seat(self):
        self._is_seated = True
        domain = self._cells.domain
        place, member = self._MEMBERS + domain.seat, domain.member
        with self._cond:
            if self._cells[place] not in (0, member):
                self._break()  # who sat here died
            self._cells[place] = member
        util.Finalize(self, _leave_seat, (self._cells, place), exitpriority=_domain.LAST + 1)

    def _find_dead(self):
        """Break it, if one that has it died."""
        for place in range(self._MEMBERS, self._MEMBERS + self._SEATS):
            member = self._cells[place]
            if member != 0 and not self._cells.domain.has_member(member):
                self._cells[place] = 0
                self._break()
                raise threading.BrokenBarrierError("a process that had it died")

    @property
    def _state(self):
        return self._view[0]

    @_state.setter
    def _state(self, value):
        self._view[0] = value

    @property
    def _count(self):
        return self._view[1]

    @_count.setter
    def _count(self, value):
        self._view[1] = value

    def _wait(self, timeout):
        deadline = deadline_of(timeout)
        while self._view[0] == 0:
            remaining = remaining_of(deadline)
            if remaining is not None and remaining <= 0:
                break
            slice_s = self._LOOK_S if remaining is None else min(remaining, self._LOOK_S)
            if not self._cond.wait(slice_s):
                self._find_dead()
        if self._view[0] == 0:
            self._break()
        if self._view[0] != 1:
            raise threading.BrokenBarrierError


def _leave_seat(cells, place):
    cells[place] = 0


def _rebuild_barrier(kind, state):
    made = kind.__new__(kind)
    made.__setstate__(state)
    made._take_seat()
    return made
