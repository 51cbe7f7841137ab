# SPDX-License-Identifier: Apache-2.0
from multiprocessing import pool as _standard
from multiprocessing.pool import (
    ApplyResult as ApplyResult,
    AsyncResult as AsyncResult,
    IMapIterator as IMapIterator,
    IMapUnorderedIterator as IMapUnorderedIterator,
    MapResult as MapResult,
    ThreadPool as ThreadPool,
)
from typing import Any, Callable, Iterable, Optional

__all__ = [
    "Pool",
    "ThreadPool",
]

class WorkerDied(RuntimeError):
    task: Optional[str]
    pids: tuple[int, ...]
    def __init__(
        self, message: str, task: Optional[str] = None, pids: Iterable[int] = ()
    ) -> None: ...
    @property
    def pid(self) -> Optional[int]: ...

class Pool(_standard.Pool):
    def __init__(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: Optional[int] = None,
        context: Any = None,
    ) -> None: ...

def __getattr__(name: str) -> Any: ...
