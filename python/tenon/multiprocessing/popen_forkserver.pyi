# SPDX-License-Identifier: Apache-2.0
from multiprocessing.popen_forkserver import Popen as Popen
from typing import Any

__all__ = ["Popen"]

def __getattr__(name: str) -> Any: ...
