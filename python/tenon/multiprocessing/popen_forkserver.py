# SPDX-License-Identifier: Apache-2.0
"""Starting a child of a fork server."""

from .._cpython import popen_forkserver as _standard
from ._popen import ForkServerPopen as Popen

__all__ = ["Popen"]


def __getattr__(name):
    """The other names of the standard library's module."""
    return getattr(_standard, name)
