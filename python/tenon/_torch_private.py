# SPDX-License-Identifier: Apache-2.0
"""The private parts of PyTorch that tenon needs, for PyTorch 1.13 and newer.

No other module of the package names them. tests/python/test_private_parts.py checks each part of
PARTS by its name. What is called differently from version to version has one name here.
"""

import collections
import ctypes
import os
import weakref
from operator import attrgetter, methodcaller

import torch
from torch.multiprocessing import reductions

from . import _core

if not hasattr(torch, "UntypedStorage"):
    raise ImportError(f"PyTorch {torch.__version__} is too old for tenon.torch: 1.13 is wanted")

# A part: where it stands, by the first of several paths that exists; and what in tenon needs it.
Part = collections.namedtuple("Part", ["paths", "need"])
_BITS = "conjugated and negated tensors arrive so"
_NESTED = "nested tensors travel as their parts"
PARTS = [
    Part(paths.split(), need)
    for paths, need in (
        ("torch.UntypedStorage._cdata", "the words of a storage are found and exchanged"),
        ("torch.UntypedStorage._share_fd_cpu_", "is_theirs(): who shares a storage"),
        ("torch.UntypedStorage._new_with_weak_ptr", "one storage for each memory of tenon's"),
        ("torch.UntypedStorage._new_shared", "install(): what a DataLoader collates into"),
        ("torch.multiprocessing.reductions.StorageWeakRef", "one storage for each memory of tenon's"),
        ("torch.multiprocessing.reductions.reduce_storage", "storages that PyTorch shares"),
        ("torch.Tensor.untyped_storage torch.Tensor.storage", "the storage of a tensor"),
        ("torch.Tensor._typed_storage torch.Tensor.storage", "the storage of a quantized tensor"),
        ("torch._utils._rebuild_qtensor", "quantized tensors arrive"),
        ("torch._C._set_conj", _BITS),
        ("torch._C._set_neg", _BITS),
        ("torch.Tensor._is_zerotensor", "a tensor without memory is refused"),
        ("torch.Tensor._coalesced_", "sparse tensors arrive"),
        ("torch.Tensor._indices", "sparse tensors travel as their parts"),
        ("torch.Tensor._values", "sparse tensors travel as their parts"),
        ("torch.ops.aten._nested_view_from_buffer", _NESTED),
        ("torch.ops.aten._nested_tensor_size", _NESTED),
        ("torch.ops.aten._nested_tensor_strides", _NESTED),
        (
            "torch.ops.aten._nested_tensor_storage_offsets torch.ops.aten._nested_tensor_offsets",
            _NESTED,
        ),
        ("torch.nn.Module._apply", "share_memory() of a module"),
        ("torch.nn.parameter.is_lazy", "a parameter without a shape is refused"),
        ("torch.utils.hooks.warn_if_has_hooks", "hooks stay behind"),
    )
]

# The functions that make a nested tensor, and that give its sizes, strides and offsets.
nested_view = torch.ops.aten._nested_view_from_buffer
nested_sizes = torch.ops.aten._nested_tensor_size
nested_strides = torch.ops.aten._nested_tensor_strides

if hasattr(torch.ops.aten, "_nested_tensor_storage_offsets"):
    nested_offsets = torch.ops.aten._nested_tensor_storage_offsets
else:
    nested_offsets = torch.ops.aten._nested_tensor_offsets

if hasattr(torch.Tensor, "untyped_storage"):
    typed, untyped = methodcaller("_typed_storage"), methodcaller("untyped_storage")
else:
    typed = methodcaller("storage")

    def untyped(tensor):
        return tensor.storage().untyped()

StorageWeakRef = reductions.StorageWeakRef
reduce_storage = reductions.reduce_storage
rebuild_quantized = torch._utils._rebuild_qtensor
is_lazy = torch.nn.parameter.is_lazy
warn_if_has_hooks = torch.utils.hooks.warn_if_has_hooks
is_without_memory = methodcaller("_is_zerotensor")


