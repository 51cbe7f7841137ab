# SPDX-License-Identifier: Apache-2.0
"""Locks and the like, which a killed process cannot keep.

They behave as the standard library's, except in this: what a process holds comes back when it
ends, however that ends. A death ends no wait: a thread of this process may end it just as well.
Objects may be pickled for any process, not only for a child that starts.
"""

import errno
import operator
import os
import threading
from multiprocessing import process, util

from .. import _core, _domain
from . import _sent
from ._cells import Cells
from ._objects import deadline_of, keep_for_child, lives, remaining_of, wait_on

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "Condition",
    "Event",
    "Lock",
    "RLock",
    "Semaphore",
]

_MOST_WAITERS = 340  # of a condition that is no barrier's
SEM_VALUE_MAX = 2**31 - 1
RECURSIVE_MUTEX, SEMAPHORE = range(2)  # kinds of a SemLock

# What a guard is: as guard.h has it.
_SIGNALS, _PERMITS, _LOCK, _RLOCK = range(4)


class SemLock(_core.Guard):
    """What locks and semaphores have in common. release() beyond `maxvalue` raises.

    Permits come back with the end of the process that acquired them if there are `maxvalue` of
    them in the beginning. Otherwise they are signals, which belong to nobody.
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
        """Whether acquire() of a process that does not have it would wait now."""
        return self._semlock._is_zero()


class _Semlock:
    """A lock or semaphore as `_multiprocessing.SemLock`, whatever its subclass overrides."""

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
    """Permits that any process may give, as signals: those of a process that died stay away."""

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
    """Permits that come back when the process that has them ends.

    A release by a process that has none gives back one of another's.
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
    """A lock of a thread, which may acquire it again."""

    def __init__(self, *, ctx=None):
        super().__init__(RECURSIVE_MUTEX, 1, 1, ctx=ctx)

    def __repr__(self):
        owner, count = _owner(self)
        return f"<{type(self).__name__}({owner}, {count})>"


def _owner(lock):
    """Who has it, and how often, as the standard library's repr() says that."""
    try:
        if lock._semlock._get_value() == 1:
            return "None", 0  # another process may have released what this thread acquired
        if lock._is_mine():
            return _this_thread(), lock._count()
        return "SomeOtherThread" if lock._count() > 0 else "SomeOtherProcess", "nonzero"
    except Exception:
        return "unknown", "unknown"


def _table(most):
    """Memory for so many that wait, as condition.c wants it."""
    return _domain.default().zeros((2 + 2 * most,), "int64")


class Condition(_core.GuardCondition):
    """A condition over a lock. notify(n) wakes n.

    wait() and notify() ask the lock's _semlock who has it, as the standard library's do.
    """

    def __init__(self, lock=None, *, ctx=None):
        self._make(lock or RLock(), _MOST_WAITERS)

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


