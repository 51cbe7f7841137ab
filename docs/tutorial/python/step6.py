# SPDX-License-Identifier: Apache-2.0
# show: camera
import time

import numpy as np
import tenon
import tenon.multiprocessing as mp
from picture import HEIGHT, WIDTH, draw_frame, read_picture

FRAMES, ROOM, ROUNDS = 60, 4, 100


def film(frames, dropped):
    for number in range(FRAMES):
        due = time.monotonic() + 0.01  # when the next frame is due
        frame = np.asarray(tenon.empty((HEIGHT, WIDTH), "uint8"))
        draw_frame(frame, number)
        try:
            frames.put(frame, timeout=max(0, due - time.monotonic()))
        except tenon.TimedOut:  # the queue is full, and this frame is late
            dropped.value += 1
    frames.end()  # no frame comes any more
# end


# show: main
if __name__ == "__main__":
    frames = tenon.Queue("frames", capacity=ROOM)
    dropped = mp.Value("i", 0)
    camera = mp.Process(target=film, args=(frames, dropped))
    camera.start()
    count = 0
    while True:
        try:
            frame = frames.get(timeout=5)
        except tenon.Closed:  # the queue was ended, and is empty
            break
        except tenon.PeerDied as error:
            print("the camera, process", error.pid, "was killed")
            break
        for _ in range(ROUNDS):
            read_picture(frame)
        count += 1
    camera.join()
    print(count, "frames were read,", dropped.value, "were dropped")
# end
