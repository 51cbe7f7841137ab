# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors in tenon's shared memory.

    import tenon.torch
    tenon.torch.install()

After that, tensors, Parameters and storages that go through a queue of tenon's, to a Process
or from a Pool are the same memory on both sides; `share_memory_()`, `is_shared()` and what a
DataLoader's workers collate into are tenon's as well. The first message that is put once
PyTorch is imported calls install() by itself, unless uninstall() was called; a program calls
it where it wants the memory to be tenon's earlier, before a fork for instance.

Storages are shared, as in torch.multiprocessing. A tensor that is sent brings its whole storage. The
storage is moved into shared memory for all tensors that view it, and cannot be resized afterwards.
Views of one storage arrive as views of one storage, also in later messages. A leaf arrives with
the same requires_grad; its grad and its hooks are not sent.

A storage that PyTorch itself shares stays where it is and travels as PyTorch sends it. A storage over
a shared file travels as the name of the file. If the file was renamed, removed, replaced or cut short
meanwhile, the sender or the receiver gets NotFound or Corrupt.
"""

import warnings
from typing import Any, Dict, NamedTuple, Optional, Sequence, TypeVar, Union

import torch

from . import _core, _models, _torch_cuda, _torch_file, _torch_storage
from ._cpython import ForkingPickler, extra_reducers
from ._torch_private import apply_to_module, check_words, is_lazy, untyped
from ._torch_reduce import check_device, parts_of, reduce_any_storage, reduce_tensor
from ._torch_storage import check_device_of, find, is_shared_originally, over, over_fixed, share

__all__ = [
    "Copies",
    "allocator",
    "copies",
    "empty",
    "from_torch",
    "install",
    "is_installed",
    "is_shared",
    "load_state_dict",
    "share_memory",
    "to_torch",
    "uninstall",
]

_Shareable = TypeVar("_Shareable", bound=Union[torch.Tensor, torch.nn.Module])
# ---- functions for programs


def _share_tensor(tensor):
    if is_lazy(tensor):
        raise RuntimeError(
            "a parameter that has no shape yet cannot be shared: run the module once before"
        )
    for part in parts_of(tensor):
        if part.device.type == "meta":
            continue
        check_device(part.device, "a tensor")
        storage = untyped(part)
        if storage.nbytes() > 0:
            share(storage, tensor=part)
    return tensor


def share_memory(what: _Shareable) -> _Shareable:
    """Move a tensor, or a module's parameters and buffers, into tenon's shared memory.

    Shared memory stays where it is. Tensors keep their identity, and all views of a storage move
    with it. None of them can be resized beyond the storage afterwards.

    Parameters
    ----------
    what : torch.Tensor or torch.nn.Module

    Returns
    -------
    `what` itself.
    """
    if isinstance(what, torch.nn.Module):
        return apply_to_module(what, _share_tensor)
    if not isinstance(what, torch.Tensor):
        raise TypeError(
            f"a torch.Tensor or torch.nn.Module can be shared, not {type(what).__name__}"
        )
    return _share_tensor(what)


def is_shared(tensor: torch.Tensor) -> bool:
    """Whether other processes can have a tensor's memory. An empty tensor counts as shared."""
    return all(_is_storage_shared(untyped(part)) for part in parts_of(tensor))


def _is_storage_shared(storage):
    if storage.device.type != "cpu":
        return is_shared_originally(storage)
    return storage.nbytes() == 0 or find(storage) is not None or is_shared_originally(storage)


