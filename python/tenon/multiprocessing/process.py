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

# The default context, and those of the start methods by name; the module context sets both.
default_context = None
contexts = None

_CHECK_S = 0.1  # how often start() checks whether a child that it waits for lives
_PARENT_DIED = 70  # EX_SOFTWARE; no process is left to read it


class BaseProcess(_process.BaseProcess):
    """A process of the standard library that ends when its parent ends, or is killed.

    Attributes
    ----------
    detached : bool
        Set it before start() to let the process outlive its parent. With spawn and forkserver,
        start() then waits until the child has opened what it was sent, which ends with the parent.
    """

    detached = False

    def start(self):
        _domain.default()  # the domain of the child exists before the child
        if "torch" in sys.modules:
            _notice_torch()
        super().start()
        if self.detached:
            _wait_for_arrival(self._popen)
            _cpython.forget_child(self)  # this process does not join it at exit

    def __reduce_ex__(self, protocol):
        # The pickle becomes a message, so that arrays in the arguments travel in shared memory.
        if _cpython.get_spawning_popen() is None or _core.is_dumping():
            return super().__reduce_ex__(protocol)
        # The message waits in a queue of its own, which ends with the child at the latest.
        domain = _domain.default()
        data, tensors = _core.dumps(self, domain)
        queue = _core.Queue.create(domain, capacity=1)
        queue.push(data, tensors, 0)
        keep_for_child(queue)
        if not self.detached:
            return _arrive, (domain.name, _start_method(), queue.id)
        arrival = _cpython.get_spawning_popen().arrival = _core.Event.create(domain)
        return _arrive, (domain.name, _start_method(), queue.id, arrival.id)

    # For each page with a function or an object that a forked child uses, the kernel copies the page.
    # So this function calls few.
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
            # The standard library reports exceptions of its part of a child in the same way.
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
    """Let tenon.torch install itself before a worker of a DataLoader collates its first batch."""
    _core.dumps(None, _domain.default())


def _start_method():
    from . import context

    return context._default_context.get_start_method(allow_none=True)


def _arrive(name, start_method, number, arrival=None):
    """In the child: receive the Process object that the parent sent."""
    from . import context

    _domain.enter(name)
    context._default_context.set_start_method(start_method, force=True)
    process = _core.Queue.open(_domain.default(), number).get(0)
    if arrival is not None:
        _core.Event.open(_domain.default(), arrival).set()
    return process


def _wait_for_arrival(popen):
    """Wait until the child has opened what it was sent, or has ended."""
    arrival = getattr(popen, "arrival", None)  # a forked child has it at once
    while arrival is not None and popen.poll() is None:
        try:
            if arrival.wait(_CHECK_S):
                return
        except _core.PeerDied:
            pass  # another process may have died


def _end_without(parent):
    # A parent that left its domain normally may still run; then the child just goes on.
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
            del process_obj._parcel  # in this process only: in the child, Popen() does not return
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
    """A process of the default start method, with the arguments and methods of the standard library's.

    `pid`, `exitcode`, `sentinel`, `name`, `daemon`, `authkey`, is_alive(), join(), terminate(), kill() and
    close() are as there. Two things differ: the process ends when its parent ends or is killed, unless
    `detached` was set to True before start(); and arrays and tensors in its arguments travel in shared
    memory. With `detached` and spawn or forkserver, start() waits until the child has opened what it was
    sent.
    """

    _start_method = None

    @staticmethod
    def _Popen(process_obj):
        from . import context

        return context._default_context.get_context().Process._Popen(process_obj)

    @staticmethod
    def _after_fork():
        from . import context

        return context._default_context.get_context().Process._after_fork()


# The standard library makes the objects for the main process and for a parent. Here they get classes of
# their own, so that isinstance() takes them for a BaseProcess of this module, too.


class _ParentProcess(BaseProcess, _cpython.ParentProcess):
    pass


def parent_process():
    """The process that started this one, which has a name and a pid and can be joined; None in the main process."""
    found = _process.parent_process()
    if type(found) is _cpython.ParentProcess:
        found.__class__ = _ParentProcess
    return found


def _take_over(main):
    kind = type(main)
    if main is not None and not issubclass(kind, BaseProcess):
        main.__class__ = type(kind.__name__, (BaseProcess, kind), {"__module__": kind.__module__})


_take_over(_cpython.main_process())


def __getattr__(name):
    """The other names of the standard library's module."""
    return getattr(_process, name)
