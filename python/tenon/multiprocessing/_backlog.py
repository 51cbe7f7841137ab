# SPDX-License-Identifier: Apache-2.0
"""The backlog of a queue without a bound: the thread that feeds the queue, and the count of what waits."""

import threading

from .. import _core, _cpython
from .synchronize import SEM_VALUE_MAX


class Feeder:
    """The thread that pushes the messages of a backlog into their queue.

    The thread ends when no message waits. It holds no reference to the Queue, so Python may collect
    the Queue earlier. The thread calls `after` when it ends.
    """

    def __init__(self, joins, after):
        self.joins, self._after = joins, after
        self._lock = threading.Lock()  # put() may start a thread while the last one ends
        self._thread = None
        self._backlog = None  # None: no thread runs
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
                # This removes the message, unless the thread runs in spite of the exception.
                backlog.no_feeder()
                raise

    def close(self):
        """Let the thread give up if the consumers are dead."""
        with self._lock:
            if self._backlog is not None:
                self._backlog.close()

    def flush(self):
        """Wait until no message waits, unless cancel_join_thread() was called."""
        self.close()
        with self._lock:  # the thread clears both when it ends
            thread, backlog = self._thread, self._backlog
        if not self.joins or thread is None:
            return
        if thread.ident is None:
            backlog.feed()  # no thread could be started, or it has not begun
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


class SharedCount:
    """A count to which each process adds a part. The part of a process ends with the process."""

    def __init__(self, core):
        self.core = core  # a semaphore; each unit is a permit that a process has acquired

    @classmethod
    def create(cls, domain):
        permits = _core.Semaphore.create(
            domain, permits=SEM_VALUE_MAX, owned=True, any_releases=True
        )
        return cls(permits)

    def add(self):
        self.core.acquire(0)

    def remove(self):
        """Subtract 1. Raises ValueError if the count is 0."""
        self.core.release()

    def count(self):
        return SEM_VALUE_MAX - self.core.get()
