# SPDX-License-Identifier: Apache-2.0
"""Contexts: the functions of this package for one start method."""

from .. import _cpython
from .._cpython import context as _context
from .._cpython import reduction
from . import process as _process
from .process import ForkProcess, ForkServerProcess, Process, SpawnProcess

__all__ = [
    "AuthenticationError",
    "BaseContext",
    "BufferTooShort",
    "DefaultContext",
    "ForkContext",
    "ForkProcess",
    "ForkServerContext",
    "ForkServerProcess",
    "Process",
    "ProcessError",
    "SpawnContext",
    "SpawnProcess",
    "TimeoutError",
    "assert_spawning",
    "get_spawning_popen",
    "reduction",
    "set_spawning_popen",
]

AuthenticationError = _context.AuthenticationError
BufferTooShort = _context.BufferTooShort
ProcessError = _context.ProcessError
TimeoutError = _context.TimeoutError
assert_spawning = _context.assert_spawning
get_spawning_popen = _context.get_spawning_popen
set_spawning_popen = _context.set_spawning_popen


class BaseContext(_context.BaseContext):
    """A context of the standard library whose functions make the objects of this package."""

    parent_process = staticmethod(_process.parent_process)

    def Manager(self):
        from .managers import SyncManager

        manager = SyncManager(ctx=self.get_context())
        manager.start()
        return manager

    def Lock(self):
        from .synchronize import Lock

        return Lock(ctx=self.get_context())

    def RLock(self):
        from .synchronize import RLock

        return RLock(ctx=self.get_context())

    def Condition(self, lock=None):
        from .synchronize import Condition

        return Condition(lock, ctx=self.get_context())

    def Semaphore(self, value=1):
        from .synchronize import Semaphore

        return Semaphore(value, ctx=self.get_context())

    def BoundedSemaphore(self, value=1):
        from .synchronize import BoundedSemaphore

        return BoundedSemaphore(value, ctx=self.get_context())

    def Event(self):
        from .synchronize import Event

        return Event(ctx=self.get_context())

    def Barrier(self, parties, action=None, timeout=None):
        from .synchronize import Barrier

        return Barrier(parties, action, timeout, ctx=self.get_context())

    def Queue(self, maxsize=0):
        from .queues import Queue

        return Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize=0):
        from .queues import JoinableQueue

        return JoinableQueue(maxsize, ctx=self.get_context())

    def SimpleQueue(self):
        from .queues import SimpleQueue

        return SimpleQueue(ctx=self.get_context())

    def Pool(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None):
        from .pool import Pool

        context = self.get_context()
        return Pool(processes, initializer, initargs, maxtasksperchild, context=context)

    def RawValue(self, typecode_or_type, *args):
        from .sharedctypes import RawValue

        return RawValue(typecode_or_type, *args)

    def RawArray(self, typecode_or_type, size_or_initializer):
        from .sharedctypes import RawArray

        return RawArray(typecode_or_type, size_or_initializer)

    def Value(self, typecode_or_type, *args, lock=True):
        from .sharedctypes import Value

        return Value(typecode_or_type, *args, lock=lock, ctx=self.get_context())

    def Array(self, typecode_or_type, size_or_initializer, *, lock=True):
        from .sharedctypes import Array

        return Array(typecode_or_type, size_or_initializer, lock=lock, ctx=self.get_context())

    def get_context(self, method=None):
        if method is None:
            return self
        try:
            context = _concrete[method]
        except KeyError:
            raise ValueError(f"cannot find context for {method!r}") from None
        context._check_available()
        return context


class ForkContext(BaseContext, _context.ForkContext):
    Process = ForkProcess


class SpawnContext(BaseContext, _context.SpawnContext):
    Process = SpawnProcess


class ForkServerContext(BaseContext, _context.ForkServerContext):
    Process = ForkServerProcess


_concrete = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}


class DefaultContext(BaseContext, _context.DefaultContext):
    """The context of the start method that was set, or of the standard library's default."""

    Process = Process

    def get_context(self, method=None):
        if method is not None:
            return super().get_context(method)
        if self._actual_context is None:
            self._actual_context = self._default_context
        return self._actual_context

    def set_start_method(self, method, force=False):
        if self._actual_context is not None and not force:
            raise RuntimeError("context has already been set")
        self._actual_context = None if method is None else self.get_context(method)


_default_context = DefaultContext(_concrete[_cpython.default_start_method()])
_process.default_context, _process.contexts = _default_context, _concrete


def __getattr__(name):
    """The other names of the standard library's module."""
    return getattr(_context, name)
