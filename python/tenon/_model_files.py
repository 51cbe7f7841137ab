# SPDX-License-Identifier: Apache-2.0
"""Files of models that Python reads: load_file(). `tenon load` reads those of safetensors."""

import inspect
import os
import pathlib
import pickle
import zipfile
from typing import Any, Dict, List, Mapping, Optional

from . import _core, _models


def _read_npz(path: str) -> Mapping[str, Any]:
    import numpy

    with numpy.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read_pt(path: str) -> Mapping[str, Any]:
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
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
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
        The file has more than tensors, or is of another kind. The text has what PyTorch says.
    tenon.TimedOut
        Another process still reads the file.
    OSError
        The file cannot be read.
    """
    whole = os.path.realpath(os.fspath(path))
    reader = _reader_of(whole)
    entries = _models.describe([whole])
    store = _models.open_store(domain, is_made=True)
    try:
        parts = store.parts_or_make(
            name,
            lambda: _models.parts_of(store.domain, reader(whole), None, entries, None),
            timeout=timeout,
            lifetime=lifetime,
        )
        contents = _models.read(name, parts)
        if contents.files != entries:
            same = [file.get("path") for file in contents.files] == [whole]
            what = f"{whole} as it was before" if same else _names(contents.files)
            _models.fail(
                _core.Exists, f"the domain {domain!r} has a model {name!r} of {what}: unload() removes it"
            )
        _models.keep(store, name)
        return _models.as_arrays(contents)
    finally:
        store.close()
