# SPDX-License-Identifier: Apache-2.0
# show: work
import sys

import numpy as np
import tenon
import tenon.multiprocessing as mp
from picture import HEIGHT, WIDTH, digit_of, draw_frame, read_picture

WORKERS, ROUNDS = 3, 100


def infer(frame):
    for _ in range(ROUNDS):  # some ten milliseconds, as a larger network
        digit, top, left = read_picture(frame)
    return digit
# end


# show: film
def film(number):
    frame = np.asarray(tenon.empty((HEIGHT, WIDTH), "uint8"))
    draw_frame(frame, number)
    return frame
# end


# show: main
if __name__ == "__main__":
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    tenon.domain("factory")  # this process's domain, and its children's, has this name
    right = 0
    with mp.Pool(WORKERS) as pool:
        for worker in mp.active_children():
            print("a worker is process", worker.pid, flush=True)
        for number in range(0, frames, 10):
            some = range(number, min(number + 10, frames))
            readings = pool.map(infer, [film(n) for n in some], chunksize=1)
            right += sum(digit == digit_of(n) for n, digit in zip(some, readings))
    print(right, "of", frames, "frames were read right")
# end
