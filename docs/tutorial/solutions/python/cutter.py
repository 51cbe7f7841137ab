# SPDX-License-Identifier: Apache-2.0
"""The first exercise: takes whole frames, and puts views of their digits."""

import time

import numpy as np
import tenon
from picture import CELL, read_picture

frames = tenon.Queue("frames", domain="line", capacity=16, lease=True)
crops = tenon.Queue("crops", domain="line", capacity=16, lease=True)
while True:
    try:
        message = frames.receive()
    except (tenon.Closed, tenon.PeerDied):  # ended, or the camera died
        break
    with message:
        picture, number = (np.asarray(tensor) for tensor in message.tensors)
        digit, top, left = read_picture(picture)
        crop = picture[top * CELL : (top + 5) * CELL, left * CELL : (left + 3) * CELL]
        crops.put([crop, number])  # views of memory that is shared: nothing is copied
crops.end()
# The worker may be started late: without this process the queue would end with its messages.
give_up = time.monotonic() + 30  # as long as the camera waits
while crops.qsize() > 0 and time.monotonic() < give_up:
    time.sleep(0.01)
