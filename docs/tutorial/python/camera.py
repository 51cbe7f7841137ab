# SPDX-License-Identifier: Apache-2.0
# show: send
import sys

import numpy as np
import tenon
from picture import HEIGHT, WIDTH, digit_of, draw_frame


def send_frame(frames, number):
    picture = np.asarray(tenon.empty((HEIGHT, WIDTH), "uint8"))
    draw_frame(picture, number)
    message = [picture, np.array([number], np.int32)]  # two tensors
    while True:
        try:
            return frames.put(message)
        except tenon.PeerDied:
            pass  # the last worker died while the queue was full: another one may come
# end


# show: collect
def collect(readings, timeout, read):
    """Count the readings that have come, each frame once."""
    try:
        message = readings.receive(timeout)
    except tenon.TimedOut:
        return False
    except tenon.PeerDied:
        return True  # another worker may come
    number, digit, process = np.asarray(message.tensors[0])
    read[int(number)] = int(digit)  # it comes twice if its worker died before it acknowledged
    return True
# end


# show: main
def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    name = sys.argv[2] if len(sys.argv) > 2 else "frames"
    frames = tenon.Queue(name, domain="line", capacity=16, lease=True)
    readings = tenon.Queue("readings", domain="line", capacity=1024)
    read = {}
    for number in range(1, count + 1):
        send_frame(frames, number)
        while collect(readings, 0, read):
            pass
    frames.end()  # workers take what is left, and end
    while len(read) < count:
        if not collect(readings, 30, read):
            sys.exit("no reading came for 30 seconds")
    right = sum(digit == digit_of(number) for number, digit in read.items())
    print(right, "of", count, "frames were read right")


main()
# end
