# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy that lie in shared memory from the start."""

import contextlib
from typing import Iterator, Optional

from . import _core
from ._tensors import _place

_LEAST_BYTES = 1 << 16
_PART_OF_QUOTA = 4


@contextlib.contextmanager
def numpy_allocator(
    domain: Optional[_core.Domain] = None, *, least_bytes: int = _LEAST_BYTES, most_bytes: Optional[int] = None
) -> Iterator[None]:
    """Let arrays that NumPy makes in this block lie in shared memory, so that sending them copies nothing.

    It holds for this thread, or task of asyncio, and for all arrays: those of numpy.empty(), those that calculations
    make, and those of libraries that use NumPy. They are arrays like others, and stay in shared memory after the
    block, for as long as this process or a receiver uses them. A process that has received an array uses the same
    memory: what one of them writes the others see. So has a forked child: it must not write into an array that its
    parent made here. An array that the domain has no room for, or that is not within the limits, lies in private
    memory, and is copied when it is sent. Arrays of subclasses of numpy.ndarray are copied, too.

    A generator that is left inside of the block leaves it only when it is closed.

    Parameters
    ----------
    domain : tenon.Domain, not its name; None for this process's
    least_bytes : int, of an array; a smaller one lies in private memory
    most_bytes : int, of all arrays of this block that exist; None for a quarter of the domain's quota

    Raises
    ------
    tenon.Unsupported
        NumPy is older than 1.22.
    """
    where = _place(domain)
    if most_bytes is None:
        most_bytes = where.quota_bytes // _PART_OF_QUOTA
    for name, value in ("least_bytes", least_bytes), ("most_bytes", most_bytes):
        if not isinstance(value, int):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        if not 0 <= value < 1 << 64:
            raise ValueError(f"{name} must be from 0 to 2**64 - 1: {value}")
    former = _core.set_numpy_allocator(_core.numpy_allocator(where, least_bytes, most_bytes))
    try:
        yield
    finally:
        _core.set_numpy_allocator(former)
