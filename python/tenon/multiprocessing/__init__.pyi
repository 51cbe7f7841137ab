# SPDX-License-Identifier: Apache-2.0
"""The names of multiprocessing have the types that they have there."""

from multiprocessing import *
from multiprocessing import (
    connection as connection,
    context as context,
    dummy as dummy,
    managers as managers,
    pool as pool,
    process as process,
    queues as queues,
    reduction as reduction,
    shared_memory as shared_memory,
    sharedctypes as sharedctypes,
    synchronize as synchronize,
    util as util,
)
from multiprocessing.process import BaseProcess
from typing import Any, Callable, Optional

class WorkerDied(RuntimeError):
    task: Any
    pids: tuple[int, ...]

def get_all_sharing_strategies() -> set[str]: ...
def get_sharing_strategy() -> str: ...
def set_sharing_strategy(new_strategy: str) -> None: ...
def init_reductions() -> None: ...
def set_thread_name(name: str) -> None: ...
def get_thread_name() -> str: ...

class ProcessException(Exception):
    error_index: int
    error_pid: int

class ProcessRaisedException(ProcessException): ...

class ProcessExitedException(ProcessException):
    exit_code: int
    signal_name: Optional[str]

class ProcessContext:
    processes: list[BaseProcess]
    def pids(self) -> list[int]: ...
    def join(self, timeout: Optional[float] = None, grace_period: Optional[float] = None) -> bool: ...

class SpawnContext(ProcessContext): ...

def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> Optional[ProcessContext]: ...
def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
                    daemon: bool = False, start_method: str = "spawn") -> Optional[ProcessContext]: ...
