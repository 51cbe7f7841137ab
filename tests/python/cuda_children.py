# SPDX-License-Identifier: Apache-2.0
"""What tests of PyTorch's CUDA tensors share: children that have such tensors over the fake driver.

A test's process starts its children by spawn, since a driver does not survive a fork.
"""

import gc
import warnings
from multiprocessing import util

import cuda_torch
import pytest
import tenon
import tenon.multiprocessing as mp
import tenon.torch
import torch
from devices import WAIT_S, needs_driver
from tenon import _core, _domain

needs_torch = [
    needs_driver,
    pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA, and the driver is a fake one"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
CUDA = "cuda:0"


def give_back():
    """Let PyTorch have its memory back that nobody has any more."""
    for device in cuda_torch.state.contexts:
        torch.cuda.synchronize(device)  # memory whose work is not done stays
    if _domain.present() is not None:
        _domain.present().trim()


@pytest.fixture
def torch_child(child):
    """A child that has CUDA tensors, and leaves nothing behind."""

    def run(case):
        def whole():
            cuda_torch.install()
            tenon.torch.install()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case()
            gc.collect()
            give_back()
            if _core.torch_memory_count() == 0 and not cuda_torch.state.lent:
                cuda_torch.end()
            else:
                raise AssertionError(f"left: {_core.torch_memory_count()} pieces, {cuda_torch.state.lent}")

        child(whole)

    return run


def start(target, *args):
    process = mp.get_context("spawn").Process(target=in_child, args=(target, *args), daemon=True)
    process.start()
    return process


def in_child(target, *args):
    begin()
    target(*args)


def begin():
    """What a spawned child does first; last it ends the driver, of which the fake one wants no remains."""
    cuda_torch.install()
    warnings.simplefilter("ignore")
    util.Finalize(None, leave, exitpriority=-100)


def leave():
    gc.collect()
    _domain.leave()
    cuda_torch.end()


def finish(process):
    process.join(WAIT_S)
    assert process.exitcode == 0


def queues(count):
    context = mp.get_context("spawn")
    return [context.Queue() for _ in range(count)]


def ours(*size, dtype=torch.uint8, value=0):
    return tenon.torch.empty(*size, dtype=dtype, device=CUDA).fill_(value)


def theirs(*size, dtype=torch.uint8, value=0):
    return torch.empty(*size, dtype=dtype, device=CUDA).fill_(value)


class Installed:
    """An argument of a process that gives it CUDA before the arguments behind it are read."""

    def __reduce__(self):
        return cuda_torch.install, ()


def blocks_on_devices():
    """The storages of tensors on devices that the domain has, as `tenon blocks` shows them."""
    blocks = _core.inspect_domain(tenon.domain().name)["blocks"]
    return [block for block in blocks if block["kind"] == "tensor" and block["strategy"].startswith("cuda_")]
