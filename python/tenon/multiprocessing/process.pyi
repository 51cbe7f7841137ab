# SPDX-License-Identifier: Apache-2.0
from multiprocessing import process as _process
from multiprocessing.process import (
    active_children as active_children,
    current_process as current_process,
    parent_process as parent_process,
)
from typing import Any, Optional

__all__ = [
    "AuthenticationString",
    "BaseProcess",
    "active_children",
    "current_process",
    "parent_process",
]

class AuthenticationString(bytes): ...

class BaseProcess(_process.BaseProcess):
    detached: bool

class ForkProcess(BaseProcess):
    _start_method: str
    @staticmethod
    def _Popen(process_obj: _process.BaseProcess) -> Any: ...

class SpawnProcess(BaseProcess):
    _start_method: str
    @staticmethod
    def _Popen(process_obj: _process.BaseProcess) -> Any: ...

class ForkServerProcess(BaseProcess):
    _start_method: str
    @staticmethod
    def _Popen(process_obj: _process.BaseProcess) -> Any: ...

class Process(BaseProcess):
    _start_method: Optional[str]
    @staticmethod
    def _Popen(process_obj: _process.BaseProcess) -> Any: ...

def __getattr__(name: str) -> Any: ...
