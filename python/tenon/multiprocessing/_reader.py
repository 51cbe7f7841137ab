# SPDX-License-Identifier: Apache-2.0
"""The _reader of a queue, for connection.wait() and select().

A domain has one descriptor for all queues of a process. A thread watches it; the first fileno() of a
reader starts the thread. Each reader has a pipe, and the thread keeps a byte in the pipe while the
queue has messages.
"""

import os
import select
import threading
import weakref

from .. import _bell, _core, _cpython
from . import _pipe
from ._objects import Living, reset_in_child


class _Watcher:
    """The thread that watches one domain, and its readers."""

    def __init__(self, domain):
        self._domain = domain
        self._bell = _bell.of(domain)
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
                self._bell.add(self._update_all)
                self._thread = thread  # last: if a step above fails, the next call tries again
            self._readers.add(reader)

    def _watch(self, descriptor):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while True:
            poll.poll()
            try:
                self._bell.ring()
            except _core.Error:
                return  # this process has left the domain

    def all(self):
        return self._readers.all()

    def _update_all(self):
        for reader in self.all():
            reader.update()


_watchers = weakref.WeakKeyDictionary()  # domain -> _Watcher
_lock = threading.Lock()
_cpython.renew_in_child(_lock)
_making = threading.Lock()  # held while a pipe is made, which takes _lock too
_cpython.renew_in_child(_making)


def _watcher_of(domain):
    with _lock:
        if domain not in _watchers:
            _watchers[domain] = _Watcher(domain)
        return _watchers[domain]


def watch_again(core):
    """Have the readers of a queue told again: a coroutine that waited for it has ended the watch of this process."""
    watcher = _watchers.get(core.domain)
    for reader in () if watcher is None else watcher.all():
        reader.watch_again(core.id)


class Reader:
    """The reading end of a queue."""

    def __init__(self, core):
        self._core = core
        self._pipe = None  # (reading end, writing end), of the process with this pid
        self._pid = None
        self._has_byte = False
        self._lock = threading.Lock()

    def fileno(self):
        """A descriptor that is readable while the queue has messages."""
        if self._pid != os.getpid():
            with _making:
                if self._pid != os.getpid():  # no other thread has made the pipe meanwhile
                    self._make_pipe()
        self.update()
        return self._pipe[0]

    def _make_pipe(self):
        pipe = _pipe.make()
        try:
            _watcher_of(self._core.domain).add(self)  # first: a coroutine that ends its watch meanwhile finds it
            self._core.watch(True)
        except BaseException:
            _cpython.close_fds(*pipe)
            raise
        _cpython.Finalize(self, _cpython.close_fds, pipe)
        self._pipe, self._has_byte, self._lock = pipe, False, threading.Lock()
        self._pid = os.getpid()  # last: update() needs the fields above; if a step fails, the next call tries again

    def watch_again(self, number):
        """Watch the queue if it has this number."""
        try:
            if self._core.id == number:
                self._core.watch(True)
                self.update()
        except (_core.Error, ValueError):
            pass  # closed

    def update(self):
        """Put a byte into the pipe, or take it out, as the queue has messages or not."""
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

    def close(self):
        """Do nothing. The queue stays open: it is no pipe whose writers learn from this that nobody reads."""

    def recv(self):
        try:
            return self._core.get()
        finally:
            self.update()


class Readable:
    """A queue with a _reader, as the queues of the standard library have."""

    _made_reader = None

    @property
    def _reader(self):
        if self._made_reader is None:
            self._check()
            # One for all threads: get() updates only this one.
            return self.__dict__.setdefault("_made_reader", Reader(self._core))
        return self._made_reader
