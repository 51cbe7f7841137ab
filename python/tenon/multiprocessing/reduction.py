# SPDX-License-Identifier: Apache-2.0
"""How objects are pickled for other processes: by the standard library's tables."""

from multiprocessing import reduction as _standard
from multiprocessing.reduction import *  # noqa: F403
from multiprocessing.reduction import (  # noqa: F401
    HAVE_SEND_HANDLE,
    AbstractReducer,
    DupFd,
    ForkingPickler,
    dump,
    recv_handle,
    recvfds,
    register,
    send_handle,
    sendfds,
)


def __getattr__(name):
    """What else the standard library's module has, in its version."""
    return getattr(_standard, name)
