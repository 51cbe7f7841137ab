# SPDX-License-Identifier: Apache-2.0
from multiprocessing.spawn import *
from multiprocessing.spawn import (
    get_executable as get_executable,
    set_executable as set_executable,
)
from typing import Any, Callable, Literal, Optional, Sequence, overload

from .process import BaseProcess

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

class ProcessException(Exception):
    msg: str
    error_index: int
    error_pid: int
    def __init__(self, msg: str, error_index: int, pid: int) -> None: ...
    @property
    def pid(self) -> int: ...

class ProcessRaisedException(ProcessException):
    def __init__(self, msg: str, error_index: int, error_pid: int) -> None: ...

class ProcessExitedException(ProcessException):
    exit_code: int
    signal_name: Optional[str]
    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: Optional[str] = None,
    ) -> None: ...

class ProcessContext:
    processes: list[BaseProcess]
    sentinels: dict[int, int]
    def __init__(self, processes: Sequence[BaseProcess], reports: Sequence[Any]) -> None: ...
    def pids(self) -> list[int]: ...
    def join(
        self, timeout: Optional[float] = None, grace_period: Optional[float] = None
    ) -> bool: ...

class SpawnContext(ProcessContext): ...

@overload
def start_processes(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: Literal[True] = True,
    daemon: bool = False,
    start_method: str = "spawn",
    numa_options: None = None,
) -> None: ...
@overload
def start_processes(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    *,
    join: Literal[False],
    daemon: bool = False,
    start_method: str = "spawn",
    numa_options: None = None,
) -> ProcessContext: ...
@overload
def start_processes(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    numa_options: None = None,
) -> Optional[ProcessContext]: ...
@overload
def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: Literal[True] = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None: ...
@overload
def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    *,
    join: Literal[False],
    daemon: bool = False,
    start_method: Literal["spawn"] = "spawn",
) -> SpawnContext: ...
@overload
def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Optional[ProcessContext]: ...
