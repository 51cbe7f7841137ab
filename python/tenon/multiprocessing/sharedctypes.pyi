# SPDX-License-Identifier: Apache-2.0
import ctypes
from ctypes import _SimpleCData
from multiprocessing.sharedctypes import (
    Synchronized as Synchronized,
    SynchronizedArray as SynchronizedArray,
    SynchronizedBase as SynchronizedBase,
    SynchronizedString as SynchronizedString,
)
from typing import Any, Literal, Sequence, TypeVar, Union, overload

from .synchronize import Lock, RLock

__all__ = [
    "Array",
    "RawArray",
    "RawValue",
    "Value",
    "copy",
    "synchronized",
]

_T = TypeVar("_T")
_Type = TypeVar("_Type")
_Simple = TypeVar("_Simple", bound=_SimpleCData[Any])
_IsLocked = Union[Literal[True], Lock, RLock]

@overload
def RawValue(typecode_or_type: type[_Type], *args: Any) -> _Type: ...
@overload
def RawValue(typecode_or_type: str, *args: Any) -> Any: ...
@overload
def RawArray(
    typecode_or_type: type[_Simple], size_or_initializer: Union[int, Sequence[Any]]
) -> ctypes.Array[_Simple]: ...
@overload
def RawArray(
    typecode_or_type: Union[str, type[Any]], size_or_initializer: Union[int, Sequence[Any]]
) -> Any: ...
@overload
def Value(
    typecode_or_type: type[_SimpleCData[_T]],
    *args: Any,
    lock: _IsLocked = True,
    ctx: Any = None,
) -> Synchronized[_T]: ...
@overload
def Value(
    typecode_or_type: Union[str, type[Any]], *args: Any, lock: Any = True, ctx: Any = None
) -> Any: ...
@overload
def Array(
    typecode_or_type: type[_SimpleCData[_T]],
    size_or_initializer: Union[int, Sequence[Any]],
    *,
    lock: _IsLocked = True,
    ctx: Any = None,
) -> SynchronizedArray[_T]: ...
@overload
def Array(
    typecode_or_type: Union[str, type[Any]],
    size_or_initializer: Union[int, Sequence[Any]],
    *,
    lock: Any = True,
    ctx: Any = None,
) -> Any: ...
def copy(obj: _Type) -> _Type: ...
def synchronized(obj: Any, lock: Any = None, ctx: Any = None) -> Any: ...
def __getattr__(name: str) -> Any: ...
