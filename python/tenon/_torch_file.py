# SPDX-License-Identifier: Apache-2.0
"""Storages of PyTorch over files: how a message names the file, and how the receiver maps it.

When the message arrives, the path may lead to another file. PyTorch would create a missing file or
extend a short one. So the message identifies the file, and the receiver maps only that file, by a
descriptor.
"""

import contextlib
import ctypes
import os
import struct
from typing import NamedTuple

import torch

from . import _core
from ._torch_private import shared_filename

_OPENED = "/proc/self/fd/"
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTES, _BTIME_AT = 256, 80


class Mapping(NamedTuple):
    path: str  # the present path; it ends with " (deleted)" if the file has none
    file: tuple  # its device and its inode


def mapping_of(storage):
    """The shared mapping of a file that a storage is; None: the storage is none."""
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
    """The path of the file that a storage maps. None: it maps none, a private copy, or a deleted file."""
    mapping = mapping_of(storage)
    if mapping is None or (mapping.path.endswith(" (deleted)") and not os.path.exists(mapping.path)):
        return None
    return mapping.path


filename_of = shared_filename or mapped_file


def name(storage):
    """The arguments of open_again(). Raises NotFound if no path leads to the storage's file now."""
    mapping, size_bytes = mapping_of(storage), storage.nbytes()
    if mapping is None:
        raise _core.NotFound("/proc/self/maps does not show the file of a storage")
    with _found(mapping.path) as file:
        _check_size(mapping.path, file, size_bytes)
        # /proc/self/maps may show another device number than fstat(), so this compares with a second
        # mapping of the file.
        if mapping_of(_map(mapping.path, file, 1)).file != mapping.file:
            raise _core.NotFound(f"{mapping.path} is another file than that of the storage")
        return mapping.path, size_bytes, _identity_of(file)


def open_again(path, size_bytes, identity):
    """A storage over the file that name() has identified."""
    with _found(path) as file:
        if _identity_of(file) != identity:
            raise _core.Corrupt(f"{path} is another file than the one sent: it was replaced")
        _check_size(path, file, size_bytes)
        return _map(path, file, size_bytes)


def shown_name(storage):
    """The filename that PyTorch shows. For a storage that arrived it is the present path of the file."""
    given = filename_of(storage)
    is_opened = given is not None and given.startswith(_OPENED)
    return mapped_file(storage) if is_opened else given


@contextlib.contextmanager
def _found(path):
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)  # it neither creates the file nor changes it
    except (FileNotFoundError, NotADirectoryError):
        text = f"{path}, the file of a storage, is not there: it was renamed or removed"
        raise _core.NotFound(text) from None
    try:
        yield file
    finally:
        os.close(file)


def _check_size(path, file, size_bytes):
    found_bytes = os.fstat(file).st_size
    if found_bytes < size_bytes:
        raise _core.Corrupt(
            f"{path} was cut short: it has {found_bytes} bytes, and the storage in it {size_bytes}"
        )


def _map(path, file, size_bytes):
    try:
        return torch.UntypedStorage.from_file(f"{_OPENED}{file}", True, size_bytes)
    except RuntimeError as error:
        raise RuntimeError(f"{path} cannot be mapped: {error}") from None


def _identity_of(file):
    found = os.fstat(file)
    return found.st_dev, found.st_ino, _birth_of(file)


def _birth_of(file):
    """When a file was created, since a later file may have its inode. None: the file system does not tell."""
    statx = getattr(ctypes.CDLL(None), "statx", None)
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(file, b"", _AT_EMPTY_PATH, _STATX_BTIME, answer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", answer)
    return struct.unpack_from("=qI", answer, _BTIME_AT) if mask & _STATX_BTIME else None
