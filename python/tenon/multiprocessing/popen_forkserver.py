# SPDX-License-Identifier: Apache-2.0
"""How a child of a forkserver is started."""

from .._cpython import popen_forkserver as _standard
from ._popen import ForkServerPopen as Popen

__all__ = ["Popen"]


def __getattr__(name):
    """What else the standard library's module has."""
    return getattr(_standard, name)
