# SPDX-License-Identifier: Apache-2.0
"""Models: named tensors that a host has once, which any process gets as read-only arrays.

A model is one value of the store "models" of a domain. Its key is the name of the model. The value has the
tensors in the order of their names, all in one storage that only its publisher can write, and bytes, which are
UTF-8 JSON:

    {"format": "tenon.model", "version": 1, "names": [...], "metadata": {str: str},
     "files": [{"path": str, "bytes": int, "modified_ns": int}]}

The command `tenon load` writes the same. tenond keeps the store while it has a model, with no other process.
"""

import functools
import json
import os
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Type

from . import _core, _domain, _tensors

DOMAIN = "models"  # where models are, unless the caller names another domain
_STORE = "models"
_FORMAT, _VERSION = "tenon.model", 1
_ALIGN_BYTES = 64  # of each tensor in its storage


_STATUS = {_core.Invalid: -1, _core.NotFound: -4, _core.Exists: -5, _core.VersionMismatch: -61}  # TN_ERR_*
_Parts = Tuple[bytes, Sequence[_core.Tensor]]
Progress = Callable[[int, int], object]


class Model(Dict[str, Any]):
    """The tensors of a model by name, in the order of its files: what load() returns. It is a dict."""

    metadata: Dict[str, str]  # What the publisher, or the files, say about the model.
    files: List[Dict[str, Any]]  # The files that it was read from: "path", "bytes", "modified_ns" of each.


class Contents(NamedTuple):
    """What a value of the store says, checked."""

    tensors: Dict[str, _core.Tensor]
    metadata: Dict[str, str]
    files: List[Dict[str, Any]]


def fail(kind: Type[_core.Error], text: str, cause: Optional[BaseException] = None) -> NoReturn:
    error = kind(text)
    error.status = _STATUS[kind]
    raise error from cause


# ---- the format


def _is_map_of_text(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)


def _said(head: Any, name: str, count: int) -> Optional[str]:
    """What is wrong with the JSON of a value of `count` tensors; None: nothing."""
    names = head.get("names")
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        return f"the model {name!r} has no list of names"
    if len(names) != count:
        return f"the model {name!r} has {len(names)} names and {count} tensors"
    if len(set(names)) != count:
        return f"the model {name!r} has two tensors of one name"
    if not _is_map_of_text(head.get("metadata")):
        return f"the metadata of the model {name!r} are not texts by name"
    files = head.get("files")
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        return f"the files of the model {name!r} are no list of objects"
    return None


def read(name: str, parts: _Parts) -> Contents:
    """Check the parts of a value, which any program of the domain may have put."""
    said, tensors = parts
    try:
        head = json.loads(said.decode())
    except ValueError as error:
        fail(_core.Invalid, f"the value of {name!r} is no model: its bytes are not JSON ({error})", error)
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        fail(_core.Invalid, f"the value of {name!r} is no model: its format is not {_FORMAT!r}")
    if head.get("version") != _VERSION:
        found = head.get("version")
        text = f"the model {name!r} has version {found!r} of its format, and this tenon reads version {_VERSION}"
        fail(_core.VersionMismatch, text)
    wrong = _said(head, name, len(tensors))
    if wrong is not None:
        fail(_core.Invalid, wrong)
    return Contents(dict(zip(head["names"], tensors)), head["metadata"], head["files"])


def _write(names: List[str], metadata: Optional[Mapping[str, str]], files: List[Dict[str, Any]]) -> bytes:
    metadata = dict(metadata or {})
    if not all(isinstance(name, str) for name in names):
        raise TypeError("the names of tensors are str")
    if not _is_map_of_text(metadata):
        raise TypeError("metadata is a mapping of str to str")
    if any("\0" in text for text in [*names, *metadata, *metadata.values()]):
        fail(_core.Invalid, "a name or the metadata has a NUL character")
    head = {"format": _FORMAT, "version": _VERSION, "names": names, "metadata": metadata, "files": files}
    try:
        return json.dumps(head, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        fail(_core.Invalid, f"a name, the metadata or a path is no text of UTF-8: {error}", error)


def describe(paths: Iterable[Any]) -> List[Dict[str, Any]]:
    """The entries of files in a model."""
    entries = []
    for path in paths:
        whole = os.path.realpath(os.fspath(path))
        found = os.stat(whole)
        entries.append({"path": whole, "bytes": found.st_size, "modified_ns": found.st_mtime_ns})
    return entries


# ---- the tensors


class _Source(NamedTuple):
    """A tensor that is to be published."""

    shape: Tuple[int, ...]
    dtype: str
    flat: bool  # Whether `memory` has the bytes of the tensor, and not its elements.
    memory: _core.Tensor
    same: Any  # Equal for two names that mean one tensor.


def _of_torch(tensor: Any) -> _Source:
    import torch

    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        raise NotImplementedError(f"only a strided tensor of numbers can be published, not {tensor.type()}")
    same = tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()
    flat = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
    shape, dtype = tuple(tensor.shape), _core.dtype_name(tensor.dtype)
    return _Source(shape, dtype, True, _core.from_dlpack(flat), same)


def _source(value: Any) -> _Source:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(value)
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "isnative", True) is False:  # of NumPy
        value = value.astype(dtype.newbyteorder("="))
    tensor = value if isinstance(value, _core.Tensor) else _tensors._over(value)
    if tensor.device != "cpu":
        tensor = tensor.to("cpu")
    same = tensor.address, tensor.dtype, tensor.shape, tensor.strides
    return _Source(tensor.shape, tensor.dtype, False, tensor, same)


