# SPDX-License-Identifier: Apache-2.0
"""PyTorch's storages in tenon's memory: what can be moved there, and what lies there."""

import ctypes
import os
import threading
import weakref

import torch
from torch.multiprocessing import reductions as _theirs

from . import _core, _domain
from ._torch_version import filename_of, is_resizable, untyped

MAX_NDIM = 32  # of a tensor of tenon's

is_shared_originally = torch.UntypedStorage.is_shared

# ---- what a storage is made of
#
# PyTorch has no call that gives a storage other memory. So the words of the object behind it
# that hold the pointer, its deleter, the device, the size and the flags are exchanged with
# those of a storage of the same size over shared memory. Where they are is looked up in
# storages made for it, and the exchange is tried on these; nothing else is touched unless that
# went well.

LOOKED_AT_WORDS = 8
SWAPPED_WORDS = 6  # pointer, deleter, context, device; size; flags, whether it can be resized
TRIED_BYTES = 4099

words_at = None  # bytes into the object; None: not tried yet


class Witness(bytearray):
    """Memory whose end can be seen, by a weak reference."""


def lent_storage(fill):
    witness = Witness(bytes([fill]) * TRIED_BYTES)
    storage = untyped(torch.from_dlpack(_core.from_buffer(witness)))
    return storage, weakref.ref(witness)


def looks(storage):
    return storage.data_ptr(), storage.nbytes(), is_resizable(storage), storage[0]


def locate(storage):
    words = (ctypes.c_size_t * LOOKED_AT_WORDS).from_address(storage._cdata)[:]
    places = [i for i, word in enumerate(words) if word == storage.data_ptr()]
    return places[0] if places else None


def try_swap(one, other, place):
    """Exchange them, and say whether each then is what the other was; if not, as before."""
    if place is None or locate(other) != place:
        return False
    before = looks(one), looks(other)
    swap(one, other, place * ctypes.sizeof(ctypes.c_size_t))
    if (looks(other), looks(one)) == before:
        return True
    swap(one, other, place * ctypes.sizeof(ctypes.c_size_t))
    return False


def swap(one, other, at):
    _core.swap_words(one._cdata + at, other._cdata + at, SWAPPED_WORDS)


def find_words():
    """Where the words are, or None if PyTorch's storages are not as expected."""
    own = torch.UntypedStorage(TRIED_BYTES).fill_(1)
    lent, witness = lent_storage(2)
    place = locate(own)
    if not is_resizable(own) or is_resizable(lent) or not try_swap(own, lent, place):
        return None
    del own
    if witness() is not None or lent[0] != 1:
        return None
    lent, witness = lent_storage(3)
    other, other_witness = lent_storage(4)
    if not try_swap(lent, other, place):
        return None
    del lent
    if witness() is None or other_witness() is not None:
        return None
    del other
    return place * ctypes.sizeof(ctypes.c_size_t) if witness() is None else None


def check_words():
    global words_at
    if words_at is None:
        words_at = find_words()
    if words_at is None:
        raise NotImplementedError(
            f"tenon cannot move storages of PyTorch {torch.__version__} into shared memory: "
            "they are not made as those of the versions it knows"
        )


# ---- the storages over tenon's memory


class Storages:
    """This process's storages over tenon's memory, by address and size; it keeps none alive."""

    SWEPT_AT_LEAST = 128

    def __init__(self):
        self._entries = {}  # (address, bytes): (StorageWeakRef, weak reference to the domain)
        self._sweep_at = self.SWEPT_AT_LEAST

    def add(self, storage, domain):
        key = storage.data_ptr(), storage.nbytes()
        self._entries[key] = _theirs.StorageWeakRef(storage), weakref.ref(domain)
        if len(self._entries) > self._sweep_at:
            self._sweep()

    def _sweep(self):
        for key, entry in list(self._entries.items()):
            if entry[0].expired():
                del self._entries[key]
        self._sweep_at = max(self.SWEPT_AT_LEAST, 2 * len(self._entries))

    def get(self, address, size_bytes):
        entry = self._entries.get((address, size_bytes))
        storage = entry and torch.UntypedStorage._new_with_weak_ptr(entry[0].cdata)
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
    return storage._share_fd_cpu_()[0] >= 0  # -1: a private mapping of a file


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
    swap(storage, former, words_at)
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
