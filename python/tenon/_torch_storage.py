# SPDX-License-Identifier: Apache-2.0
"""PyTorch's storages in tenon's memory: what can be moved there, and what lies there."""

import ctypes
import os
import threading
import weakref

import torch

from . import _core, _domain
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

MAX_NDIM = 32  # of a tensor of tenon's

is_shared_originally = torch.UntypedStorage.is_shared

# ---- the storages over tenon's memory


class Storages:
    """This process's storages over tenon's memory, by address and size; it keeps none alive."""

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
        # One that was given other memory since is not what is looked for.
        if storage is None or (storage.data_ptr(), storage.nbytes()) != (address, size_bytes):
            return None
        return storage

    def domain_of(self, storage):
        entry = self._entries.get((storage.data_ptr(), storage.nbytes()))
        return entry and entry[1]()


storages = Storages()
lock = threading.RLock()


def renew_lock():
    """A forked child has none of the threads that may have held it."""
    global lock
    lock = threading.RLock()


os.register_at_fork(after_in_child=renew_lock)


def find(storage, domain=None):
    """Tenon's tensor over a storage's memory; None if it lies in no domain that is known."""
    looked_at = []
    for known in (domain, storages.domain_of(storage), _domain._present):
        if known is None or known.closed or known in looked_at:
            continue
        looked_at.append(known)
        found = known.find(storage.data_ptr(), storage.nbytes())
        if found is not None:
            return found
    return None


def is_theirs(storage):
    """Whether PyTorch shares its memory, by a descriptor, a name or a file."""
    if not is_shared_originally(storage):
        return False
    if (
        filename_of(storage) is not None
        or torch.multiprocessing.get_sharing_strategy() == "file_system"
    ):
        return True
    return descriptor_of(storage) >= 0  # -1: a private mapping of a file


def over(tensor):
    """A storage over all of a shared, contiguous tensor: the one there is, or a new one."""
    if tensor.readonly:
        raise ValueError(
            "the memory is read-only, and PyTorch knows no such tensors: copy() it first"
        )
    with lock:
        storage = storages.get(tensor.address, tensor.nbytes)
        if storage is None:
            if tensor.dtype != "uint8" or tensor.ndim != 1:
                tensor = tensor.view((tensor.nbytes,), "uint8", None, tensor.byte_offset)
            storage = untyped(torch.from_dlpack(tensor))
            storages.add(storage, tensor.domain)
        return storage


def move(storage, target):
    """Give a storage the memory of a new tensor of its size, and what was in it."""
    size_bytes, memory = storage.nbytes(), target.view((storage.nbytes(),), "uint8")
    if is_resizable(storage):
        former = untyped(torch.from_dlpack(memory))
    else:  # an array of NumPy's, say, looks at it for as long as the storage lives
        window = (ctypes.c_ubyte * size_bytes).from_buffer(memory)
        former = window.former = untyped(torch.frombuffer(window, dtype=torch.uint8))
    ctypes.memmove(former.data_ptr(), storage.data_ptr(), size_bytes)
    exchange(storage, former)
    storages.add(storage, target.domain)


def share(storage, domain=None, timeout=0, tensor=None):
    """Tenon's tensor over a storage in main memory, which is moved if nobody shares it yet.

    None: PyTorch shares it. tensor: as what `tenon blocks` shows it, if it is all of it.
    """
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
        found = find(storage, domain)  # another thread may have moved it meanwhile
        if found is None:
            move(storage, target)
        return target if found is None else found


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
