# SPDX-License-Identifier: Apache-2.0
"""How many objects of a queue are unfinished: the count that JoinableQueue.join() waits for."""

from .. import _core
from ._backlog import SharedCount
from .synchronize import Event, Lock, Semaphore


class Unfinished:
    """The number of unfinished objects: those in the queue, and those in `held`.

    `held` counts the objects that a process has got without calling task_done(), and those in its
    backlog. A process's part of `held` ends with the process. A reader reads the count of the queue
    first: an object is added to `held` before it leaves the queue, so no object is missed.
    """

    _CHECK_S = 0.2  # how often join() checks the count: a killed process wakes nobody

    def __init__(self, core):
        self._core = core
        self.held = SharedCount.create(core.domain)
        # Calls of task_done() for objects that no process has got yet.
        self._early, self._early_lock = Semaphore(0), Lock()
        self._all_done = Event()

    def add(self):
        self.held.add()

    def remove(self):
        self.held.remove()
        self.wake_if_done()

    def wake_if_done(self):
        """Wake the threads in join() if nothing is unfinished."""
        if self.count() <= 0:
            self._all_done.set()

    def wake_if_done_at_end(self):
        """The same when a feeder ends. The queue or the domain may be closed by then."""
        try:
            self.wake_if_done()
        except (_core.Error, ValueError):
            pass  # closed

    def apply_early_task_done(self):
        """Apply a task_done() that was called before get()."""
        if self._early.acquire(False):
            self.remove()

    def note_early_task_done(self):
        """Keep a task_done() for an object that no process has got yet."""
        with self._early_lock:
            if self.count() <= 0:
                raise ValueError("task_done() called too many times")
            self._early.release()
        self.wake_if_done()

    def count(self):
        waiting = self._core.count()
        return waiting + self.held.count() - self._early.get_value()

    def join(self):
        while self.count() > 0:
            self._all_done.clear()
            if self.count() > 0:
                self._all_done.wait(self._CHECK_S)
