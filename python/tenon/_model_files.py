# SPDX-License-Identifier: Apache-2.0
"""Files of models that Python reads: load_file(). `tenon load` reads those of safetensors."""

import errno
import inspect
import os
import pathlib
import pickle
import zipfile
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from . import _core, _models


class Watcher:
    """What read_file() tells of its progress: to a subclass that shows it, or to nobody."""

    def has_read(self, all_bytes: int, done_bytes: int) -> None:
        """So many bytes of the file have been read into the memory of this process."""

    def has_copied(self, all_bytes: int, done_bytes: int) -> None:
        """So many bytes of the tensors are where all processes find them."""


def _read_npz(path: str, watcher: Watcher) -> Mapping[str, Any]:
    import numpy

    found = numpy.load(path, allow_pickle=False)
    if isinstance(found, numpy.ndarray):
        _models.fail(_core.Invalid, f"{path} has one array without a name: it is a .npy")
    made: Dict[str, Any] = {}
    with found as arrays:
        sizes = {info.filename: info.file_size for info in arrays.zip.infolist()}
        read_bytes, all_bytes = 0, sum(sizes.values())
        for name in arrays.files:
            made[name] = arrays[name]
            read_bytes += sizes.get(name, 0) or sizes.get(f"{name}.npy", 0)
            watcher.has_read(all_bytes, read_bytes)
    return made


def _read_pt(path: str, watcher: Watcher) -> Mapping[str, Any]:
    import torch

    # Only a ZIP file, which PyTorch writes from 1.6 on, can be mapped; PyTorch maps from 2.1 on.
    can_map = zipfile.is_zipfile(path) and "mmap" in inspect.signature(torch.load).parameters
    more: Dict[str, Any] = {"mmap": True} if can_map else {}
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, **more)
    except pickle.UnpicklingError as error:
        _models.fail(_core.Invalid, f"{path} has more than tensors, and is not loaded: {error}", error)
    if not isinstance(found, Mapping):
        _models.fail(_core.Invalid, f"{path} has a {type(found).__name__}, not tensors by name")
    for name, value in found.items():
        if not isinstance(name, str):
            _models.fail(_core.Invalid, f"{path} has the name {name!r}, which is no str")
        if not isinstance(value, torch.Tensor):
            what = f"{path} has a {type(value).__name__} under {name!r}"
            _models.fail(_core.Invalid, f"{what}, not a tensor: load it with torch.load() and publish() the tensors")
    return found


_READERS = {".npz": _read_npz, ".pt": _read_pt, ".pth": _read_pt}


def _reader_of(path: str) -> Any:
    kind = pathlib.PurePath(path).suffix.lower()
    if kind == ".safetensors":
        _models.fail(_core.Invalid, f"load_file() does not read {path}: `tenon load NAME FILE...` does")
    if kind not in _READERS:
        _models.fail(_core.Invalid, f"load_file() reads {', '.join(_READERS)}, and not {path}")
    return _READERS[kind]


def _read(path: str, watcher: Watcher) -> Mapping[str, Any]:
    """The tensors of a file by name. NumPy, zipfile and PyTorch raise many kinds of errors for a damaged one."""
    open(path, "rb").close()  # what cannot be opened raises OSError
    try:
        return _reader_of(path)(path, watcher)
    except (_core.Error, ImportError, MemoryError):
        raise
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # EINVAL: an offset that the file gives
            raise
        _damaged(path, error)
    except Exception as error:
        _damaged(path, error)


def _damaged(path: str, error: Exception) -> NoReturn:
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    _models.fail(_core.Invalid, f"{path} is damaged, or has more than arrays: {said}", error)


def _parts(
    place: _core.Domain, path: str, entries: List[Dict[str, Any]], watcher: Watcher
) -> Tuple[bytes, Sequence[_core.Tensor]]:
    tensors = _read(path, watcher)
    try:
        return _models.parts_of(place, tensors, None, entries, None, watcher.has_copied)
    except TypeError as error:
        _models.fail(_core.Invalid, f"{path}: {error}", error)


def _names(files: List[Dict[str, Any]]) -> str:
    return ", ".join(str(file.get("path")) for file in files) or "no file"


def load_file(
    name: str,
    path: Any,
    *,
    domain: str = _models.DOMAIN,
    timeout: Optional[float] = None,
    lifetime: Optional[float] = None,
) -> _models.Model:
    """Get a model, and read it from a file first if this host does not have it.

    Of all processes that call this at once, one reads the file and the others wait for it. If that one is killed
    or fails, the next one reads. The model stays as one of publish() does.

    Parameters
    ----------
    name : str
    path : str or path, a .npz of NumPy, or a .pt or .pth of PyTorch that has a dict of tensors
        Nothing in the file is run: NumPy loads it with allow_pickle=False, PyTorch with weights_only=True.
    domain : str, the name of the domain, which is made if there is none
    timeout : float, seconds to wait for another process that reads the file; None without a limit
    lifetime : float, seconds from now, after which the model is removed if this call reads it; None: never

    Returns
    -------
    Model, as of load()

    Raises
    ------
    tenon.Exists
        The model of this name comes from another file, or from an older state of this one.
    tenon.Invalid
        The file has more than tensors, is damaged, or is of another kind. The text has what NumPy or PyTorch says.
    tenon.TimedOut
        Another process still reads the file.
    OSError
        The file cannot be read.
    """
    contents, _ = read_file(name, path, domain, timeout, lifetime)
    return _models.as_arrays(contents)


def read_file(
    name: str,
    path: Any,
    domain: str,
    timeout: Optional[float],
    lifetime: Optional[float],
    watcher: Optional[Watcher] = None,
) -> Tuple[_models.Contents, bool]:
    """The model of load_file(), and whether this call has read it."""
    whole = os.path.realpath(os.fspath(path))
    _reader_of(whole)
    entries = _models.describe([whole])
    store = _models.open_store(domain, is_made=True)
    made: List[Any] = []

    def make() -> Tuple[bytes, Sequence[_core.Tensor]]:
        made.append(_parts(store.domain, whole, entries, watcher or Watcher()))
        if _models.describe([whole]) != entries:
            _models.fail(_core.Invalid, f"{whole} was changed while it was read")
        return made[0]

    try:
        contents = _models.read(name, store.parts_or_make(name, make, timeout=timeout, lifetime=lifetime))
        if contents.files != entries:
            same = [file.get("path") for file in contents.files] == [whole]
            what = f"{whole} as it was before" if same else _names(contents.files)
            _models.fail(
                _core.Exists, f"the domain {domain!r} has a model {name!r} of {what}: unload() removes it"
            )
        _models.keep(store, name)
        return contents, bool(made)
    finally:
        store.close()
