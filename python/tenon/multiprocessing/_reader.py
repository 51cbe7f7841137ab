# SPDX-License-Identifier: Apache-2.0
"""What connection.wait() can wait for of a queue.

A domain has one descriptor for all of a process's queues. A thread, which is started with the
first queue that somebody waits for in this way, watches it, and keeps a pipe for each queue
that can be read while the queue has messages.
"""

import os
import select
import threading
import weakref

from .. import _core, _cpython
from ._objects import Living, reset_in_child


class _Watcher:
    """Of one domain."""

    def __init__(self, domain):
        self._domain = domain
        self._reset()
        reset_in_child(self)

    def _reset(self):
        self.lock = threading.Lock()
        self._readers = Living()
        self._thread = None

    def add(self, reader):
        with self.lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._watch, args=(self._domain.poll_fd(),), daemon=True
                )
                thread.puts_and_gets_nothing = True
                thread.start()
                self._thread = thread  # last: what fails before is tried again
            self._readers.add(reader)

    def _watch(self, descriptor):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while True:
            poll.poll()
            try:
                self._domain.poll_clear()
            except _core.Error:
                return  # this process has left the domain
            self._reclaim_all()

    def _reclaim_all(self):
        for reader in self._readers.all():
            reader.reclaim()


_watchers = weakref.WeakKeyDictionary()  # domain -> _Watcher
_lock = threading.Lock()
_cpython.renew_in_child(_lock)
_making = threading.Lock()  # of a pipe; its maker takes _lock too
_cpython.renew_in_child(_making)


def _watcher_of(domain):
    with _lock:
        if domain not in _watchers:
            _watchers[domain] = _Watcher(domain)
        return _watchers[domain]


class Reader:
    """The reading end of a queue."""

    def __init__(self, core):
        self._core = core
        self._pipe = None  # (reading end, writing end), of the process with this pid
        self._pid = None
        self._has_byte = False
        self._lock = threading.Lock()

    def fileno(self):
        """A descriptor that can be read while the queue has messages."""
        if self._pid != os.getpid():
            with _making:
                if self._pid != os.getpid():  # no other thread has made the pipe meanwhile
                    self._make_pipe()
        self.reclaim()
        return self._pipe[0]

    def _make_pipe(self):
        pipe = os.pipe()
        try:
            self._core.watch(True)
            _watcher_of(self._core.domain).add(self)
        except BaseException:
            _cpython.close_fds(*pipe)
            raise
        _cpython.Finalize(self, _cpython.close_fds, pipe)
        self._pipe, self._has_byte, self._lock = pipe, False, threading.Lock()
        self._pid = os.getpid()  # last: reclaim() uses the rest, and what fails is tried again

    def reclaim(self):
        """Let the pipe say what the queue is; after each message that was taken, too."""
        if self._pid != os.getpid():
            return
        with self._lock:
            try:
                has_messages = self._core.count() > 0
            except (_core.Error, ValueError):
                return  # closed
            if has_messages and not self._has_byte:
                os.write(self._pipe[1], b"1")
            elif self._has_byte and not has_messages:
                os.read(self._pipe[0], 1)
            self._has_byte = has_messages

    def poll(self, timeout=0):
        """Whether a message comes within `timeout` seconds."""
        try:
            _core.Queue.wait_any([self._core], timeout)
        except _core.TimedOut:
            return False
        return True

    def recv(self):
        try:
            return self._core.get()
        finally:
            self.reclaim()


class Readable:
    """A queue with a _reader, as users of the standard library's queues know it."""

    _made_reader = None

    @property
    def _reader(self):
        if self._made_reader is None:
            self._check()
            # One for all threads: get() reclaims no other one.
            return self.__dict__.setdefault("_made_reader", Reader(self._core))
        return self._made_reader
