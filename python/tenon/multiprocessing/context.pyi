# SPDX-License-Identifier: Apache-2.0
from ctypes import _SimpleCData
from multiprocessing import context as _context, reduction as reduction
from multiprocessing.context import (
    AuthenticationError as AuthenticationError,
    BufferTooShort as BufferTooShort,
    ProcessError as ProcessError,
    TimeoutError as TimeoutError,
    assert_spawning as assert_spawning,
    get_spawning_popen as get_spawning_popen,
    set_spawning_popen as set_spawning_popen,
)
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from typing import (
    Any,
    Callable,
    ClassVar,
    Iterable,
    Literal,
    Optional,
    Sequence,
    TypeVar,
    Union,
    overload,
)

from . import pool, queues, synchronize
from .process import (
    ForkProcess as ForkProcess,
    ForkServerProcess as ForkServerProcess,
    Process as Process,
    SpawnProcess as SpawnProcess,
)

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

_T = TypeVar("_T")
_Locks = Union[synchronize.Lock, synchronize.RLock]
_IsLocked = Union[Literal[True], synchronize.Lock, synchronize.RLock]

# Where mypy is told to ignore an override: the standard library's own is of other classes.
class BaseContext(_context.BaseContext):
    def Lock(self) -> synchronize.Lock: ...  # type: ignore[override]
    def RLock(self) -> synchronize.RLock: ...  # type: ignore[override]
    def Condition(self, lock: Optional[_Locks] = None) -> synchronize.Condition: ...  # type: ignore[override]
    def Semaphore(self, value: int = 1) -> synchronize.Semaphore: ...  # type: ignore[override]
    def BoundedSemaphore(self, value: int = 1) -> synchronize.BoundedSemaphore: ...  # type: ignore[override]
    def Event(self) -> synchronize.Event: ...  # type: ignore[override]
    def Barrier(  # type: ignore[override]
        self,
        parties: int,
        action: Optional[Callable[[], object]] = None,
        timeout: Optional[float] = None,
    ) -> synchronize.Barrier: ...
    def Queue(self, maxsize: int = 0) -> queues.Queue[Any]: ...  # type: ignore[override]
    def JoinableQueue(self, maxsize: int = 0) -> queues.JoinableQueue[Any]: ...  # type: ignore[override]
    def SimpleQueue(self) -> queues.SimpleQueue[Any]: ...  # type: ignore[override]
    def Pool(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: Optional[int] = None,
    ) -> pool.Pool: ...
    @overload
    def Value(
        self, typecode_or_type: type[_SimpleCData[_T]], *args: Any, lock: _IsLocked = True
    ) -> Synchronized[_T]: ...
    @overload
    def Value(
        self, typecode_or_type: Union[str, type[Any]], *args: Any, lock: Any = True
    ) -> Any: ...
    @overload
    def Array(
        self,
        typecode_or_type: type[_SimpleCData[_T]],
        size_or_initializer: Union[int, Sequence[Any]],
        *,
        lock: _IsLocked = True,
    ) -> SynchronizedArray[_T]: ...
    @overload
    def Array(
        self,
        typecode_or_type: Union[str, type[Any]],
        size_or_initializer: Union[int, Sequence[Any]],
        *,
        lock: Any = True,
    ) -> Any: ...
    @overload  # type: ignore[override]
    def get_context(self, method: None = None) -> DefaultContext: ...
    @overload
    def get_context(self, method: Literal["fork"]) -> ForkContext: ...
    @overload
    def get_context(self, method: Literal["spawn"]) -> SpawnContext: ...
    @overload
    def get_context(self, method: Literal["forkserver"]) -> ForkServerContext: ...
    @overload
    def get_context(
        self, method: str
    ) -> Union[ForkContext, SpawnContext, ForkServerContext]: ...

class ForkContext(BaseContext):
    _name: str
    Process: ClassVar[type[ForkProcess]]

class SpawnContext(BaseContext):
    _name: str
    Process: ClassVar[type[SpawnProcess]]

class ForkServerContext(BaseContext):
    _name: str
    Process: ClassVar[type[ForkServerProcess]]

class DefaultContext(BaseContext):
    Process: ClassVar[type[Process]]
    def __init__(self, context: BaseContext) -> None: ...
    def get_all_start_methods(self) -> list[str]: ...

_default_context: DefaultContext

def __getattr__(name: str) -> Any: ...