def missing_parts():
    """A sentence for each part that this PyTorch does not have."""
    return [
        f"PyTorch {torch.__version__} has no {' and no '.join(part.paths)}: tenon needs it for {part.need}"
        for part in PARTS
        if not any(_has(path) for path in part.paths)
    ]


def _has(path):
    try:
        attrgetter(path.partition(".")[2])(torch)
    except (AttributeError, RuntimeError):  # torch.ops raises the second
        return False
    return True


# ---- tensors


def set_bits(tensor, is_conj, is_neg):
    """Say that a tensor shows its memory conjugated, negated or both."""
    torch._C._set_conj(tensor, is_conj)
    torch._C._set_neg(tensor, is_neg)


def set_coalesced(tensor, is_coalesced):
    """Say whether the indices of a sparse tensor are sorted and unique; returns the tensor."""
    return tensor._coalesced_(is_coalesced)


def sparse_parts(tensor):
    """The indices and the values of a sparse tensor in coordinates."""
    return tensor._indices(), tensor._values()


def apply_to_module(module, function):
    """Replace the parameters and buffers of a module by what `function` gives; the module."""
    return module._apply(function)


# ---- errors

FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"  # c10::detail::torchCheckFail(), which throws a c10::Error


def address_of_fail():
    """The address of the function that throws PyTorch's exception; 0: this PyTorch has none."""
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    try:
        return ctypes.cast(getattr(ctypes.CDLL(path), FAIL), ctypes.c_void_p).value
    except (OSError, AttributeError):
        return 0


# ---- what a storage tells of itself

SEEN_BYTES = 72  # of a StorageImpl; every version has more


def find_flag():
    """The offset of the flag that says whether a storage can be resized. numpy() clears the flag."""
    tensor = torch.zeros(1, device="cpu")  # whatever the default device is
    seen = (ctypes.c_ubyte * SEEN_BYTES).from_address(untyped(tensor)._cdata)
    before = bytes(seen)
    tensor.numpy()
    changed = [i for i, was in enumerate(before) if (was, seen[i]) == (1, 0)]
    if len(changed) != 1:
        raise ImportError(f"a storage of PyTorch {torch.__version__} does not show its flags")
    return changed[0]


if hasattr(torch.UntypedStorage, "resizable"):
    is_resizable = torch.UntypedStorage.resizable
else:
    FLAG_AT = find_flag()

    def is_resizable(storage):
        return ctypes.c_bool.from_address(storage._cdata + FLAG_AT).value


# PyTorch's name of the file that a storage is shared by; None where PyTorch does not tell it.
shared_filename = getattr(getattr(torch.UntypedStorage, "filename", None), "fget", None)


def descriptor_of(storage):
    """The descriptor by which PyTorch shares a storage; -1: the storage is a private mapping."""
    return storage._share_fd_cpu_()[0]


def storage_of_reference(reference):
    """The storage that a StorageWeakRef is of; None: there is none any more."""
    return torch.UntypedStorage._new_with_weak_ptr(reference.cdata)


# ---- what a storage is made of
#
# PyTorch has no call that gives a storage other memory. So tenon exchanges words of two StorageImpl
# objects of the same size: the pointer, its deleter, the device, the size and the flags.
# find_words() finds the place of the words in storages that it makes, and tries the exchange on
# them. No other storage is touched unless all checks pass. Decision 0088 says why it is done so.

LOOKED_AT_WORDS = 8
SWAPPED_WORDS = 6  # pointer, deleter, context, device; size; flags, whether it can be resized
TRIED_BYTES = 4099

words_at = None  # offset in the object, in bytes; None: not found yet


class Witness(bytearray):
    """Memory that can be watched by a weak reference until it is freed."""


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
    """Exchange two storages and check that each looks as the other did. If not, undo it: False."""
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
    """The offset of the words; None if PyTorch's storages are not as expected."""
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


def exchange(one, other):
    """Give each of two storages the memory of the other. check_words() has succeeded before."""
    swap(one, other, words_at)
