# SPDX-License-Identifier: Apache-2.0
# show: child
import numpy as np
import tenon
import tenon.multiprocessing as mp
from picture import HEIGHT, WIDTH, draw_frame, read_picture


def look(queue):
    frame = queue.get()
    print("the child sees a", read_picture(frame)[0], flush=True)
    frame[0, 0] = 255  # its first pixel, in the one memory of both
# end


# show: parent
if __name__ == "__main__":
    queue = mp.Queue()
    child = mp.Process(target=look, args=(queue,))
    child.start()
    frame = np.asarray(tenon.empty((HEIGHT, WIDTH), "uint8"))
    draw_frame(frame, 3)
    queue.put(frame)
    child.join()
    print("the parent reads the child's pixel:", frame[0, 0])
# end
