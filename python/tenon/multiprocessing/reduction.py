# SPDX-License-Identifier: Apache-2.0
"""Pickling for other processes, by the tables of the standard library."""

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
    """The other names of the standard library's module."""
    return getattr(_standard, name)