def from_torch(tensor: torch.Tensor, domain: Optional[_core.Domain] = None) -> _core.Tensor:
    """The same memory as a tensor of tenon.

    A private storage is moved into the domain. Memory in another domain, or memory that PyTorch
    itself shares, is copied. The result has the same requires_grad, but no graph.

    Parameters
    ----------
    tensor : torch.Tensor, strided, on the CPU or a CUDA device, without a pending conjugation or negation
        On a device the result has the work that the current stream was given: Tensor.wait() lets another
        stream wait for it.
    domain : tenon.Domain, None for this process's

    Returns
    -------
    tenon.Tensor
    """
    check_device(tensor.device, "a tensor")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        raise NotImplementedError(
            f"only a strided tensor of numbers is one of tenon's, not {tensor.type()}"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            "call resolve_conj() and resolve_neg() first: tenon's tensors hold what they show"
        )
    dtype, storage = _core.dtype_name(tensor.dtype), untyped(tensor)
    where = domain or _core.default_domain()
    if tensor.numel() == 0:  # an empty view does not tell the address of its storage
        device = "cpu" if tensor.device.type == "cpu" else _torch_cuda.name_of(tensor.device)
        result = where.empty(tuple(tensor.shape), dtype, device=device)
    else:
        result = _view_of(share(storage, where, tensor=tensor.detach()), tensor, dtype, where)
    _torch_cuda.record(result)
    result.requires_grad = tensor.requires_grad
    return result


def _view_of(shared, tensor, dtype, domain):
    if shared is None:  # PyTorch's own shared memory
        return _copied(_to_dlpack(tensor.detach()), domain)
    offset = tensor.data_ptr() - shared.address + shared.byte_offset
    view = shared.view(tuple(tensor.shape), dtype, tensor.stride(), offset)
    return view if shared.domain == domain else _copied(view, domain)


def _copied(tensor, domain):
    copy = domain.empty(tensor.shape, tensor.dtype, device=tensor.device)
    copy.copy_from(tensor)
    return copy


# Some versions of PyTorch have no bool in DLPack: bool tensors are exchanged as uint8.


def _to_dlpack(tensor):
    if tensor.dtype != torch.bool:
        return _core.from_dlpack(tensor)
    private = _core.from_dlpack(tensor.view(torch.uint8))
    return private.view(private.shape, "bool", private.strides, private.byte_offset)


def _from_dlpack(tensor):
    if tensor.dtype != "bool":
        return torch.from_dlpack(tensor)
    numbers = tensor.view(tensor.shape, "uint8", tensor.strides, tensor.byte_offset)
    return torch.from_dlpack(numbers).view(torch.bool)


def _same_memory(tensor, dtype):
    if tensor.readonly:
        raise ValueError(
            "the memory is read-only, and PyTorch knows no such tensors: copy() it first"
        )
    if any(step < 0 < size - 1 for size, step in zip(tensor.shape, tensor.strides)):
        raise ValueError(
            f"strides {tensor.strides}, and PyTorch knows no negative ones: copy() it first"
        )
    if tensor.domain is None or tensor.byte_offset % tensor.itemsize != 0:
        return _from_dlpack(tensor)
    return _in_storage(tensor, dtype, over(tensor.view((tensor.storage_bytes,), "uint8", None, 0)))


def _in_storage(tensor, dtype, storage):
    strides = tuple(max(step, 0) for step in tensor.strides)  # a negative stride of one element is never used
    place = tensor.byte_offset // tensor.itemsize, tensor.shape, strides
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *place)


def to_torch(tensor: _core.Tensor) -> torch.Tensor:
    """The same memory as a torch.Tensor. Tensors of one storage become views of one storage.

    Parameters
    ----------
    tensor : tenon.Tensor, on the CPU or a CUDA device, not read-only, and without negative strides
        On a device the current stream waits for what was recorded in it.

    Returns
    -------
    torch.Tensor
    """
    check_device_of(tensor)
    dtype = getattr(torch, tensor.dtype, None)
    if dtype is None:
        raise TypeError(f"PyTorch has no dtype {tensor.dtype}")
    if tensor.size == 0:
        result = torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
    else:
        result = _same_memory(tensor, dtype)
    return result.requires_grad_() if tensor.requires_grad else result


# ---- models


_CPU = torch.device("cpu")


def _dtype_of(name, tensor):
    dtype = getattr(torch, tensor.dtype, None)
    if dtype is None:
        raise TypeError(f"the tensor {name!r} is of {tensor.dtype}, which this PyTorch does not have")
    return dtype


def _over_whole(tensor):
    return over_fixed(tensor.view((tensor.storage_bytes,), "uint8", None, 0))


