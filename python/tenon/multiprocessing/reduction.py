# SPDX-License-Identifier: Apache-2.0
"""How objects are pickled for other processes: by the standard library's tables."""

from .._cpython import reduction as _standard

__all__ = [*_standard.__all__]

AbstractReducer = _standard.AbstractReducer
DupFd = _standard.DupFd
ForkingPickler = _standard.ForkingPickler
HAVE_SEND_HANDLE = _standard.HAVE_SEND_HANDLE
dump = _standard.dump
recv_handle = _standard.recv_handle
recvfds = _standard.recvfds
register = _standard.register
send_handle = _standard.send_handle
sendfds = _standard.sendfds


def __getattr__(name):
    """What else the standard library's module has, in its version."""
    return getattr(_standard, name)
