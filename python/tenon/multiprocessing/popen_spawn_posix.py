# SPDX-License-Identifier: Apache-2.0
"""Starting a spawned child."""

from .._cpython import popen_spawn_posix as _standard
from ._popen import SpawnPopen as Popen

__all__ = ["Popen"]


def __getattr__(name):
    """The other names of the standard library's module."""
    return getattr(_standard, name)