def _all_fixed(tensors):
    """The same memory as tensors of PyTorch, although this process may only read it.

    A model has thousands of tensors, and most of the time that a process takes to attach it passes here.
    """
    made, dtypes, storages, empty = {}, {}, {}, torch.empty
    for name, tensor in tensors.items():
        dtype = dtypes.get(tensor.dtype)
        if dtype is None:
            dtype = dtypes[tensor.dtype] = _dtype_of(name, tensor)
        shape, strides, offset = tensor.shape, tensor.strides, tensor.byte_offset
        if strides and min(strides) < 0:
            strides = tuple(max(step, 0) for step in strides)  # of one element, and never used
        if tensor.size == 0:
            made[name] = empty(shape, dtype=dtype, device=_CPU)
            continue
        place, rest = divmod(offset, tensor.itemsize)
        if rest != 0:
            place, storage = 0, over_fixed(tensor)
        else:
            start = tensor.address - offset
            storage = storages.get(start)
            if storage is None:
                storage = storages[start] = _over_whole(tensor)
        made[name] = empty(0, dtype=dtype, device=_CPU).set_(storage, place, shape, strides)
    return made


def load_state_dict(
    name: str, *, domain: str = _models.DOMAIN, timeout: Optional[float] = 0
) -> Dict[str, torch.Tensor]:
    """Get a model of tenon.load() as tensors of PyTorch, for `module.load_state_dict(..., assign=True)`.

    Nothing is copied: the tensors are over the memory that all processes have, and views of one storage.

    The kernel refuses writes to this memory, and PyTorch does not know read-only tensors: an operation that writes
    to one of them in place, as a step of an optimizer does, ends the process by SIGSEGV, without an exception. In
    the process whose load_file() has read the file, it may change the model of all processes instead. clone() a
    tensor to change it.

    Parameters
    ----------
    name : str
    domain : str, the name of the domain that has the model
    timeout : float, seconds to wait for a model that is not there yet; None without a limit

    Returns
    -------
    dict, name -> torch.Tensor on the CPU, in the order of the model's files

    Raises
    ------
    what tenon.load() raises
    TypeError
        This PyTorch does not have the dtype of a tensor.
    """
    return _all_fixed(_models.attach(name, domain, timeout).tensors)


# ---- CUDA


class Copies(NamedTuple):
    """What was copied into tenon's memory on CUDA devices, because the memory of its allocator cannot be shared."""

    count: int
    bytes: int


def copies() -> Copies:
    """How often, and how many bytes, this process has copied CUDA storages to share them. The first copy warns."""
    return Copies(**_torch_cuda.copies)


def empty(
    *size: Union[int, Sequence[int]],
    dtype: Optional[torch.dtype] = None,
    device: Union[None, str, int, torch.device] = None,
    requires_grad: bool = False,
    domain: Optional[_core.Domain] = None,
) -> torch.Tensor:
    """torch.empty() in tenon's shared memory: the tensor is sent without a copy.

    Parameters
    ----------
    size : ints, or one sequence of them
    dtype : torch.dtype, None for PyTorch's default
    device : the CPU or a CUDA device; None for PyTorch's default
    domain : tenon.Domain, None for this process's

    Returns
    -------
    torch.Tensor, of undefined content
    """
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    where = torch.empty(0).device if device is None else torch.device(device)
    check_device(where, "a tensor")
    name = "cpu" if where.type == "cpu" else _torch_cuda.name_of(where)
    place = domain or _core.default_domain()
    tensor = to_torch(place.empty(shape, _core.dtype_name(dtype or torch.get_default_dtype()), device=name))
    return tensor.requires_grad_(requires_grad)


def allocator(domain: Optional[_core.Domain] = None) -> Any:
    """An allocator of PyTorch whose CUDA tensors lie in tenon's memory, and are sent without a copy.

        torch.cuda.memory.change_current_allocator(tenon.torch.allocator())

    PyTorch takes one allocator, before its first CUDA tensor. Each tensor is a block of its own. When
    PyTorch frees it, the block goes to others after the work of its stream, and not before all other
    processes that received it have given it back. Do not use it for a torch.cuda.MemPool: a pool gives
    memory that PyTorch has freed to the next tensor, although another process still reads it.

    Parameters
    ----------
    domain : tenon.Domain, None for this process's

    Returns
    -------
    torch.cuda.memory.CUDAPluggableAllocator
    """
    return _torch_cuda.make_allocator(domain or _core.default_domain())


