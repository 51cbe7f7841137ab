# SPDX-License-Identifier: Apache-2.0
"""Numbers in shared memory. The users of the numbers have a lock for them."""

from .. import _domain
from ._objects import keep_for_child


class Cells:
    """An array of int64 in shared memory."""

    def __init__(self, count):
        self._hold(_domain.default().zeros((count,), "int64"))

    def _hold(self, tensor):
        self._tensor = tensor
        self.view = memoryview(tensor)
        self.domain = tensor.domain

    def __getitem__(self, index):
        return self.view[index]

    def __setitem__(self, index, value):
        self.view[index] = value

    def __getstate__(self):
        return keep_for_child(self._tensor)

    def __setstate__(self, tensor):
        self._hold(tensor)
