# SPDX-License-Identifier: Apache-2.0
import numpy as np
import tenon.multiprocessing as mp  # in place of multiprocessing, or of torch.multiprocessing


def produce(queue):
    queue.put({"frame": 1, "image": np.full((1080, 1920, 3), 42, np.uint8)})


if __name__ == "__main__":
    queue = mp.Queue()
    process = mp.Process(target=produce, args=(queue,))
    process.start()
    message = queue.get()  # the image is in shared memory: no byte of it is copied here
    process.join()
    print("the child sent", message["image"].shape, message["image"].mean())
