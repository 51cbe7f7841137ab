# SPDX-License-Identifier: Apache-2.0
"""The parts that queues and locks have in common: pickling for children, waiting, and forks."""

import copyreg
import os
import time
import weakref

from .. import _core, _cpython, _domain


def keep_for_child(core):
    """Keep a handle until the child that starts has ended: an object ends with its last handle."""
    starting = _cpython.get_spawning_popen()
    if starting is not None:
        if not hasattr(starting, "kept"):
            starting.kept = []
        starting.kept.append(core)
    return core


def has_starting(core):
    """Whether a child of this process was given the object and may not have opened it yet."""
    popens = [_cpython.popen_of(child) for child in _cpython.children()]
    return any(
        (_cpython.is_forked(popen) or core in getattr(popen, "kept", ()))
        and popen.poll() is None
        for popen in popens
    )


def _reduce_core(core):
    """Pickle an object as its domain and its id."""
    keep_for_child(core)
    return _open_core, (type(core), core.domain.name, core.id)


def _open_core(kind, name, number):
    return kind.open(_domain.named(name), number)


# Classes of this package pickle their attributes, and the core is one of them.
for _kind in (_core.Queue, _core.Event, _core.Semaphore, _core.Lock, _core.Condition):
    copyreg.pickle(_kind, _reduce_core)


def deadline_of(timeout):
    return None if timeout is None else time.monotonic() + max(timeout, 0)


def remaining_of(deadline):
    return None if deadline is None else max(deadline - time.monotonic(), 0)


def wait_on(wait, timeout):
    """Call `wait` with the remaining seconds, again after each PeerDied.

    The dead process may not have used the object at all, since a forked child inherits all that its
    parent has; and another thread of this process may still end the wait.
    """
    try:
        if wait(0):  # most calls succeed at once
            return True
    except _core.PeerDied:
        pass
    deadline = deadline_of(timeout)
    while True:
        try:
            return wait(remaining_of(deadline))
        except _core.PeerDied:
            continue


class Living:
    """A list of objects that does not keep them alive.

    A thread may add an object while another thread lists them, and so may a signal handler or the
    garbage collector. Each step is one operation of a dictionary, so no lock is needed that a forked
    child could inherit.
    """

    def __init__(self):
        self._references = {}  # id(thing) -> weak reference

    def __bool__(self):
        return bool(self._references)

    def add(self, thing):
        references, number = self._references, id(thing)
        references[number] = weakref.ref(thing, lambda _: references.pop(number, None))

    def all(self):
        things = [reference() for reference in self._references.copy().values()]
        return [thing for thing in things if thing is not None]


_resets = Living()  # objects with a _reset() for a forked child
_resets_in_child = False


def reset_in_child(thing):
    """Have thing._reset() called in forked children."""
    global _resets_in_child
    if not _resets_in_child:  # without such objects a forked child runs no Python code
        _resets_in_child = True
        os.register_at_fork(after_in_child=_reset_all)
    _resets.add(thing)


def _reset_all():
    for thing in _resets.all():
        thing._reset()


def lives(pid):
    """Whether a process runs. A zombie does not, although its pid is still in use."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        import select

        poll = select.poll()  # select() takes no descriptor from 1024 on
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(descriptor)
