# SPDX-License-Identifier: Apache-2.0
import numpy as np
import tenon
import tenon.multiprocessing as mp
from picture import HEIGHT, WIDTH, digit_of, draw_frame, read_picture

FRAMES, WORKERS = 100, 3


def film(number):
    frame = np.asarray(tenon.empty((HEIGHT, WIDTH), "uint8"))
    draw_frame(frame, number)
    return frame


def infer(frame):
    return read_picture(frame)[0]


if __name__ == "__main__":
    with mp.Pool(WORKERS) as pool:
        readings = pool.map(infer, [film(number) for number in range(FRAMES)])
    right = sum(digit == digit_of(number) for number, digit in enumerate(readings))
    print(right, "of", FRAMES, "frames were read right")
