# SPDX-License-Identifier: Apache-2.0
"""The standard library's module: nothing in it needs another."""

from multiprocessing.popen_fork import *
from typing import Any

def __getattr__(name: str) -> Any: ...
