# SPDX-License-Identifier: Apache-2.0
"""Processes that end with their parent, and whose arguments may be tensors."""

import os
import sys

from .. import _core, _cpython, _domain
from .._cpython import context as _context
from .._cpython import process as _process
from . import _sent
from ._objects import keep_for_child, lives

__all__ = [
    "AuthenticationString",
    "BaseProcess",
    "active_children",
    "current_process",
    "parent_process",
]

AuthenticationString = _process.AuthenticationString
active_children = _process.active_children
current_process = _process.current_process
parent_process = _process.parent_process

# The default context, and those of the start methods by name; the module context sets both.
default_context = None
contexts = None

_LOOK_S = 0.1  # how often who waits for a child's arrival looks whether the child lives
_PARENT_DIED = 70  # EX_SOFTWARE; nobody is left to read it


class BaseProcess(_process.BaseProcess):
    """A process of the standard library's, with one thing more.

    detached: set it before start() to let the process outlive its parent. Others end when their
    parent ends, also when that is killed. start() of one that begins anew (spawn, forkserver)
    waits until the child has what it was sent, which ends with its parent.
    """

    detached = False

    def start(self):
        _domain.default()  # what a child shares with its parent is there before the child
        if "torch" in sys.modules:
            _notice_torch()
        super().start()
        if self.detached:
            _wait_for_arrival(self._popen)
            _cpython.forget_child(self)  # nobody waits for it at exit

    def __reduce_ex__(self, protocol):
        # Its pickle is a message: the arrays in its arguments lie in shared memory, beside it.
        if _cpython.get_spawning_popen() is None or _core.is_dumping():
            return super().__reduce_ex__(protocol)
        # It waits in a queue of its own, which ends with the child if that never gets to it.
        domain = _domain.default()
        data, tensors = _core.dumps(self, domain)
        queue = _core.Queue.create(domain, capacity=1)
        queue.push(data, tensors, 0)
        keep_for_child(queue)
        if not self.detached:
            return _arrive, (domain.name, _start_method(), queue.id)
        arrival = _cpython.get_spawning_popen().arrival = _core.Event.create(domain)
        return _arrive, (domain.name, _start_method(), queue.id, arrival.id)

    # Each function that a forked child calls, and each object that it touches, is a page that the
    # kernel copies for it: so this one calls few.
    def _bootstrap(self, *args, **keywords):
        try:
            _domain.leaver = os.getpid()
            if self._start_method is not None:
                default_context._actual_context = contexts[self._start_method]
            if not self.detached:
                try:
                    _core.follow(_domain._present or _domain.default(), self._parent_pid)
                except (_core.PeerDied, _core.NotFound):
                    _end_without(self._parent_pid)
            if "torch" in sys.modules:
                _notice_torch()
        except Exception:
            # As the standard library does with what its part of a child raises.
            sys.stderr.write(f"Process {self.name}:\n")
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            return 1
        try:
            return super()._bootstrap(*args, **keywords)
        finally:
            _domain.leave_last()


def _notice_torch():
    """Before a worker collates its first batch, which no message was pickled before."""
    _core.dumps(None, _domain.default())


def _start_method():
    from . import context

    return context._default_context.get_start_method(allow_none=True)


def _arrive(name, start_method, number, arrival=None):
    """In the child: the process that its parent sent."""
    from . import context

    _domain.enter(name)
    context._default_context.set_start_method(start_method, force=True)
    process = _core.Queue.open(_domain.default(), number).get(0)
    if arrival is not None:
        _core.Event.open(_domain.default(), arrival).set()
    return process


def _wait_for_arrival(popen):
    """Until the child that `popen` started has opened what it was sent, or has ended."""
    arrival = getattr(popen, "arrival", None)  # a forked child has it at once
    while arrival is not None and popen.poll() is None:
        try:
            if arrival.wait(_LOOK_S):
                return
        except _core.PeerDied:
            pass  # another process may have died


def _end_without(parent):
    # One that left its domain in good order may live on; a child of it is on its own then.
    if not lives(parent):
        os._exit(_PARENT_DIED)


class ForkProcess(BaseProcess, _context.ForkProcess):
    @staticmethod
    def _Popen(process_obj):
        from .._cpython import popen_fork

        barriers = _sent.find(process_obj)
        if not barriers:
            return popen_fork.Popen(process_obj)
        process_obj._parcel = parcel = _sent.Parcel()
        try:
            for barrier in barriers:
                parcel.add(barrier)
            popen = popen_fork.Popen(process_obj)
        except BaseException:
            parcel.forget()
            raise
        finally:
            del process_obj._parcel  # in this process; in the child, Popen() does not return
        parcel.name(popen.pid)
        return popen


class SpawnProcess(BaseProcess, _context.SpawnProcess):
    @staticmethod
    def _Popen(process_obj):
        from ._popen import SpawnPopen

        return SpawnPopen(process_obj)


class ForkServerProcess(BaseProcess, _context.ForkServerProcess):
    @staticmethod
    def _Popen(process_obj):
        from ._popen import ForkServerPopen

        return ForkServerPopen(process_obj)


class Process(BaseProcess):
    """A process of the default start method."""

    _start_method = None

    @staticmethod
    def _Popen(process_obj):
        from . import context

        return context._default_context.get_context().Process._Popen(process_obj)

    @staticmethod
    def _after_fork():
        from . import context

        return context._default_context.get_context().Process._after_fork()


def __getattr__(name):
    """What else the standard library's module has."""
    return getattr(_process, name)
