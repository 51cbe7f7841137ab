# SPDX-License-Identifier: Apache-2.0
"""The descriptor by which a process learns of messages, shared by its threads and event loops.

A domain has one descriptor for all queues and channels that this process watches. Who finds it readable calls
Bell.ring(), which makes it unreadable and tells everybody who waits, each of whom then tries its queue.
"""

from __future__ import annotations

import os
import threading
import weakref

from . import _core, _cpython

TYPE_CHECKING = False  # as typing has it; to import it, or asyncio, takes long
if TYPE_CHECKING:
    import asyncio
    from typing import Callable, Dict, List


class Bell:
    """The descriptor of one domain, and who is told of it."""

    def __init__(self, domain: _core.Domain) -> None:
        self._domain = weakref.ref(domain)
        self.forget()

    def forget(self) -> None:
        """Forget everybody: a forked child has a descriptor and loops of its own."""
        self._lock = threading.Lock()
        self._told: List[Callable[[], object]] = []
        self._loops: Dict[asyncio.AbstractEventLoop, List[int]] = {}  # loop: [descriptor, how many wait]

    def ring(self) -> None:
        """Make the descriptor unreadable, and tell everybody. Raises Closed if this process has left."""
        domain = self._domain()
        try:
            if domain is not None:
                domain.poll_clear()
        finally:
            self.tell_all()

    def tell_all(self) -> None:
        with self._lock:
            told = self._told.copy()
        for tell in told:
            tell()

    def add(self, tell: Callable[[], object]) -> None:
        with self._lock:
            self._told.append(tell)

    def enter(self, loop: asyncio.AbstractEventLoop, tell: Callable[[], object]) -> None:
        """Let a loop that runs in this thread look at the descriptor, until leave()."""
        domain = self._domain()
        assert domain is not None
        if loop not in self._loops:
            copy = os.dup(domain.poll_fd())  # the domain may close its own while the loop has it
            try:
                loop.add_reader(copy, self._ring_if_joined)
            except BaseException:
                os.close(copy)
                raise
            self._loops[loop] = [copy, 0]
        self._loops[loop][1] += 1
        self.add(tell)

    def leave(self, loop: asyncio.AbstractEventLoop, tell: Callable[[], object]) -> None:
        entry = self._loops.get(loop)
        if entry is None:
            return  # in a forked child
        with self._lock:
            self._told.remove(tell)
        entry[1] -= 1
        if entry[1] == 0:
            del self._loops[loop]
            loop.remove_reader(entry[0])
            os.close(entry[0])

    def _ring_if_joined(self) -> None:
        try:
            self.ring()
        except _core.Error:
            pass  # those who wait are told, and find out by themselves


_bells: weakref.WeakKeyDictionary[_core.Domain, Bell] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_cpython.renew_in_child(_lock)
_forgets_in_child = False


def of(domain: _core.Domain) -> Bell:
    global _forgets_in_child
    with _lock:
        if not _forgets_in_child:  # without bells a forked child runs no Python code
            os.register_at_fork(after_in_child=_forget_in_child)
            _forgets_in_child = True
        if domain not in _bells:
            _bells[domain] = Bell(domain)
        return _bells[domain]


def _forget_in_child() -> None:
    for bell in list(_bells.values()):
        bell.forget()
