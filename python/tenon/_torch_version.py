# SPDX-License-Identifier: Apache-2.0
"""What PyTorch calls differently from version to version, by one name each; from 1.13 on."""

import ctypes
import os
from operator import methodcaller
from typing import NamedTuple

import torch

if not hasattr(torch, "UntypedStorage"):
    raise ImportError(f"PyTorch {torch.__version__} is too old for tenon.torch: 1.13 is wanted")

# The view of a buffer, the sizes, the strides and the offsets that a nested tensor is made of.
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


# ---- what a storage tells of itself

SEEN_BYTES = 72  # of the object: less than the least of them has


def find_flag():
    """Bytes into the object behind a storage: whether it can be resized, which a loan ends."""
    tensor = torch.zeros(1)
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


class Mapping(NamedTuple):
    path: str  # where it is now; " (deleted)" behind it if it is nowhere
    file: tuple  # its device and its inode


def mapping_of(storage):
    """Where a storage is a shared mapping of a file; None: it is none."""
    begin = f"{storage.data_ptr():x}-".encode()
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            if line.startswith(begin):
                fields = line.rstrip(b"\n").split(maxsplit=5)
                if len(fields) < 6 or not fields[1].endswith(b"s"):
                    return None
                path = os.fsdecode(fields[5].replace(b"\\012", b"\n"))
                return Mapping(path, (fields[3], fields[4]))
    return None


def mapped_file(storage):
    """The file that a storage is; None: it is none, a copy of one, or one that was deleted."""
    mapping = mapping_of(storage)
    if mapping is None or (mapping.path.endswith(" (deleted)") and not os.path.exists(mapping.path)):
        return None
    return mapping.path


if hasattr(torch.UntypedStorage, "filename"):
    filename_of = torch.UntypedStorage.filename.fget
else:
    filename_of = mapped_file
