# SPDX-License-Identifier: Apache-2.0
"""The two stages of pipeline.py. They are a module of their own, so that dask.distributed sends their names."""

import contextlib
import os
import threading
import time

os.environ.update(POCL_AFFINITY="1", POCL_MAX_PTHREAD_COUNT="1", OMP_NUM_THREADS="1")  # the device: core 0
os.environ.setdefault("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")  # where Debian's PoCL says that it is

import numpy as np  # noqa: E402
import pyopencl as cl  # noqa: E402
import tenon  # noqa: E402
from sklearn.datasets import load_sample_images  # noqa: E402

ITERATIONS = 5  # of the deconvolution
RADIUS = 2  # of the filter, in pixels
KERNEL = """
__kernel void denoise(__global const float *in, __global float *out, int width, int height, int radius)
{
    int x = get_global_id(0), y = get_global_id(1);
    float center = in[y * width + x], sum = 0, weight = 0;
    for (int j = -radius; j <= radius; j++)
        for (int i = -radius; i <= radius; i++) {
            float value = in[clamp(y + j, 0, height - 1) * width + clamp(x + i, 0, width - 1)], far = value - center;
            float part = native_exp(-(float)(i * i + j * j) / (2 * radius * radius) - far * far * 50);
            sum += part * value;
            weight += part;
        }
    out[y * width + x] = sum / weight;
}
"""


class Device:
    """An OpenCL device."""

    def __init__(self):
        platforms = [platform for platform in cl.get_platforms() if "Portable Computing" in platform.name]
        if not platforms:
            raise SystemExit("there is no PoCL: as root, apt-get install pocl-opencl-icd")
        self.device = platforms[0].get_devices()[0]
        self.context = cl.Context([self.device])
        self.local = threading.local()  # a queue for each thread, so that none waits for another's kernel
        self.program = cl.Program(self.context, KERNEL).build()

    def denoise(self, frame):
        """Both arrays lie in tenon's memory, and the device uses them where they are."""
        queue = getattr(self.local, "queue", None)
        if queue is None:
            queue = self.local.queue = cl.CommandQueue(self.context)
        out = np.asarray(tenon.empty(frame.shape, "float32"))
        flags = cl.mem_flags.USE_HOST_PTR
        source = cl.Buffer(self.context, cl.mem_flags.READ_ONLY | flags, hostbuf=frame)
        target = cl.Buffer(self.context, cl.mem_flags.WRITE_ONLY | flags, hostbuf=out)
        height, width = frame.shape
        kernel = cl.Kernel(self.program, "denoise")  # one for each call: its arguments are its state
        done = kernel(queue, (width, height), None, source, target, *map(np.int32, (width, height, RADIUS)))
        done.wait()
        _, mapped = cl.enqueue_map_buffer(
            queue, target, cl.map_flags.READ, 0, out.shape, out.dtype, wait_for=[done], is_blocking=False
        )
        mapped.wait()
        return out


class Log:
    """What the stages did, by their own clock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.spans = []

    @contextlib.contextmanager
    def span(self, stage):
        began = time.perf_counter()
        yield
        with self.lock:
            self.spans.append((stage, began, time.perf_counter(), threading.get_ident()))


def make_blur(shape):
    """What the lens does, as a factor of each frequency."""
    y, x = np.meshgrid(*[np.fft.fftfreq(n) * n for n in shape], indexing="ij")
    blur = np.exp(-(x * x + y * y) / (2 * 1.5**2))
    return np.fft.rfft2(blur / blur.sum())


device, log = Device(), Log()
photographs = [image.astype(np.float32).mean(axis=2) / 255 for image in load_sample_images().images]
blur = make_blur(photographs[0].shape)


def filtered(image, factors):
    return np.fft.irfft2(np.fft.rfft2(image) * factors, image.shape)


def sharpen(numbers):
    """A frame, deconvolved. For dask.array.map_blocks()."""
    with log.span("CPU"):
        number = int(numbers[0])
        frame = np.roll(photographs[number % 2], 5 * number, axis=1)
        estimate = frame + 0.01
        for _ in range(ITERATIONS):
            estimate = estimate * filtered(frame / np.maximum(filtered(estimate, blur), 1e-3), np.conj(blur))
        out = np.asarray(tenon.empty((1, *frame.shape), "float32"))
        out[0] = estimate
        return out


@tenon.resources(GPU=1, CPU=0)
def denoise(frames):
    with log.span("GPU"):
        return device.denoise(frames[0])[np.newaxis]
