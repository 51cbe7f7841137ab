# SPDX-License-Identifier: Apache-2.0
"""PyTorch's CUDA: the only module of the package that reaches it.

tests/python/cuda_torch.py puts the fake driver behind the same names of PyTorch.

Storages are shared here as those of the CPU are in _torch_storage.py, but memory of PyTorch's own allocator stays
where it is, if the driver can show it to other processes. A storage that is sent is recorded on the current stream
of the thread that sends it, and the current stream of the thread that receives it waits for that. So work is
ordered as if both were one program, and no process waits.
"""

import ctypes
import threading
import warnings

import torch

from . import _core
from ._torch_private import address_of_fail, exchange, untyped

# How often, and how many bytes, storages of other allocators were copied into tenon's memory.
copies = {"count": 0, "bytes": 0}
_copies_lock = threading.Lock()


def is_available():
    """Whether this PyTorch can have tensors on CUDA devices, and tenon's devices are the same ones."""
    return torch.version.hip is None and torch.cuda.is_available()


def check():
    if torch.version.hip is not None:
        raise NotImplementedError("tenon does not share memory of ROCm's devices yet: move the tensor to the CPU first")


def index_of(device):
    """The number of a torch.device."""
    return torch.cuda.current_device() if device.index is None else device.index


def current_stream(index):
    """The number of the stream to which this thread gives work on a device now."""
    return torch.cuda.current_stream(index).cuda_stream


def stream_for(tensor):
    """The same, for the device of a tensor of tenon."""
    return current_stream(int(tensor.device.partition(":")[2]))


def name_of(device):
    """The name that tenon has for a torch.device."""
    return f"cuda:{index_of(device)}"


def uuid_of(device):
    """The name of a torch.device in all processes."""
    name = _core.find_device(name_of(device))
    return next(found[2] for found in _core.devices() if found[0] == name)


def record(tensor):
    """Say that the current stream was given the work on a tensor of tenon, if it is on a device.

    The address of the tensor is asked for before: whoever asks for it afterwards may give further work.
    """
    if tensor.device != "cpu":
        tensor.record(stream_for(tensor))


def capsule_of(tensor, stream):
    """A tensor of PyTorch on a device as a DLPack capsule; the stream, by DLPack's number, waits for its work.

    __dlpack__() takes the current device for that of the tensor, or refuses any other.
    """
    with torch.cuda.device(tensor.device):
        return tensor.__dlpack__(stream=stream)


def storage_over(tensor):
    """A storage over all of a tensor of tenon, uint8 [n] on a device, without waiting for its content."""
    return untyped(torch.utils.dlpack.from_dlpack(tensor.__dlpack__(stream=-1)))


def bytes_of(storage):
    """All of a storage, as uint8 [n]."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))


def bring_in(storage, domain, shown, timeout):
    """Share a storage of another allocator where its memory is, or else in a copy that it gets for its memory.

    Returns the tensor over it.
    """
    stream = torch.cuda.current_stream(index_of(storage.device))
    former = bytes_of(storage)
    # A capsule has no order of its own, and __dlpack__() refuses a device other than the current one.
    tensor = _core.from_dlpack(torch.utils.dlpack.to_dlpack(former)).view(*shown)
    tensor.share(domain, timeout, stream=stream)
    if tensor.address != storage.data_ptr():
        former.record_stream(stream)  # its allocator gives the memory to others after the copy
        exchange(storage, storage_over(tensor.view((storage.nbytes(),), "uint8")))
        _core.note_copy(storage.nbytes())
        _count_copy(storage.nbytes())
    tensor.record(stream)
    return tensor


def _count_copy(size_bytes):
    with _copies_lock:
        copies["count"] += 1
        copies["bytes"] += size_bytes
        is_first = copies["count"] == 1
    if is_first:
        warnings.warn(
            "a CUDA tensor was copied into tenon's memory, since the driver has no handle for memory of this kind, such "
            "as PyTorch's expandable segments: tenon.torch.empty() and tenon.torch.allocator() make tensors in tenon's "
            "memory at once, and tenon.torch.copies() counts",
            RuntimeWarning,
            stacklevel=2,
        )


def make_allocator(domain):
    """PyTorch's allocator over the functions of python/core/torch_memory.c."""
    check()
    _core.set_torch_memory(domain, address_of_fail())
    made = torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, "tenon_torch_alloc", "tenon_torch_free")
    inner = made.allocator()
    if hasattr(inner, "set_record_stream_fn"):  # what Tensor.record_stream() calls
        function = ctypes.CDLL(_core.__file__).tenon_torch_record_stream
        inner.set_record_stream_fn(ctypes.cast(function, ctypes.c_void_p).value)
    return made
