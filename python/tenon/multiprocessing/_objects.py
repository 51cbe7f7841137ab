# SPDX-License-Identifier: Apache-2.0
"""What queues and locks have in common: how they reach children, and how they wait."""

import copyreg
import os
import time
import weakref

from .. import _core, _cpython, _domain


def keep_for_child(core):
    """An object ends with its last handle: keep ours until the child that starts is over."""
    starting = _cpython.get_spawning_popen()
    if starting is not None:
        if not hasattr(starting, "kept"):
            starting.kept = []
        starting.kept.append(core)
    return core


def has_starting(core):
    """Whether a child of this process may have been given it, and not have opened it yet."""
    popens = [_cpython.popen_of(child) for child in _cpython.children()]
    return any(
        (_cpython.is_forked(popen) or core in getattr(popen, "kept", ()))
        and popen.poll() is None
        for popen in popens
    )


def _reduce_core(core):
    """What opens it in another process."""
    keep_for_child(core)
    return _open_core, (type(core), core.domain.name, core.id)


def _open_core(kind, name, number):
    return kind.open(_domain.named(name), number)


# A subclass pickles the attributes of its objects by itself, and the cores are among them.
for _kind in (_core.Queue, _core.Event, _core.Semaphore, _core.Lock, _core.Condition):
    copyreg.pickle(_kind, _reduce_core)


def deadline_of(timeout):
    return None if timeout is None else time.monotonic() + max(timeout, 0)


def remaining_of(deadline):
    return None if deadline is None else max(deadline - time.monotonic(), 0)


def wait_on(wait, timeout):
    """Call `wait` with the seconds that are left until it is not a death that ends it.

    A forked child has what its parent has, so who dies may never have known of what is waited
    for; and a thread of this process may still end the wait.
    """
    try:
        if wait(0):  # most find what they want
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
    """Objects that end like any other, of which those that live can be listed.

    A thread may add one while another thread lists them; so may code that runs in the middle, for
    a signal or for the collector. Each step is one operation of a dictionary, and so there is no
    lock that a forked child could inherit.
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
    if not _resets_in_child:  # a child of a process without such things runs no code of Python
        _resets_in_child = True
        os.register_at_fork(after_in_child=_reset_all)
    _resets.add(thing)


def _reset_all():
    for thing in _resets.all():
        thing._reset()


def lives(pid):
    """Not if it has ended and nobody has waited for it: that may wait for a child of it."""
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
