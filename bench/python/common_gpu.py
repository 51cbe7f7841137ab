# SPDX-License-Identifier: Apache-2.0
"""What the programs share that compare CUDA tensors of tenon.torch with those of torch.multiprocessing.

A driver does not survive a fork, so each process calls begin() itself, before it uses a device. With
TENON_TEST_FAKECUDA, the fake driver of the tests, and a PyTorch without CUDA, the programs run on the tests' stand-in
for CUDA (tests/python/cuda_torch.py). That shows that they work, and says nothing about a GPU.
"""

import contextlib
import os
import pathlib
import subprocess
import sys

NOT_THERE = 77
SIDES = ("torch", "tenon")
WAIT_S = 60
DEVICE = "cuda:0"
SLEEP_CYCLES = 1_000_000_000  # of a GPU: half a second or more
LOOK = """
import torch
print("" if torch.cuda.is_available() else "PyTorch " + torch.__version__ + " has no CUDA device")
"""


def is_rehearsal():
    return "TENON_TEST_FAKECUDA" in os.environ


def missing():
    """Why nothing can be measured here, in a sentence without its end; "": it can. This process stays without CUDA."""
    look = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    if look.returncode != 0:
        return "this Python has no PyTorch"
    return "" if is_rehearsal() else look.stdout.strip()


def begin():
    """What a process does before it uses a device. Return torch."""
    import torch

    if is_rehearsal():
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "python"))
        import cuda_torch

        cuda_torch.install()
        cuda_torch.install_sharing()
    return torch


def begin_side(side):
    """begin() for a process of one side. Return torch, and the side's context of multiprocessing."""
    torch = begin()
    if side == "tenon":
        import tenon.multiprocessing as package
        import tenon.torch

        tenon.torch.install()
    else:
        import torch.multiprocessing as package
    return torch, package.get_context("spawn")


def maker(side):
    """A function that makes a uint8 tensor as a program of this side does."""
    if side == "tenon":
        from tenon.torch import empty
    else:
        from torch import empty

    def make(size_bytes, value=0):
        import torch

        return empty(size_bytes, dtype=torch.uint8, device=DEVICE).fill_(value)

    return make


@contextlib.contextmanager
def busy(torch, stream):
    """A stream has work that takes a while: what the block gives it is not done when the block begins to wait."""
    if is_rehearsal():
        import cuda_torch

        with cuda_torch.held(stream):
            yield
    else:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP_CYCLES)
        yield


def free_bytes(torch):
    """Bytes of the device that no process uses."""
    if not is_rehearsal():
        return torch.cuda.mem_get_info(DEVICE)[0]
    import ctypes

    import cuda_torch

    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with cuda_torch.context(0) as fake:
        assert fake.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


def tensors_there(torch):
    """What PyTorch's allocator has given out: bytes, and in a rehearsal pieces."""
    if not is_rehearsal():
        torch.cuda.ipc_collect()
        return torch.cuda.memory_allocated(DEVICE)
    import cuda_torch

    return len(cuda_torch.state.lent)
