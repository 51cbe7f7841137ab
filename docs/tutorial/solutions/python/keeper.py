# SPDX-License-Identifier: Apache-2.0
"""The second exercise: keeps three workers at work, whatever kills them. keeper.py [POISON]"""

import os
import signal
import sys

import numpy as np
import tenon
import tenon.multiprocessing as mp
from picture import read_picture
from tenon.multiprocessing import connection

WORKERS, MOST_ATTEMPTS = 3, 2


def digit_in(message, picture, number, poison):
    if message.attempt >= MOST_ATTEMPTS:  # so many workers died of it
        return -1
    if number == poison:
        os.kill(os.getpid(), signal.SIGKILL)
    return read_picture(picture)[0]


def work(poison):
    frames = tenon.Queue("frames", domain="line", capacity=16, lease=True)
    readings = tenon.Queue("readings", domain="line", capacity=1024)
    while True:
        try:
            message = frames.receive()
        except (tenon.Closed, tenon.PeerDied):  # ended, or the camera died
            return
        with message:
            picture, number = (np.asarray(tensor) for tensor in message.tensors)
            digit = digit_in(message, picture, number[0], poison)
            readings.put(np.array([number[0], digit, os.getpid()], np.int32))


def main():
    poison = int(sys.argv[1]) if len(sys.argv) > 1 else None
    # The queues are open here too, so that they do not end with the last worker.
    queues = [tenon.Queue("frames", domain="line", capacity=16, lease=True),
              tenon.Queue("readings", domain="line", capacity=1024)]

    def start():
        worker = mp.Process(target=work, args=(poison,))
        worker.start()
        return worker

    workers, restarts = [start() for _ in range(WORKERS)], 0
    while workers:
        connection.wait([worker.sentinel for worker in workers])
        for worker in [worker for worker in workers if not worker.is_alive()]:
            workers.remove(worker)
            if worker.exitcode != 0:
                workers.append(start())
                restarts += 1
    print(restarts, "workers were started again")
    for queue in queues:
        queue.close()


if __name__ == "__main__":
    main()
