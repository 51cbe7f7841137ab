# SPDX-License-Identifier: Apache-2.0
"""How a spawned child is started."""

from .._cpython import popen_spawn_posix as _standard
from ._popen import SpawnPopen as Popen

__all__ = ["Popen"]


def __getattr__(name):
    """What else the standard library's module has."""
    return getattr(_standard, name)
