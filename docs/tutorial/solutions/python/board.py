# SPDX-License-Identifier: Apache-2.0
"""The third exercise: counts in shared memory that survive a process which dies while it changes
them. board.py keep | add DIGIT TIMES | break DIGIT | stop"""

import contextlib
import os
import pathlib
import signal
import sys

import numpy as np
import tenon

HANDLE = pathlib.Path("board.handle")
TOTAL = 10  # ten counts, and their sum

domain = tenon.domain("line")
lock = tenon.Lock("board", domain=domain)
stop = tenon.Event("stop", domain=domain)


def make_board():
    board = tenon.zeros(11, "int64")
    HANDLE.write_bytes(board.to_handle(uses=1000))
    return np.asarray(board)


def load_board():
    return np.asarray(domain.load_handle(HANDLE.read_bytes()))


def mend(board):
    """To be called with the lock held: mend the board if its last owner died on the way."""
    if lock.owner_died:
        board[TOTAL] = board[:TOTAL].sum()
        print(f"process {lock.dead_owner_pid} died with the lock: the total is mended")


def main(verb, digit=0, times=1):
    if verb == "stop":
        stop.set()
        return
    board = make_board() if verb == "keep" else load_board()
    if verb == "keep":
        print("the board is there", flush=True)
        while not stop.is_set():
            with contextlib.suppress(tenon.PeerDied):  # the board outlives those who use it
                stop.wait()
        with lock:
            mend(board)
            print(*board[:TOTAL], "total", board[TOTAL])
    elif verb == "add":
        for _ in range(int(times)):
            with lock:
                mend(board)
                board[TOTAL] += 1
                board[int(digit)] += 1
    elif verb == "break":
        lock.acquire()
        board[TOTAL] += 1
        os.kill(os.getpid(), signal.SIGKILL)  # between the two


main(*sys.argv[1:])
