# SPDX-License-Identifier: Apache-2.0
"""Numbers in shared memory, behind somebody's lock."""

import struct

from .. import _core, _domain
from ._objects import keep_for_child


class Cells:
    """Numbers that change one by one."""

    def __init__(self, count):
        self._hold(_domain.default().zeros((count,), "int64"))

    def _hold(self, tensor):
        self._tensor = tensor
        self._view = memoryview(tensor)
        self.domain = tensor.domain

    def __getitem__(self, index):
        return self._view[index]

    def __setitem__(self, index, value):
        self._view[index] = value

    def __reduce__(self):
        return _rebuild_cells, (keep_for_child(self._tensor),)


def _rebuild_cells(tensor):
    made = Cells.__new__(Cells)
    made._hold(tensor)
    return made


class Rows:
    """Rows of as many numbers each, which change all at once, whoever is killed meanwhile.

    There are two copies, each a count and the rows; a cell before them says which one counts,
    and is written when the other copy is whole.
    """

    def __init__(self, width, most):
        self._begin(Cells(1 + 2 * (1 + width * most)), width, most)

    def _begin(self, cells, width, most):
        self._cells = cells
        self._bytes = memoryview(cells._tensor).cast("B")
        self._width = width
        self.most = most
        self.domain = cells.domain

    def __reduce__(self):
        return _rebuild_rows, (self._cells, self._width, self.most)

    def _place(self, copy):
        """Where a copy begins, in bytes."""
        return 8 * (1 + copy * (1 + self._width * self.most))

    def get(self):
        copy = self._cells[0]
        at = self._place(copy & 1)
        (count,) = struct.unpack_from("=q", self._bytes, at)
        if copy not in (0, 1) or not 0 <= count <= self.most:
            raise _core.Corrupt(f"copy {copy} of shared rows counts, and has {count} of them")
        rows = self._bytes[at + 8 : at + 8 * (1 + count * self._width)]
        return list(struct.iter_unpack(f"={self._width}q", rows))

    def set(self, rows):
        copy = 1 - self._cells[0]
        numbers = [len(rows), *(number for row in rows for number in row)]
        struct.pack_into(f"={len(numbers)}q", self._bytes, self._place(copy), *numbers)
        self._cells[0] = copy


def _rebuild_rows(cells, width, most):
    made = Rows.__new__(Rows)
    made._begin(cells, width, most)
    return made
