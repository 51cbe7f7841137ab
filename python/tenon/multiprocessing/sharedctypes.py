# SPDX-License-Identifier: Apache-2.0
"""Values and arrays of ctypes in shared memory."""

import ctypes
import weakref

from .. import _core, _domain
from .._cpython import ForkingPickler, SimpleCData, assert_spawning, memory_of, rebuild_ctype
from .._cpython import reduce_ctype, typecode_to_type
from .._cpython import sharedctypes as _standard
from ._objects import keep_for_child
from .synchronize import RLock

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]


class _Memory:
    """Memory of a tensor, with the interface of a block of the standard library's heap."""

    def __init__(self, tensor):
        self.tensor = tensor

    def create_memoryview(self):
        return memoryview(self.tensor)

    def __reduce__(self):
        return _Memory, (keep_for_child(self.tensor),)


def _reduce(obj):
    if not isinstance(memory_of(obj), _Memory):
        return reduce_ctype(obj)
    if isinstance(obj, ctypes.Array):
        return _rebuild, (obj._type_, memory_of(obj), obj._length_)
    return _rebuild, (type(obj), memory_of(obj), None)


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
    """A ctypes object with a lock around each access; lock: True, False, or the lock to use."""
    return _locked(RawValue(typecode_or_type, *args), lock, ctx)


def Array(typecode_or_type, size_or_initializer, *, lock=True, ctx=None):
    """A ctypes array with a lock around each access; lock: True, False, or the lock to use."""
    return _locked(RawArray(typecode_or_type, size_or_initializer), lock, ctx)


class SynchronizedBase(_core.Synchronized, _standard.SynchronizedBase):
    """A ctypes object. Each access acquires its lock, in C."""

    def __reduce__(self):
        assert_spawning(self)
        return synchronized, (self._obj, self._lock)


class Synchronized(SynchronizedBase, _standard.Synchronized):
    value = _core.SynchronizedAttribute("value")


class SynchronizedArray(
    _core.SynchronizedArray, SynchronizedBase, _standard.SynchronizedArray
):
    pass


class SynchronizedString(SynchronizedArray, _standard.SynchronizedString):
    value = _core.SynchronizedAttribute("value")
    raw = _core.SynchronizedAttribute("raw")


_classes = weakref.WeakKeyDictionary()  # of structures: ctypes class -> synchronized class


def synchronized(obj, lock=None, ctx=None):
    """The object with a lock around each access."""
    assert not isinstance(obj, _standard.SynchronizedBase), "object already synchronized"
    if lock is None:
        lock = ctx.RLock() if ctx else RLock()
    return _class_for(obj)(obj, lock, ctx)


def _class_for(obj):
    if isinstance(obj, SimpleCData):
        return Synchronized
    if isinstance(obj, ctypes.Array):
        return SynchronizedString if obj._type_ is ctypes.c_char else SynchronizedArray
    cls = type(obj)
    if cls not in _classes:
        fields = {field[0]: _core.SynchronizedAttribute(field[0]) for field in cls._fields_}
        _classes[cls] = type("Synchronized" + cls.__name__, (SynchronizedBase,), fields)
    return _classes[cls]


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
    """The other names of the standard library's module."""
    return getattr(_standard, name)
