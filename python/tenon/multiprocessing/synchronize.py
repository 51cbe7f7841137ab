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
from ._cells import Cells, Rows
from ._objects import deadline_of, opened, place_of, remaining_of, reset_in_child, wait_on

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


class _Acquired:
    """`with` for what has acquire() and release()."""

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *exception):
        self.release()

    # What the standard library's queues ask of a lock.

    @property
    def _semlock(self):
        return self

    def _is_zero(self):
        return self.locked()

    def _get_value(self):
        return self.get_value()


class Semaphore(_Acquired):
    """Permits that any process may give, as signals: those of a process that died stay away."""

    _kind = {}

    def __init__(self, value=1, *, ctx=None):
        value = operator.index(value)
        if value < 0:
            raise OSError(errno.EINVAL, f"a semaphore of {value} permits")
        if value > _MOST_PERMITS:
            raise OverflowError(f"a semaphore of {value} permits")
        self._begin(
            _core.Semaphore.create(_domain.default(), permits=value, **self._kind), value
        )

    def _begin(self, core, value):
        self._core = core
        self._most = value

    def __reduce__(self):
        return _rebuild_semaphore, (type(self), place_of(self._core), self._most)

    def acquire(self, block=True, timeout=None):
        return wait_on(self._core.acquire, timeout if block else 0)

    def release(self):
        self._core.release()

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

    _kind = {"owned": True, "any_releases": True}

    def release(self):
        try:
            self._core.release()
        except _core.Invalid as error:
            raise ValueError("semaphore or lock released too many times") from error

    def __repr__(self):
        return f"<{type(self).__name__}(value={self._value_text()}, maxvalue={self._most})>"


class Lock(BoundedSemaphore):
    """A lock that any thread of any process may release."""

    def __init__(self, *, ctx=None):
        super().__init__(1, ctx=ctx)

    def _begin(self, core, value):
        super()._begin(core, value)
        self._reset()
        reset_in_child(self)

    def _reset(self):
        self._holder = None

    def acquire(self, block=True, timeout=None):
        taken = wait_on(self._core.acquire, timeout if block else 0)
        if taken:
            self._holder = threading.get_ident()
        return taken

    def release(self):
        holder, self._holder = self._holder, None
        try:
            super().release()
        except BaseException:
            self._holder = holder
            raise

    def _is_mine(self):
        return self._holder == threading.get_ident()

    def _release_save(self):
        self.release()

    def _acquire_restore(self, saved):
        self.acquire()

    def __repr__(self):
        if self._is_mine():
            owner = threading.current_thread().name
        else:
            owner = "None" if self._value_text() else "SomeOtherThread"
        return f"<{type(self).__name__}(owner={owner})>"


def _rebuild_semaphore(kind, place, most):
    made = kind.__new__(kind)
    made._begin(opened(_core.Semaphore, place), most)
    return made


class RLock(_Acquired):
    """A lock of a thread, which may acquire it again."""

    def __init__(self, *, ctx=None):
        self._begin(_core.Lock.create(_domain.default()))

    def _begin(self, core):
        self._core = core
        self._reset()
        reset_in_child(self)

    def _reset(self):
        self._owner = None
        self._count = 0

    def __reduce__(self):
        return _rebuild_rlock, (type(self), place_of(self._core))

    def acquire(self, block=True, timeout=None):
        me = threading.get_ident()
        if self._owner == me:
            self._count += 1
            return True
        if self._core.acquire(timeout if block else 0) < 0:
            return False
        self._owner = me
        self._count = 1
        return True

    def release(self):
        if not self._is_mine():
            raise AssertionError("attempt to release recursive lock not owned by thread")
        self._count -= 1
        if self._count == 0:
            self._owner = None
            self._core.release()

    def locked(self):
        """Whether some thread of some process holds it."""
        if self._owner is not None:
            return True
        if self._core.acquire(0) < 0:
            return True
        self._core.release()
        return False

    def _is_mine(self):
        return self._owner == threading.get_ident()

    def _release_save(self):
        count, self._count = self._count, 1
        self.release()
        return count

    def _acquire_restore(self, count):
        self.acquire()
        self._count = count

    def __repr__(self):
        if self._is_mine():
            return f"<{type(self).__name__}({threading.current_thread().name}, {self._count})>"
        return f"<{type(self).__name__}(None, 0)>"


def _rebuild_rlock(kind, place):
    made = kind.__new__(kind)
    made._begin(opened(_core.Lock, place))
    return made


class _Waiters:
    """Who waits for a condition, the oldest first, under its gate: ticket, member, is told."""

    def __init__(self, most):
        self._rows = Rows(3, most)

    def __reduce__(self):
        return _rebuild_waiters, (self._rows,)

    def enter(self):
        """Returns the ticket of a new waiter."""
        rows = self._rows.get()
        if len(rows) == self._rows.most:
            rows = self._living(rows)
            if len(rows) == self._rows.most:
                raise RuntimeError(f"{self._rows.most} threads wait for this condition already")
        ticket = 1 + max((ticket for ticket, _, _ in rows), default=0)
        self._rows.set([*rows, (ticket, self._rows.domain.member, 0)])
        return ticket

    def leave(self, ticket):
        """Returns whether it was told."""
        rows = self._rows.get()
        self._rows.set([row for row in rows if row[0] != ticket])
        return (ticket, self._rows.domain.member, 1) in rows

    def is_told(self, ticket):
        return (ticket, self._rows.domain.member, 0) not in self._rows.get()

    def tell(self, most, wake):
        """Tell up to `most` living waiters, the oldest first; None: all.

        wake() comes first: nobody would wake who was told by a process that was killed before
        it. Who is woken too early waits for the gate, and then sleeps again.
        """
        rows = self._rows.get()
        if all(is_told for _, _, is_told in rows):
            return
        rows = self._living(rows)
        silent = [row for row in rows if not row[2]][:most]
        if silent:
            wake()
        self._rows.set([(*row[:2], 1) if row in silent else row for row in rows])

    def _living(self, rows):
        dead = {
            member
            for member in {member for _, member, _ in rows} - {self._rows.domain.member}
            if not self._rows.domain.has_member(member)
        }
        return [row for row in rows if row[1] not in dead]