class Barrier(threading.Barrier):
    """threading.Barrier between processes.

    It breaks when a process dies that was sent it, or has waited at it. A forked child is sent
    what its Process refers to; what it only inherited, it may have nothing to do with.
    """

    # Cells: state, count; then, for each process that has it, its member and how many of its
    # threads are in wait(); then, for each child that is sent it and does not have it yet, the
    # member that sends it, and who the child is. The count is the sum of those threads.
    _MEMBERS = 2
    _PLACES = 1024
    _CHILDREN = _MEMBERS + 2 * _PLACES
    _END = _CHILDREN + 2 * _PLACES
    _UNNAMED, _ARRIVED = 0, -1  # of such a child; else what _name_of() says
    _LOOK_S = 0.5  # how often a waiter looks whether all are alive

    def __init__(self, parties, action=None, timeout=None, *, ctx=None):
        if parties < 1:
            raise ValueError("parties must be > 0")
        cells = Cells(self._END)
        condition = Condition.__new__(Condition)
        condition._make(RLock(), max(parties, _MOST_WAITERS))
        self._hold(parties, action, timeout, condition, cells)

    def _hold(self, parties, action, timeout, condition, cells):
        self._parties, self._action, self._timeout = parties, action, timeout
        self._cond, self._cells = condition, cells
        self._view = cells.view
        self._seated = None  # the member that has taken a place: a forked child is another one
        _sent.note(self)
        util.register_after_fork(self, Barrier._arrive_forked)

    def __getstate__(self):
        state = self._parties, self._action, self._timeout, self._cond, self._cells
        return (*state, _sent.place_of(self))

    def __setstate__(self, state):
        *state, place = state
        self._hold(*state)
        self._take_place()
        if place is not None:
            self._arrive(place)

    def wait(self, timeout=None):
        if self._seated != self._cells.domain.member:
            self._take_place()
        deadline = deadline_of(self._timeout if timeout is None else timeout)
        with self._cond:
            self._enter(deadline)
            index = self._count
            self._add_waiting(1)
            try:
                if index + 1 == self._parties:
                    self._release()
                else:
                    self._wait(deadline)
                return index
            finally:
                self._add_waiting(-1)
                self._exit()

    def reset(self):
        with self._cond:
            while True:
                try:
                    self._find_dead()
                    break
                except threading.BrokenBarrierError:
                    pass  # one of the dead is buried
            super().reset()

    def _take_place(self):
        member = self._cells.domain.member
        with self._cond:
            if self._seated == member:
                return  # another thread of this process was quicker
            self._place = place = self._free_place()
            self._cells[place + 1] = 0
            self._cells[place] = member
            self._seated = member
            self._leave_in_the_end()

    def _free_place(self):
        while True:
            members = self._view[self._MEMBERS : self._CHILDREN].tolist()[::2]
            if 0 in members:
                return self._MEMBERS + 2 * members.index(0)
            try:
                self._find_dead()
            except threading.BrokenBarrierError:
                continue  # that place is free
            raise OSError(errno.ENOSPC, f"{self._PLACES} processes have the barrier already")

    def _leave_in_the_end(self):
        """Have this process give its place back before it leaves the domain."""
        place = self._cells, self._place, self._seated
        util.Finalize(self, _leave_place, place, exitpriority=_domain.LAST + 1)

    # A child is expected by who starts it, until it has a place of its own, by which others learn
    # of its death. Until then they look at its pid. Each step is one store.

    def _expect(self):
        """A place for a child that is to be sent it; None if there is none."""
        try:
            with self._cond:
                for place in range(self._CHILDREN, self._END, 2):
                    if self._cells[place] == 0:
                        self._cells[place + 1] = self._UNNAMED
                        self._cells[place] = self._cells.domain.member
                        return place
        except (_core.Error, ValueError):
            pass  # it cannot be used here: a child that uses it is told so
        return None

    def _name_child(self, place, pid):
        """The child at this place has started."""
        with self._cond:
            if self._cells[place + 1] == self._ARRIVED:
                self._cells[place] = 0
            else:
                self._cells[place + 1] = _name_of(pid)

    def _forget_child(self, place):
        """No child has started for this place."""
        self._cells[place] = 0

    def _arrive(self, place):
        """In the child, which has a seat now. Who starts it gives the place back in _name_child()."""
        with self._cond:
            if self._cells[place + 1] == self._UNNAMED:
                self._cells[place + 1] = self._ARRIVED
            elif self._cells[place + 1] != self._ARRIVED:
                self._cells[place] = 0

    def _arrive_forked(self):
        if self._seated is not None and self._seated == self._cells.domain.member:
            # A forkserver's child unpickles first, and is made to forget its finalizers then.
            self._leave_in_the_end()
        parcel = getattr(process.current_process(), "_parcel", None)
        place = parcel and parcel.places.pop(self, None)
        if place is not None:
            self._take_place()
            self._arrive(place)

    def _find_dead(self):
        """Break it, if one that has it, or was sent it, died. Called with the lock held."""
        has_member = self._cells.domain.has_member
        cells = self._view.tolist()
        for place in range(self._MEMBERS, self._CHILDREN, 2):
            if cells[place] != 0 and not has_member(cells[place]):
                self._bury(place, cells[place])
        for place in range(self._CHILDREN, self._END, 2):
            sender, child = cells[place : place + 2]
            if sender == 0:
                continue
            if child in (self._UNNAMED, self._ARRIVED):
                if not has_member(sender):
                    self._bury(place, sender)
            elif not _may_live(child):
                self._bury(place, sender)

    def _bury(self, place, member):
        # Who leaves in good order gives the place back before that, without the lock. Nobody
        # takes a place without the lock, so a place that still is this member's is a dead one's.
        if self._cells[place] != member:
            return
        self._break()
        if place < self._CHILDREN:
            self._cells[place + 1] = 0
            self._view[1] = sum(self._view[self._MEMBERS + 1 : self._CHILDREN : 2])
        self._cells[place] = 0  # last: who is killed before leaves the rest to others
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

    def _add_waiting(self, change):
        # Who is killed between the two stores is buried, and that sums up anew.
        self._view[self._place + 1] += change
        self._view[1] += change

    def _enter(self, deadline):
        """Wait until all of the last round have left."""
        while self._view[0] in (1, -1):
            if not self._cond.wait(self._LOOK_S):
                self._find_dead()
                if remaining_of(deadline) == 0:
                    self._break()
        if self._view[0] < 0:
            raise threading.BrokenBarrierError

    def _wait(self, deadline):
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


def _leave_place(cells, place, member):
    # Else it is another one's by now; or a thread of this process waits, which nobody will wake.
    if cells[place] == member and cells[place + 1] == 0:
        cells[place] = 0


_PID_BITS = 22  # a pid of Linux is below 2^22


def _pid_namespace():
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _name_of(pid):
    """A number for a process, for those who see it under this pid."""
    return _pid_namespace() << _PID_BITS | pid


def _may_live(name):
    """False: it has ended. Who is in another pid namespace cannot tell."""
    if name >> _PID_BITS != _pid_namespace():
        return True
    try:
        return lives(name & (1 << _PID_BITS) - 1)
    except OSError:
        return True


def __getattr__(name):
    """What else the standard library's module has."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from multiprocessing import synchronize as _standard

    return getattr(_standard, name)
