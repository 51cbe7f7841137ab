# SPDX-License-Identifier: Apache-2.0
"""Locks and the like, which a killed process cannot keep.

They behave as the standard library's, except in this: what a process holds comes back when it
ends, however that ends. A Lock is therefore released by the process that acquired it (any
thread of it). A death ends no wait: a thread of this process may end it just as well.
"""

import os
import threading
import time
import weakref
from multiprocessing import context as _context
from multiprocessing import process as _process
from multiprocessing import util

from .. import _core, _domain

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
SEM_VALUE_MAX = _MOST_PERMITS


def keep_for_child(core):
    """An object ends with its last handle: keep ours until the child that starts is over."""
    starting = _context.get_spawning_popen()
    if starting is not None:
        if not hasattr(starting, "kept"):
            starting.kept = []
        starting.kept.append(core)
    return core


def has_starting(core):
    """Whether a child of this process that was given it may not have opened it yet."""
    children = [child._popen for child in list(_process._children)]
    return any(core in getattr(popen, "kept", ()) and popen.poll() is None for popen in children)


def place_of(core):
    """What opens it in another process."""
    keep_for_child(core)
    return core.domain.name, core.id


def _opened(kind, place):
    name, number = place
    return kind.open(_domain.named(name), number)


def _deadline(timeout):
    return None if timeout is None else time.monotonic() + max(timeout, 0)


def _remaining(deadline):
    return None if deadline is None else max(deadline - time.monotonic(), 0)


def _wait_on(wait, timeout):
    """Call `wait` with the seconds that are left until it is not a death that ends it.

    A forked child has what its parent has, so who dies may never have known of what is waited
    for; and a thread of this process may still end the wait.
    """
    deadline = _deadline(timeout)
    while True:
        try:
            return wait(_remaining(deadline))
        except _core.PeerDied:
            continue


_resets = weakref.WeakSet()  # objects with a _reset() for a forked child


def reset_in_child(thing):
    """Have thing._reset() called in forked children."""
    _resets.add(thing)


def _reset_all():
    for thing in list(_resets):
        thing._reset()


os.register_at_fork(after_in_child=_reset_all)


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

    _owned = False

    def __init__(self, value=1, *, ctx=None):
        if not 0 <= value <= _MOST_PERMITS:
            raise ValueError(f"a semaphore of {value} permits")
        self._begin(
            _core.Semaphore.create(_domain.default(), permits=value, owned=self._owned), value
        )

    def _begin(self, core, value):
        self._core = core
        self._most = value
        self._holder = None
        reset_in_child(self)

    def _reset(self):
        self._holder = None

    def __reduce__(self):
        return _rebuild_semaphore, (type(self), place_of(self._core), self._most)

    def acquire(self, block=True, timeout=None):
        if not block:
            timeout = 0
        return self._take(timeout)

    def _take(self, timeout):
        return _wait_on(self._core.acquire, timeout)

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


class Lock(Semaphore):
    """A lock of a process, which any of its threads may release."""

    _owned = True

    def __init__(self, *, ctx=None):
        super().__init__(1, ctx=ctx)

    def _take(self, timeout):
        taken = super()._take(timeout)
        if taken:
            self._holder = threading.get_ident()
        return taken

    def release(self):
        holder, self._holder = self._holder, None
        try:
            self._core.release()
        except BaseException as error:
            self._holder = holder
            if isinstance(error, _core.Invalid):
                raise ValueError("semaphore or lock released too many times") from error
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
    made._begin(_opened(_core.Semaphore, place), most)
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
    made._begin(_opened(_core.Lock, place))
    return made


class _Cells:
    """Numbers in shared memory, behind somebody's lock."""

    def __init__(self, count):
        self._hold(_domain.default().zeros((count,), "int64"))

    def _hold(self, tensor):
        self._tensor = tensor
        self._view = memoryview(tensor)
        self.domain = tensor.domain

    def __getitem__(self, index):
        return self._view[index]

    def __setitem__(self, index, value):
        self._view[index] = value

    def __reduce__(self):
        return _rebuild_cells, (keep_for_child(self._tensor),)


def _rebuild_cells(tensor):
    made = _Cells.__new__(_Cells)
    made._hold(tensor)
    return made


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