# ---- replacements for PyTorch's functions


def _storage_share_memory_(self):
    """Move the storage into tenon's shared memory.

    Nothing happens if the storage is shared already or lies in memory of a device other than a CUDA device.
    """
    if self.device.type in ("cpu", "cuda") and self.nbytes() > 0:
        check_device(self.device, "a storage")
        share(self)
    return self


def _storage_new_shared(cls, size, *, device="cpu"):
    """A storage of `size` bytes in tenon's shared memory."""
    where = torch.device(device)
    if where.type not in ("cpu", "cuda") or size == 0:
        return cls(size, device=device)
    name = "cpu" if where.type == "cpu" else _torch_cuda.name_of(where)
    return over(_core.default_domain().empty((size,), "uint8", device=name))


_REDUCERS = {
    torch.UntypedStorage: reduce_any_storage,
    torch.Tensor: reduce_tensor,
    torch.nn.Parameter: reduce_tensor,
}
_REPLACED = {
    "share_memory_": _storage_share_memory_,
    "is_shared": _is_storage_shared,
    "_new_shared": classmethod(_storage_new_shared),
}

if hasattr(torch.UntypedStorage, "filename"):
    _REPLACED["filename"] = property(_torch_file.shown_name)

_originals = {}  # PyTorch's own attributes; empty: not installed
_own_attributes = set()  # the names among them that UntypedStorage does not inherit
_their_reducers = {}
_is_decided = False  # install() or uninstall() was called, or installing is not possible


def is_installed() -> bool:
    """Whether tenon carries PyTorch's tensors in this process."""
    return bool(_originals)


def install() -> None:
    """Let PyTorch's tensors travel in tenon's shared memory, in this process.

    Afterwards `torch.Tensor.share_memory_`, `is_shared`, `torch.nn.Module.share_memory` and the
    memory that default_collate allocates in a worker are tenon's. So are tensors in the queues of
    tenon and in what is pickled for a new process. It may be called again. A forked child inherits
    the installation; any other child installs it when its first tensor arrives.

    Raises NotImplementedError, which names the version of PyTorch, if its storages are not made
    as expected; nothing is changed then.
    """
    global _is_decided
    check_words()
    with _torch_storage.lock:
        _is_decided = True
        if _originals:
            return
        for kind, reduce in _REDUCERS.items():
            _their_reducers[kind] = extra_reducers[kind]
            ForkingPickler.register(kind, reduce)
            _core.register(kind, reduce)
        for name, function in _REPLACED.items():
            if name in vars(torch.UntypedStorage):
                _own_attributes.add(name)
            _originals[name] = vars(torch.UntypedStorage).get(name) or getattr(
                torch.UntypedStorage, name
            )
            setattr(torch.UntypedStorage, name, function)


def uninstall() -> None:
    """Undo install().

    Storages in tenon's memory stay there. PyTorch takes them for private ones: if the program shares
    or sends one again, PyTorch moves it away from the processes that share it.
    """
    global _is_decided
    with _torch_storage.lock:
        _is_decided = True
        for kind, reduce in _their_reducers.items():
            ForkingPickler.register(kind, reduce)
            _core.register(kind, reduce)
        for name, original in _originals.items():
            if name in _own_attributes:
                setattr(torch.UntypedStorage, name, original)
            else:
                delattr(torch.UntypedStorage, name)
        _originals.clear()
        _own_attributes.clear()
        _their_reducers.clear()


def _notice():
    """Call install(), unless install() or uninstall() was called before."""
    global _is_decided
    if _is_decided:
        return
    try:
        install()
    except NotImplementedError as error:
        _is_decided = True
        message = f"{error}; they travel as PyTorch sends them"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