def _sources(tensors: Mapping[str, Any]) -> List[_Source]:
    sources = []
    for name, value in tensors.items():
        try:
            sources.append(_source(value))
        except (TypeError, ValueError, BufferError, NotImplementedError) as error:
            raise TypeError(f"the tensor {name!r} cannot be published: {error}") from error
    return sources


def parts_of(
    place: _core.Domain,
    tensors: Mapping[str, Any],
    metadata: Optional[Mapping[str, str]],
    files: List[Dict[str, Any]],
    timeout: Optional[float] = 0,
    progress: Optional[Progress] = None,
) -> _Parts:
    """The value of a model: its tensors are copied into one storage that no other process can write.

    `progress` is called with how many bytes there are in all, and how many are in their place so far.
    """
    said = _write(list(tensors), metadata, files)
    sources = _sources(tensors)
    places: Dict[Any, int] = {}  # of each tensor that has bytes, in the storage
    parts: List[Tuple[int, _core.Tensor]] = []  # what can be written before the storage is sealed
    size_bytes = 0
    for source in sources:
        if source.memory.nbytes > 0 and source.same not in places:
            places[source.same] = size_bytes
            if source.memory.is_contiguous:
                parts.append((size_bytes, source.memory))
            size_bytes += -(-source.memory.nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
    if not sources:
        return said, []
    copied = functools.partial(progress, size_bytes) if progress is not None else None
    whole = place.filled(max(size_bytes, 1), parts, timeout, progress=copied)
    made: Dict[Any, _core.Tensor] = {}
    result = []
    for source in sources:
        view = made.get(source.same) if source.memory.nbytes > 0 else None
        if view is None:
            offset = places.get(source.same, 0)
            view = made[source.same] = whole.view(source.shape, source.dtype, None, offset)
            if source.memory.nbytes > 0 and not source.memory.is_contiguous:
                shape, dtype = (source.memory.shape, "uint8") if source.flat else (source.shape, source.dtype)
                whole.view(shape, dtype, None, offset).copy_from(source.memory)
        result.append(view)
    if progress is not None:
        progress(size_bytes, size_bytes)
    return said, result


def _dtype_of_numpy(name: str) -> Any:
    """The dtype of this name, also one that ml_dtypes has added; None: NumPy has none."""
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        return None


def as_arrays(contents: Contents) -> Model:
    """Read-only arrays of NumPy over the tensors. A tensor of a dtype that NumPy lacks stays one."""
    import numpy

    model, dtypes = Model(), {}
    for name, tensor in contents.tensors.items():
        kind = tensor.dtype
        dtype = dtypes[kind] if kind in dtypes else dtypes.setdefault(kind, _dtype_of_numpy(kind))
        if dtype is None:
            model[name] = tensor
            continue
        array = model[name] = numpy.ndarray(tensor.shape, dtype, tensor)
        array.flags.writeable = False  # the memory is writable in the process that has read the file
    model.metadata, model.files = contents.metadata, contents.files
    return model


# ---- the store


def _missing(name: str, domain: str) -> NoReturn:
    where = "" if domain == DOMAIN else f" --domain={domain}"
    text = f"the domain {domain!r} has no model {name!r}: `tenon load{where} {name} FILE...` loads it"
    fail(_core.NotFound, text)


def open_store(domain: str, *, is_made: bool) -> _core.Store:
    """The store of models. It raises NotFound if there is none, unless it is to be made."""
    if not isinstance(domain, str):
        raise TypeError(f"the domain of a model is a name, not {type(domain).__name__}")
    place = _domain.aside(domain, is_made)
    return _core.Store.open_or_create(place, _STORE) if is_made else _core.Store.open(place, _STORE)


def keep(store: _core.Store, name: str) -> None:
    """Let tenond keep the store, unless the model was unloaded meanwhile and was the last one."""
    store.set_kept(True)
    if not store.contains(name) and store.count() == 0:
        store.set_kept(False)


def _parts(name: str, domain: str, timeout: Optional[float]) -> _Parts:
    until = None if timeout is None else time.monotonic() + timeout
    try:
        store = open_store(domain, is_made=timeout is None or timeout > 0)
    except (_core.NotFound, _core.Closed):
        _missing(name, domain)
    try:
        version = 0
        while True:
            try:
                return store.parts(name)
            except KeyError:
                pass
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                _missing(name, domain)
            try:
                version = store.wait(name, version, left)
            except _core.TimedOut:
                _missing(name, domain)
    finally:
        store.close()


def attach(name: str, domain: str = DOMAIN, timeout: Optional[float] = 0) -> Contents:
    """The model of this name, as tensors over the memory that all processes have."""
    return read(name, _parts(name, domain, timeout))


# ---- functions for programs


def load(name: str, *, domain: str = DOMAIN, timeout: Optional[float] = 0) -> Model:
    """Get a model that `tenon load`, publish() or load_file() has put into the memory of this host.

    Nothing is copied: all processes have the same memory. The arrays are read-only, and the kernel refuses
    writes to the memory in every process but the one that filled it. The arrays stay valid after unload().

    Parameters
    ----------
    name : str
    domain : str, the name of the domain that has the model
        This process joins it, and goes on to make its own tensors where it did before.
    timeout : float, seconds to wait for a model that is not there yet; None without a limit

    Returns
    -------
    Model, a dict: name -> read-only numpy.ndarray
        A tensor of bfloat16, or of another dtype that NumPy lacks, is a read-only tenon.Tensor, unless ml_dtypes
        has been imported: then it is an array of that dtype.

    Raises
    ------
    tenon.NotFound
        The domain has no such model, or there is no such domain.
    tenon.Invalid
        The value of this name is no model.
    tenon.VersionMismatch
        Another version of tenon has published the model, and this one cannot read it.
    """
    return as_arrays(attach(name, domain, timeout))


def publish(
    name: str,
    tensors: Mapping[str, Any],
    *,
    domain: str = DOMAIN,
    metadata: Optional[Mapping[str, str]] = None,
    files: Iterable[Any] = (),
    lifetime: Optional[float] = None,
) -> None:
    """Copy tensors into the memory of this host, once, for load() in any process.

    The model stays until unload(), or to the end of its lifetime; tenond keeps it when no process uses it. If this
    process is killed meanwhile, there is no model of this name. Two names of one tensor, as of tied weights, take
    memory once.

    Parameters
    ----------
    name : str, 1 to 512 bytes in UTF-8
    tensors : mapping of str to arrays, tensors of PyTorch or of tenon, or objects with a buffer or DLPack
    domain : str, the name of the domain, which is made if there is none
    metadata : mapping of str to str, which load() gives back
    files : paths of the files that the tensors come from; load() gives back their absolute paths, sizes and times
    lifetime : float, seconds from now, after which the model is removed; None: never

    Raises
    ------
    tenon.Exists
        There is a model of this name.
    TypeError
        What is given is no tensor, or NumPy's dtype is not one of tenon's; the text names the tensor.
    tenon.NoMemory
        The tensors exceed the memory of the domain.
    """
    entries = describe(files)
    store = open_store(domain, is_made=True)
    try:
        if store.contains(name):
            _exists(name, domain)
        parts = parts_of(store.domain, tensors, metadata, entries)
        try:
            store.put_parts(name, parts, if_absent=True, lifetime=lifetime)
        except _core.Exists:
            _exists(name, domain)
        keep(store, name)
    finally:
        store.close()


def _exists(name: str, domain: str) -> NoReturn:
    fail(_core.Exists, f"the domain {domain!r} has a model {name!r} already: unload() removes it")


def unload(name: str, *, domain: str = DOMAIN) -> None:
    """Remove a model. Processes that have got it keep it; its memory is free when the last one has released it.

    Raises tenon.NotFound if the domain has no such model.

    Parameters
    ----------
    name : str
    domain : str, the name of the domain that has the model
    """
    try:
        store = open_store(domain, is_made=False)
    except (_core.NotFound, _core.Closed):
        _missing(name, domain)
    try:
        store.delete(name)
    except KeyError:
        _missing(name, domain)
    finally:
        store.close()