class BoundedSemaphore(_Acquired):
    """Permits that come back when the process that has them ends.

    A release by a process that has none gives back one of another's. Cells: how many processes
    have some, then for each its pid and how many.
    """

    _MOST_HOLDERS = 511
    _LOOK_S = 0.2  # a holder that is killed tells nobody

    def __init__(self, value=1, *, ctx=None):
        if not 0 <= value <= _MOST_PERMITS:
            raise ValueError(f"a semaphore of {value} permits")
        domain = _domain.default()
        gate, told = _core.Lock.create(domain), _core.Condition.create(domain)
        self._begin(gate, told, _Cells(1 + 2 * self._MOST_HOLDERS), value)

    def _begin(self, gate, told, cells, most):
        self._gate, self._told, self._cells, self._most = gate, told, cells, most

    def __reduce__(self):
        places = place_of(self._gate), place_of(self._told)
        return _rebuild_bounded, (type(self), *places, self._cells, self._most)

    def acquire(self, block=True, timeout=None):
        deadline = _deadline(timeout if block else 0)
        self._gate.acquire()
        try:
            while self.get_value() == 0 and not self._take_from_dead():
                remaining = _remaining(deadline)
                if remaining is not None and remaining <= 0:
                    return False
                slice_s = self._LOOK_S if remaining is None else min(remaining, self._LOOK_S)
                try:
                    self._told.wait(self._gate, slice_s)
                except _core.PeerDied:
                    pass  # the dead one's permits are free now
            self._add(os.getpid(), 1)
            return True
        finally:
            self._gate.release()

    def release(self):
        self._gate.acquire()
        try:
            holders = self._holders()
            if not holders:
                raise ValueError("semaphore or lock released too many times")
            me = os.getpid()
            self._add(me if me in holders else next(iter(holders)), -1)
            self._told.signal()
        finally:
            self._gate.release()

    def get_value(self):
        return self._most - sum(self._holders().values())

    def locked(self):
        """Whether no permit is free."""
        return self.get_value() == 0

    def _holders(self):
        return {
            self._cells[1 + 2 * row]: self._cells[2 + 2 * row] for row in range(self._cells[0])
        }

    def _add(self, pid, count):
        holders = self._holders()
        holders[pid] = holders.get(pid, 0) + count
        holders = [(pid, held) for pid, held in holders.items() if held > 0]
        if len(holders) > self._MOST_HOLDERS:
            raise RuntimeError(f"{self._MOST_HOLDERS} processes hold this semaphore already")
        for row, (pid, held) in enumerate(holders):
            self._cells[1 + 2 * row], self._cells[2 + 2 * row] = pid, held
        self._cells[0] = len(holders)

    def _take_from_dead(self):
        """Whether a process died that had permits, which are free now."""
        dead = [pid for pid in self._holders() if pid != os.getpid() and not _is_alive(pid)]
        for pid in dead:
            self._add(pid, -_MOST_PERMITS)
        return bool(dead)

    def __repr__(self):
        return f"<{type(self).__name__}(value={self.get_value()}, maxvalue={self._most})>"


def _rebuild_bounded(kind, gate, told, cells, most):
    made = kind.__new__(kind)
    made._begin(_opened(_core.Lock, gate), _opened(_core.Condition, told), cells, most)
    return made


