# SPDX-License-Identifier: Apache-2.0
"""Values and arrays of ctypes in shared memory."""

import ctypes
from multiprocessing import sharedctypes as _standard
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import (
    Synchronized,
    SynchronizedArray,
    SynchronizedBase,
    SynchronizedString,
    rebuild_ctype,
    synchronized,
    typecode_to_type,
)

from .. import _domain
from ._objects import keep_for_child
from .synchronize import RLock

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]


class _Memory:
    """What the standard library's functions take for a piece of its heap."""

    def __init__(self, tensor):
        self.tensor = tensor

    def create_memoryview(self):
        return memoryview(self.tensor)

    def __reduce__(self):
        return _Memory, (keep_for_child(self.tensor),)


def _reduce(obj):
    if not isinstance(obj._wrapper, _Memory):
        return _standard.reduce_ctype(obj)
    if isinstance(obj, ctypes.Array):
        return _rebuild, (obj._type_, obj._wrapper, obj._length_)
    return _rebuild, (type(obj), obj._wrapper, None)


def _rebuild(type_, memory, length):
    obj = rebuild_ctype(type_, memory, length)
    ForkingPickler.register(type(obj), _reduce)
    return obj


def _new(type_):
    size = max(ctypes.sizeof(type_), 1)
    return _rebuild(type_, _Memory(_domain.default().zeros((size,), "uint8")), None)


def RawValue(typecode_or_type, *args):
    """A ctypes object in shared memory, without a lock."""
    obj = _new(typecode_to_type.get(typecode_or_type, typecode_or_type))
    obj.__init__(*args)
    return obj


def RawArray(typecode_or_type, size_or_initializer):
    """A ctypes array in shared memory, without a lock."""
    type_ = typecode_to_type.get(typecode_or_type, typecode_or_type)
    if isinstance(size_or_initializer, int):
        return _new(type_ * size_or_initializer)
    array = _new(type_ * len(size_or_initializer))
    array.__init__(*size_or_initializer)
    return array


def Value(typecode_or_type, *args, lock=True, ctx=None):
    """A ctypes object with a lock around each access; lock: True, False, or one to use."""
    return _locked(RawValue(typecode_or_type, *args), lock, ctx)


def Array(typecode_or_type, size_or_initializer, *, lock=True, ctx=None):
    """A ctypes array with a lock around each access; lock: True, False, or one to use."""
    return _locked(RawArray(typecode_or_type, size_or_initializer), lock, ctx)


def _locked(obj, lock, ctx):
    if lock is False:
        return obj
    if lock is True or lock is None:
        lock = ctx.RLock() if ctx else RLock()
    if not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    return synchronized(obj, lock, ctx)


def copy(obj):
    """A copy in memory of its own."""
    new = _new(type(obj))
    ctypes.pointer(new)[0] = obj
    return new


def __getattr__(name):
    """What else the standard library's module has."""
    return getattr(_standard, name)