def _rebuild_waiters(rows):
    made = _Waiters.__new__(_Waiters)
    made._rows = rows
    return made


class Condition:
    """A condition over a Lock or an RLock of this package.

    Who waits holds the gate from before it releases the lock until it is counted as a waiter,
    and who notifies takes the gate: no notification falls between the two. notify(n) wakes n.
    """

    def __init__(self, lock=None, *, ctx=None):
        lock = RLock() if lock is None else lock
        if not hasattr(lock, "_acquire_restore"):
            raise TypeError(f"a Lock or RLock of tenon's is needed, not {type(lock).__name__}")
        domain = _domain.default()
        gate, core = _core.Lock.create(domain), _core.Condition.create(domain)
        self._begin(lock, gate, core, _Waiters(_MOST_WAITERS))

    def _begin(self, lock, gate, core, waiters):
        self._lock = lock
        self._gate = gate
        self._core = core
        self._waiters = waiters
        self.acquire = lock.acquire
        self.release = lock.release

    def __reduce__(self):
        places = place_of(self._gate), place_of(self._core)
        return _rebuild_condition, (type(self), self._lock, *places, self._waiters)

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *exception):
        return self._lock.__exit__(*exception)

    def wait(self, timeout=None):
        if not self._lock._is_mine():
            raise AssertionError("must acquire() condition before using wait()")
        deadline = deadline_of(timeout)
        self._gate.acquire()
        try:
            ticket = self._waiters.enter()
            saved = self._lock._release_save()
        except BaseException:
            self._gate.release()
            raise
        try:
            self._wait_for(ticket, deadline)
        finally:
            was_told = self._waiters.leave(ticket)
            self._gate.release()
            self._lock._acquire_restore(saved)
        return was_told

    def _wait_for(self, ticket, deadline):
        while not self._waiters.is_told(ticket):
            remaining = remaining_of(deadline)
            if remaining is not None and remaining <= 0:
                return
            try:
                self._core.wait(self._gate, remaining)
            except _core.PeerDied:
                continue  # a thread of this process may still notify

    def wait_for(self, predicate, timeout=None):
        deadline = deadline_of(timeout)
        result = predicate()
        while not result:
            remaining = remaining_of(deadline)
            if remaining is not None and remaining <= 0:
                break
            self.wait(remaining)
            result = predicate()
        return result

    def notify(self, n=1):
        self._tell(n)

    def notify_all(self):
        self._tell(None)

    def _tell(self, most):
        if not self._lock._is_mine():
            raise AssertionError("lock is not owned")
        self._gate.acquire()
        try:
            self._waiters.tell(most, self._core.broadcast)
        finally:
            self._gate.release()

    def __repr__(self):
        return f"<{type(self).__name__}({self._lock!r})>"


def _rebuild_condition(kind, lock, gate, place, waiters):
    made = kind.__new__(kind)
    made._begin(lock, opened(_core.Lock, gate), opened(_core.Condition, place), waiters)
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
        condition = Condition()
        if parties > _MOST_WAITERS:
            condition._waiters = _Waiters(parties)
        self.__setstate__((parties, action, timeout, condition, cells))

    def __setstate__(self, state):
        self._parties, self._action, self._timeout, self._cond, self._cells = state
        self._is_seated = False
        util.register_after_fork(self, Barrier._reset)

    def __getstate__(self):
        return self._parties, self._action, self._timeout, self._cond, self._cells

    def __reduce__(self):
        return _rebuild_barrier, (type(self), self.__getstate__())

    def _reset(self):
        self._is_seated = False

    def wait(self, timeout=None):
        self._take_seat()
        return super().wait(timeout)

    def _take_seat(self):
        if self._is_seated:
            return
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
        return self._cells[0]

    @_state.setter
    def _state(self, value):
        self._cells[0] = value

    @property
    def _count(self):
        return self._cells[1]

    @_count.setter
    def _count(self, value):
        self._cells[1] = value

    def _wait(self, timeout):
        deadline = deadline_of(timeout)
        while self._state == 0:
            remaining = remaining_of(deadline)
            if remaining is not None and remaining <= 0:
                break
            slice_s = self._LOOK_S if remaining is None else min(remaining, self._LOOK_S)
            if not self._cond.wait(slice_s):
                self._find_dead()
        super()._wait(0)


def _leave_seat(cells, place):
    cells[place] = 0


def _rebuild_barrier(kind, state):
    made = kind.__new__(kind)
    made.__setstate__(state)
    made._take_seat()
    return made
