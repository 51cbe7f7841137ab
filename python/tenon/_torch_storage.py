# SPDX-License-Identifier: Apache-2.0
"""Storages of PyTorch over tenon's memory: moving them there and finding them."""

import ctypes
import os
import threading
import weakref

import torch

from . import _core, _domain, _torch_cuda
from ._torch_file import filename_of
from ._torch_private import (
    StorageWeakRef,
    check_words,
    descriptor_of,
    exchange,
    is_resizable,
    storage_of_reference,
    untyped,
)

MAX_NDIM = 32  # axes of a tensor of tenon

is_shared_originally = torch.UntypedStorage.is_shared

# ---- the storages over tenon's memory


class Storages:
    """The storages of this process over tenon's memory, by address and size. It keeps none alive."""

    SWEPT_AT_LEAST = 128

    def __init__(self):
        self._entries = {}  # (address, bytes): (StorageWeakRef, weak reference to the domain)
        self._sweep_at = self.SWEPT_AT_LEAST

    def add(self, storage, domain):
        key = storage.data_ptr(), storage.nbytes()
        self._entries[key] = StorageWeakRef(storage), weakref.ref(domain)
        if len(self._entries) > self._sweep_at:
            self._sweep()

    def _sweep(self):
        for key, entry in list(self._entries.items()):
            if entry[0].expired():
                del self._entries[key]
        self._sweep_at = max(self.SWEPT_AT_LEAST, 2 * len(self._entries))

    def get(self, address, size_bytes):
        entry = self._entries.get((address, size_bytes))
        storage = entry and storage_of_reference(entry[0])
        # The storage may have got other memory since.
        if storage is None or (storage.data_ptr(), storage.nbytes()) != (address, size_bytes):
            return None
        return storage

    def domain_of(self, storage):
        entry = self._entries.get((storage.data_ptr(), storage.nbytes()))
        return entry and entry[1]()


storages = Storages()
lock = threading.RLock()


def renew_lock():
    """A forked child has a new lock: a thread of the parent may hold the old one."""
    global lock
    lock = threading.RLock()


os.register_at_fork(after_in_child=renew_lock)


def find(storage, domain=None):
    """The tensor over a storage's memory; None if the memory lies in no domain of this process."""
    checked = []
    for known in (domain, storages.domain_of(storage), _domain._present):
        if known is None or known.closed or known in checked:
            continue
        checked.append(known)
        found = known.find(storage.data_ptr(), storage.nbytes())
        if found is not None:
            return found
    return None


def is_theirs(storage):
    """Whether PyTorch itself shares the memory, by a descriptor, a name or a file."""
    if not is_shared_originally(storage):
        return False
    if (
        filename_of(storage) is not None
        or torch.multiprocessing.get_sharing_strategy() == "file_system"
    ):
        return True
    return descriptor_of(storage) >= 0  # -1: a private mapping of a file


def check_device_of(tensor):
    if tensor.device != "cpu" and not _torch_cuda.is_available():
        raise TypeError(
            f'the tensor is on {tensor.device}, and this PyTorch has no CUDA: .to("cpu") makes a copy on the CPU'
        )


def over(tensor):
    """The storage over all of a shared, contiguous tensor. It is made if there is none."""
    check_device_of(tensor)
    if tensor.readonly:
        raise ValueError(
            "the memory is read-only, and PyTorch knows no such tensors: copy() it first"
        )
    is_on_cpu = tensor.device == "cpu"
    if not is_on_cpu:  # also if the storage is there already: each message has work of its own
        tensor.wait(_torch_cuda.stream_for(tensor))
    with lock:
        storage = storages.get(tensor.address, tensor.nbytes)
        if storage is None:
            if tensor.dtype != "uint8" or tensor.ndim != 1:
                tensor = tensor.view((tensor.nbytes,), "uint8", None, tensor.byte_offset)
            storage = untyped(torch.from_dlpack(tensor)) if is_on_cpu else _torch_cuda.storage_over(tensor)
            storages.add(storage, tensor.domain)
        elif not is_on_cpu:
            _torch_cuda.record(tensor)  # so that its end does not wait for the device
        return storage


def over_fixed(tensor):
    """The storage over all of a shared, contiguous tensor, also if this process may only read it.

    PyTorch does not know such memory: an operation that writes to it ends the process by SIGSEGV.
    """
    if not tensor.readonly:
        return over(tensor)
    with lock:
        storage = storages.get(tensor.address, tensor.nbytes)
        if storage is None:
            if tensor.dtype != "uint8" or tensor.ndim != 1:
                tensor = tensor.view((tensor.nbytes,), "uint8", None, tensor.byte_offset)
            window = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.address)
            window.memory = memoryview(tensor)  # which keeps the memory
            storage = untyped(torch.frombuffer(window, dtype=torch.uint8))
            storages.add(storage, tensor.domain)
        return storage


def move(storage, target):
    """Copy a storage into a new tensor of its size, and give the storage that memory."""
    size_bytes, memory = storage.nbytes(), target.view((storage.nbytes(),), "uint8")
    if is_resizable(storage):
        former = untyped(torch.from_dlpack(memory))
    else:  # for example, a NumPy array uses the memory as long as the storage lives
        window = (ctypes.c_ubyte * size_bytes).from_buffer(memory)
        former = window.former = untyped(torch.frombuffer(window, dtype=torch.uint8))
    ctypes.memmove(former.data_ptr(), storage.data_ptr(), size_bytes)
    exchange(storage, former)
    storages.add(storage, target.domain)


def share(storage, domain=None, timeout=0, tensor=None):
    """The tensor over a storage, which is moved into the domain if it is private.

    Returns None if PyTorch itself shares the storage. If `tensor` covers the whole storage, `tenon
    blocks` shows its shape and dtype.
    """
    if storage.device.type == "cuda":
        return _share_on_device(storage, domain, timeout, tensor)
    with lock:
        found = find(storage, domain)
        if found is None and is_theirs(storage):
            return None
        if found is not None:
            if storages.get(storage.data_ptr(), storage.nbytes()) is None:
                storages.add(storage, found.domain)
            return found
    check_words()
    domain = domain or _core.default_domain()
    target = domain.empty(*shown_as(storage, tensor), timeout)
    with lock:
        found = find(storage, domain)  # another thread may have moved the storage meanwhile
        if found is None:
            move(storage, target)
            _core.note_copy(storage.nbytes())
        return target if found is None else found


def _share_on_device(storage, domain, timeout, tensor):
    with lock:
        found = find(storage, domain)
        if found is None:
            check_words()
            domain = domain or _core.default_domain()
            found = _torch_cuda.bring_in(storage, domain, shown_as(storage, tensor), timeout)
        if storages.get(storage.data_ptr(), storage.nbytes()) is None:
            storages.add(storage, found.domain)
    return found


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def shown_as(storage, tensor):
    """The shape and dtype of a new block."""
    if tensor is not None and tensor.is_contiguous() and bytes_of(tensor) == storage.nbytes():
        try:
            dtype = _core.dtype_name(tensor.dtype)
        except TypeError:
            dtype = None
        if dtype is not None and tensor.dim() <= MAX_NDIM:
            return tuple(tensor.shape), dtype
    return (storage.nbytes(),), "uint8"
