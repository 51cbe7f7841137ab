# SPDX-License-Identifier: Apache-2.0
"""What waits in this process for room in a queue without a bound: who brings it there, and its count."""

import threading

from .. import _core, _cpython
from .synchronize import SEM_VALUE_MAX


class Feeder:
    """The thread that brings into a queue without a bound what it had no room for.

    The thread ends when all is there. It holds no reference of the Queue, which may be
    collected before. `after` is called when it ends.
    """

    def __init__(self, joins, after):
        self.joins, self._after = joins, after
        self._lock = threading.Lock()  # who starts a thread may do so while the last one ends
        self._thread = None
        self._backlog = None  # while there is a thread
        self._flush_at_exit = None

    def start(self, backlog):
        thread = threading.Thread(
            target=self._feed, args=(backlog,), name="QueueFeederThread", daemon=True
        )
        with self._lock:
            self._thread, self._backlog = thread, backlog
            if self._flush_at_exit is None:
                self._flush_at_exit = _cpython.Finalize(None, self.flush, exitpriority=-5)
            try:
                thread.start()
            except BaseException:
                # What was to be put is not; if this thread runs all the same, it is.
                backlog.no_feeder()
                raise

    def close(self):
        """Give up what waits, if the consumers are dead."""
        with self._lock:
            if self._backlog is not None:
                self._backlog.close()

    def flush(self):
        """Wait until all is there, unless nobody wants that."""
        self.close()
        with self._lock:  # the thread forgets both at its end
            thread, backlog = self._thread, self._backlog
        if not self.joins or thread is None:
            return
        if thread.ident is None:
            backlog.feed()  # no thread could be started, or it has hardly begun
        if thread.ident is not None:
            thread.join()

    def _feed(self, backlog):
        backlog.feed()
        with self._lock:
            if self._thread is threading.current_thread():
                self._flush_at_exit.cancel()
                self._thread = self._backlog = self._flush_at_exit = None
        if self._after is not None:
            self._after()


class Debts:
    """A number of which each process owes a part, which ends with it."""

    def __init__(self, core):
        self.core = core  # a permit is acquired for each that is owed

    @classmethod
    def create(cls, domain):
        permits = _core.Semaphore.create(
            domain, permits=SEM_VALUE_MAX, owned=True, any_releases=True
        )
        return cls(permits)

    def owe(self):
        self.core.acquire(0)

    def pay(self):
        """ValueError: nobody owes any."""
        self.core.release()

    def count(self):
        return SEM_VALUE_MAX - self.core.get()
