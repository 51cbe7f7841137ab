# SPDX-License-Identifier: Apache-2.0
# show: main
import os
import sys

import numpy as np
import tenon
from picture import read_picture

name = sys.argv[1] if len(sys.argv) > 1 else "frames"
frames = tenon.Queue(name, domain="line", capacity=16, lease=True)
readings = tenon.Queue("readings", domain="line", capacity=1024)
count = 0
print("process", os.getpid(), "waits for frames", flush=True)
while True:
    try:
        message = frames.receive(timeout=30)
    except tenon.Closed:
        break
    with message:  # until its end another worker would get the message again
        picture, number = (np.asarray(tensor) for tensor in message.tensors)
        digit, top, left = read_picture(picture)
        readings.put(np.array([number[0], digit, os.getpid()], np.int32))
    count += 1
print("process", os.getpid(), "read", count, "frames")
# end
