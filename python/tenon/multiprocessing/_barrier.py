# SPDX-License-Identifier: Apache-2.0
"""Barriers between processes, which break when a process that has one dies."""

import errno
import os
import threading

from .. import _core, _cpython, _domain
from .._cpython import process
from . import _sent
from ._cells import Cells
from ._objects import deadline_of, lives, remaining_of
from .synchronize import MOST_WAITERS, Condition, RLock


class Barrier(threading.Barrier):
    """threading.Barrier between processes.

    The barrier breaks when a process dies that was sent it or has waited at it. A forked child counts
    as sent what its Process refers to; it may not use an object that it merely inherited.
    """

    __module__ = "tenon.multiprocessing.synchronize"  # where users find it

    # The cells: state and count; then, for each process that has the barrier, its member number and
    # how many of its threads are in wait(); then, for each child that is sent the barrier and has not
    # opened it yet, the member number of the sender and the child. The count is the sum of the threads.
    _MEMBERS = 2
    _PLACES = 1024
    _CHILDREN = _MEMBERS + 2 * _PLACES
    _END = _CHILDREN + 2 * _PLACES
    _UNNAMED, _ARRIVED = 0, -1  # values for such a child; any other is from _name_of()
    _CHECK_S = 0.5  # how often a waiter checks whether all are alive

    def __init__(self, parties, action=None, timeout=None, *, ctx=None):
        if parties < 1:
            raise ValueError("parties must be > 0")
        cells = Cells(self._END)
        condition = Condition.__new__(Condition)
        condition._make(RLock(), max(parties, MOST_WAITERS))
        self._hold(parties, action, timeout, condition, cells)

    def _hold(self, parties, action, timeout, condition, cells):
        self._parties, self._action, self._timeout = parties, action, timeout
        self._cond, self._cells = condition, cells
        self._view = cells.view
        self._seated = None  # the member number of the place; a forked child has another one
        _sent.note(self)
        _cpython.register_after_fork(self, Barrier._arrive_forked)

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
                    self._check_for_dead()
                    break
                except threading.BrokenBarrierError:
                    pass  # the place of one dead process is free now
            super().reset()

    def _take_place(self):
        member = self._cells.domain.member
        with self._cond:
            if self._seated == member:
                return  # another thread of this process did it
            self._place = place = self._free_place()
            self._cells[place + 1] = 0
            self._cells[place] = member
            self._seated = member
            self._free_place_at_exit()

    def _free_place(self):
        while True:
            members = self._view[self._MEMBERS : self._CHILDREN].tolist()[::2]
            if 0 in members:
                return self._MEMBERS + 2 * members.index(0)
            try:
                self._check_for_dead()
            except threading.BrokenBarrierError:
                continue  # the place of a dead process is free now
            raise OSError(errno.ENOSPC, f"{self._PLACES} processes have the barrier already")

    def _free_place_at_exit(self):
        """Free the place of this process before it leaves the domain."""
        place = self._cells, self._place, self._seated
        _cpython.Finalize(self, _leave_place, place, exitpriority=_domain.LAST + 1)

    # The process that starts a child reserves a place for it. Until the child has a place of its own,
    # by which others see its death, they check its pid. Each step is one store.

    def _expect(self):
        """Reserve a place for a child that is sent the barrier; None if there is none."""
        try:
            with self._cond:
                for place in range(self._CHILDREN, self._END, 2):
                    if self._cells[place] == 0:
                        self._cells[place + 1] = self._UNNAMED
                        self._cells[place] = self._cells.domain.member
                        return place
        except (_core.Error, ValueError):
            pass  # the barrier is closed here; a child that uses it gets the error
        return None

    def _name_child(self, place, pid):
        """Store the pid of the child at this place, which has started."""
        with self._cond:
            if self._cells[place + 1] == self._ARRIVED:
                self._cells[place] = 0
            else:
                self._cells[place + 1] = _name_of(pid)

    def _forget_child(self, place):
        """Free the place: no child has started."""
        self._cells[place] = 0

    def _arrive(self, place):
        """In the child, which has a place of its own now. Its starter frees the other in _name_child()."""
        with self._cond:
            if self._cells[place + 1] == self._UNNAMED:
                self._cells[place + 1] = self._ARRIVED
            elif self._cells[place + 1] != self._ARRIVED:
                self._cells[place] = 0

    def _arrive_forked(self):
        if self._seated is not None and self._seated == self._cells.domain.member:
            # A child of a fork server unpickles first, and its finalizers are cleared afterwards.
            self._free_place_at_exit()
        parcel = getattr(process.current_process(), "_parcel", None)
        place = parcel and parcel.places.pop(self, None)
        if place is not None:
            self._take_place()
            self._arrive(place)

    def _check_for_dead(self):
        """Break the barrier if a process that has it, or was sent it, died. pre: the lock is held"""
        has_member = self._cells.domain.has_member
        cells = self._view.tolist()
        for place in range(self._MEMBERS, self._CHILDREN, 2):
            if cells[place] != 0 and not has_member(cells[place]):
                self._remove_dead(place, cells[place])
        for place in range(self._CHILDREN, self._END, 2):
            sender, child = cells[place : place + 2]
            if sender == 0:
                continue
            if child in (self._UNNAMED, self._ARRIVED):
                if not has_member(sender):
                    self._remove_dead(place, sender)
            elif not _may_live(child):
                self._remove_dead(place, sender)

    def _remove_dead(self, place, member):
        # A process that leaves normally frees its place first, without the lock. No process takes a
        # place without the lock, so a place that still has this number belongs to a dead process.
        if self._cells[place] != member:
            return
        self._break()
        if place < self._CHILDREN:
            self._cells[place + 1] = 0
            self._view[1] = sum(self._view[self._MEMBERS + 1 : self._CHILDREN : 2])
        self._cells[place] = 0  # last: if this process is killed earlier, another does it again
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
        # If the process is killed between the two stores, _remove_dead() computes the sum again.
        self._view[self._place + 1] += change
        self._view[1] += change

    def _enter(self, deadline):
        """Wait until all threads of the last round have left."""
        while self._view[0] in (1, -1):
            if not self._cond.wait(self._CHECK_S):
                self._check_for_dead()
                if remaining_of(deadline) == 0:
                    self._break()
        if self._view[0] < 0:
            raise threading.BrokenBarrierError

    def _wait(self, deadline):
        while self._view[0] == 0:
            remaining = remaining_of(deadline)
            if remaining is not None and remaining <= 0:
                break
            slice_s = self._CHECK_S if remaining is None else min(remaining, self._CHECK_S)
            if not self._cond.wait(slice_s):
                self._check_for_dead()
        if self._view[0] == 0:
            self._break()
        if self._view[0] != 1:
            raise threading.BrokenBarrierError


def _leave_place(cells, place, member):
    # Otherwise another process has the place, or a thread of this process still waits.
    if cells[place] == member and cells[place + 1] == 0:
        cells[place] = 0


_PID_BITS = 22  # a pid of Linux is below 2^22


def _pid_namespace():
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _name_of(pid):
    """A number for a process: its pid, and the pid namespace in which it has that pid."""
    return _pid_namespace() << _PID_BITS | pid


def _may_live(name):
    """False: the process has ended. In another pid namespace, this cannot be known, so it is True."""
    if name >> _PID_BITS != _pid_namespace():
        return True
    try:
        return lives(name & (1 << _PID_BITS) - 1)
    except OSError:
        return True
