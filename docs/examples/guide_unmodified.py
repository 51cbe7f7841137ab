# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/python-unmodified.md: it does not know tenon."""

# show: program
import multiprocessing

import numpy as np


def brighten(frames, results):
    while (frame := frames.get()) is not None:
        frame += 1
        results.put(frame)


if __name__ == "__main__":
    frames, results = multiprocessing.Queue(), multiprocessing.Queue()
    worker = multiprocessing.Process(target=brighten, args=(frames, results))
    worker.start()
    for number in range(10):
        frames.put(np.full((1080, 1920, 3), number, "uint8"))
    print(sum(int(results.get()[0, 0, 0]) for _ in range(10)))
    frames.put(None)
    worker.join()
# end