class _Waiters:
    """Who waits for a condition, in shared memory, under its gate.

    Cells: how many, the next ticket, then for each its ticket, its pid, whether it was told.
    """

    _COUNT, _NEXT, _FIRST = range(3)
    _WIDTH = 3
    _MOST = 340

    def __init__(self):
        self._cells = _Cells(self._FIRST + self._WIDTH * self._MOST)

    def __reduce__(self):
        return _rebuild_waiters, (self._cells,)

    def _rows(self):
        return range(self._cells[self._COUNT])

    def _at(self, row):
        return self._FIRST + self._WIDTH * row

    def _row_of(self, ticket):
        for row in self._rows():
            if self._cells[self._at(row)] == ticket:
                return row
        return None

    def enter(self):
        """Returns the ticket of a new waiter."""
        if self._cells[self._COUNT] == self._MOST:
            self._forget_dead()
        row, ticket = self._cells[self._COUNT], self._cells[self._NEXT]
        if row == self._MOST:
            raise RuntimeError(f"{self._MOST} threads wait for this condition already")
        at = self._at(row)
        self._cells[at], self._cells[at + 1], self._cells[at + 2] = ticket, os.getpid(), 0
        self._cells[self._NEXT] = ticket + 1
        self._cells[self._COUNT] = row + 1
        return ticket

    def leave(self, ticket):
        """Returns whether it was told."""
        row = self._row_of(ticket)
        return row is not None and self._remove(row)

    def is_told(self, ticket):
        row = self._row_of(ticket)
        return row is None or self._cells[self._at(row) + 2] != 0

    def tell(self, most):
        """Tell up to `most` living waiters, the oldest first; None: all."""
        self._forget_dead()
        silent = [row for row in self._rows() if not self._cells[self._at(row) + 2]]
        silent.sort(key=lambda row: self._cells[self._at(row)])
        for row in silent[:most]:
            self._cells[self._at(row) + 2] = 1
        return bool(silent)

    def _forget_dead(self):
        alive = {os.getpid(): True}
        for row in reversed(self._rows()):
            pid = self._cells[self._at(row) + 1]
            if pid not in alive:
                alive[pid] = _is_alive(pid)
            if not alive[pid]:
                self._remove(row)

    def _remove(self, row):
        last = self._cells[self._COUNT] - 1
        at, end = self._at(row), self._at(last)
        was_told = self._cells[at + 2] != 0
        for i in range(self._WIDTH):
            self._cells[at + i] = self._cells[end + i]
        self._cells[self._COUNT] = last
        return was_told


def _rebuild_waiters(cells):
    made = _Waiters.__new__(_Waiters)
    made._cells = cells
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
        self._begin(
            lock, _core.Lock.create(domain), _core.Condition.create(domain), _Waiters()
        )

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
        deadline = _deadline(timeout)
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
            remaining = _remaining(deadline)
            if remaining is not None and remaining <= 0:
                return
            try:
                self._core.wait(self._gate, remaining)
            except _core.PeerDied:
                continue  # a thread of this process may still notify

    def wait_for(self, predicate, timeout=None):
        deadline = _deadline(timeout)
        result = predicate()
        while not result:
            remaining = _remaining(deadline)
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
            if self._waiters.tell(most):
                self._core.broadcast()
        finally:
            self._gate.release()

    def __repr__(self):
        return f"<{type(self).__name__}({self._lock!r})>"


def _rebuild_condition(kind, lock, gate, place, waiters):
    made = kind.__new__(kind)
    made._begin(lock, _opened(_core.Lock, gate), _opened(_core.Condition, place), waiters)
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
        return _wait_on(self._core.wait, timeout)

    def __repr__(self):
        return f"<{type(self).__name__} at {id(self):#x} {'set' if self.is_set() else 'unset'}>"


def _rebuild_event(kind, place):
    made = kind.__new__(kind)
    made._core = _opened(_core.Event, place)
    return made


class Barrier(threading.Barrier):
    """threading.Barrier between processes. A process that has it and dies breaks it."""

    # Cells: state, count, then the pid of each process that has it, by its seat.
    _PIDS = 2
    _SEATS = 1024
    _LOOK_S = 0.5  # how often a waiter looks whether all are alive

    def __init__(self, parties, action=None, timeout=None, *, ctx=None):
        if parties < 1:
            raise ValueError("parties must be > 0")
        cells = _Cells(self._PIDS + self._SEATS)
        self.__setstate__((parties, action, timeout, Condition(), cells))

    def __setstate__(self, state):
        self._parties, self._action, self._timeout, self._cond, self._cells = state
        self._take_seat()
        util.register_after_fork(self, Barrier._take_seat)

    def __getstate__(self):
        return self._parties, self._action, self._timeout, self._cond, self._cells

    def __reduce__(self):
        return _rebuild_barrier, (type(self), self.__getstate__())

    def _take_seat(self):
        place = self._PIDS + self._cells.domain.seat
        self._cells[place] = os.getpid()
        util.Finalize(self, _leave_seat, (self._cells, place), exitpriority=_domain.LAST + 1)

    def _find_dead(self):
        """Break it, if one that has it died."""
        for place in range(self._PIDS, self._PIDS + self._SEATS):
            pid = self._cells[place]
            if pid != 0 and not _is_alive(pid):
                self._cells[place] = 0
                self._break()
                raise threading.BrokenBarrierError(f"process {pid}, which had it, died")

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
        deadline = _deadline(timeout)
        while self._state == 0:
            remaining = _remaining(deadline)
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
    return made
