# SPDX-License-Identifier: Apache-2.0
"""picture.py: the camera that draws, and the network that reads."""

import numpy as np

HEIGHT, WIDTH, CELL = 240, 320, 16  # pixels

DIGITS = np.array(
    [
        [[c == "#" for c in row] for row in digit.split()]
        for digit in (
            "### #.# #.# #.# ###", ".#. ##. .#. .#. ###", "### ..# ### #.. ###", "### ..# ### ..# ###",
            "#.# #.# ### ..# ..#", "### #.. ### ..# ###", "### #.. ### #.# ###", "### ..# ..# ..# ..#",
            "### #.# ### #.# ###", "### #.# ### ..# ###",
        )
    ]
)  # [10, 5, 3]: ten digits, each of five rows of three cells
LIT = DIGITS.sum((1, 2))
WEIGHTS = np.where(DIGITS, 1 / LIT[:, None, None], -1 / (15 - LIT)[:, None, None])


def digit_of(number):
    return number * 7 % 10


def draw_frame(frame, number):
    """The camera: the picture of one digit, somewhere in a frame with noise."""
    top = number * 3 % (HEIGHT // CELL - 4) * CELL
    left = number * 5 % (WIDTH // CELL - 2) * CELL
    frame[...] = np.random.default_rng(number).integers(20, 84, frame.shape, np.uint8)
    frame[top : top + 5 * CELL, left : left + 3 * CELL] += np.kron(
        DIGITS[digit_of(number)], np.full((CELL, CELL), 140)
    ).astype(np.uint8)


def read_picture(picture):
    """The network: one layer, which compares each place of the picture with ten digits.

    Returns the digit, and its place in cells: row and column.
    """
    rows, columns = picture.shape[0] // CELL, picture.shape[1] // CELL
    cells = picture.reshape(rows, CELL, columns, CELL).mean((1, 3))
    places = np.lib.stride_tricks.sliding_window_view(cells, (5, 3))
    scores = np.tensordot(places, WEIGHTS, ((2, 3), (1, 2)))
    top, left, digit = np.unravel_index(scores.argmax(), scores.shape)
    return int(digit), int(top), int(left)
