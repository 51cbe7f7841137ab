# SPDX-License-Identifier: Apache-2.0
"""Pipes whose descriptors are above those of the standard streams."""

import fcntl
import os

_FIRST = 3


def make():
    """As os.pipe(). A program that closed a standard stream may still write to its number."""
    ends = os.pipe()
    moved = []
    try:
        for end in ends:
            moved.append(end if end >= _FIRST else fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST))
    except OSError:
        for end in {*ends, *moved}:
            os.close(end)
        raise
    for end in set(ends).difference(moved):
        os.close(end)
    return tuple(moved)
