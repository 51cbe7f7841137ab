# SPDX-License-Identifier: Apache-2.0
"""Functions that make tensors in a domain."""

from typing import Any, Optional, Sequence, Union

from . import _core, _domain
from ._devices import Device

_Shape = Union[int, Sequence[int]]
_Device = Union[str, Device]


def _place(domain: Optional[_core.Domain]) -> _core.Domain:
    if domain is None:
        return _domain.default()
    if isinstance(domain, _core.Domain):
        return domain
    hint = f": tenon.domain({domain!r}) gives the domain of this name" if isinstance(domain, str) else ""
    raise TypeError(f"domain must be a tenon.Domain or None, not {type(domain).__name__}{hint}")


def empty(
    shape: _Shape,
    dtype: Any = "float32",
    *,
    timeout: Optional[float] = 0,
    strategy: Optional[str] = None,
    write_once: bool = False,
    domain: Optional[_core.Domain] = None,
    device: Optional[_Device] = None,
) -> _core.Tensor:
    """Make a tensor in shared memory. Its contents are undefined.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : dtype of NumPy or PyTorch, name, or Python type
    timeout : float, seconds to wait for memory while the quota is used up; None without a limit
    strategy : "arena", "file_descriptor" or "file_system"; None for this process's
    write_once : bool, whether receivers get read-only tensors
    domain : tenon.Domain, not its name; None for this process's
    device : "cpu", "cuda:0", or a UUID as of devices(); None for the CPU

    Returns
    -------
    tenon.Tensor, shape `shape`

    Raises
    ------
    MemoryError, TypeError, ValueError
    tenon.Unsupported
        There is no driver of the device, or processes cannot share its memory.
    tenon.NotFound
        This process sees no such device.
    """
    where = _place(domain)
    return where.empty(shape, dtype, timeout, strategy=strategy, write_once=write_once, device=device)


def zeros(
    shape: _Shape,
    dtype: Any = "float32",
    *,
    timeout: Optional[float] = 0,
    strategy: Optional[str] = None,
    write_once: bool = False,
    domain: Optional[_core.Domain] = None,
    device: Optional[_Device] = None,
) -> _core.Tensor:
    """Make a tensor like empty(), filled with zeros."""
    where = _place(domain)
    return where.zeros(shape, dtype, timeout, strategy=strategy, write_once=write_once, device=device)


def full(
    shape: _Shape,
    value: Any,
    dtype: Any = None,
    *,
    timeout: Optional[float] = 0,
    strategy: Optional[str] = None,
    write_once: bool = False,
    domain: Optional[_core.Domain] = None,
    device: Optional[_Device] = None,
) -> _core.Tensor:
    """Make a tensor like empty(), filled with one value. The default dtype is that of the value."""
    where = _place(domain)
    dtype = type(value) if dtype is None else dtype
    if device is not None and _core.find_device(device) != "cpu":
        filled = _core.private(shape, dtype)
        filled[...] = value
        return _copied(filled, where, device, timeout=timeout, strategy=strategy, write_once=write_once)
    tensor = where.empty(shape, dtype, timeout, strategy=strategy, write_once=write_once)
    tensor[...] = value
    return tensor


def asarray(
    source: Any, dtype: Any = None, *, domain: Optional[_core.Domain] = None, device: Optional[_Device] = None
) -> _core.Tensor:
    """A tensor in shared memory with the elements of `source`.

    Memory that lies in the domain already is not copied, unless the dtype or the device differs. Without
    `domain`, this is true for a tensor in any domain.

    Parameters
    ----------
    source : tensor, array, object with the buffer protocol, DLPack or the CUDA array interface, or nested sequences of numbers
    dtype : dtype of NumPy or PyTorch, name, or Python type; None for that of `source`
    domain : tenon.Domain, not its name; None for this process's
    device : "cpu", "cuda:0", or a UUID as of devices(); None for that of a tensor, else the CPU

    Returns
    -------
    tenon.Tensor, same shape as `source`
    """
    where = _place(domain)
    target = None if device is None else _core.find_device(device)
    if isinstance(source, _core.Tensor):
        tensor = source
    else:
        tensor = _over(source)
    if dtype is not None and _core.dtype_name(dtype) != tensor.dtype:
        tensor = _converted(tensor, dtype, where)
    if target is not None and target != tensor.device:
        return _copied(tensor, where, target)
    if domain is None and tensor.is_shared:
        return tensor
    return _placed(tensor, where)


def _over(source: Any) -> _core.Tensor:
    """A private tensor over the memory of `source`, or over an array that NumPy makes of it."""
    try:
        return _core.from_buffer(source)
    except (TypeError, ValueError, BufferError) as error:
        if hasattr(source, "__dlpack__"):
            try:
                return _core.from_dlpack(source)
            except (TypeError, BufferError):
                raise error from None  # this one says what is wrong with the elements
        if hasattr(source, "__cuda_array_interface__"):
            return _core.from_cuda_array(source)
        import numpy

        return _core.from_buffer(numpy.asarray(source))


def _converted(tensor: _core.Tensor, dtype: Any, where: _core.Domain) -> _core.Tensor:
    import numpy

    result = where.empty(tensor.shape, dtype)
    numpy.asarray(result)[...] = numpy.asarray(tensor)
    return result


def _placed(tensor: _core.Tensor, where: _core.Domain) -> _core.Tensor:
    """The tensor itself, or a view of its memory, if it lies in the domain; else a copy."""
    if tensor.is_shared and tensor.domain is where:
        return tensor
    if tensor.size > 0 and tensor.is_contiguous:
        storage = where.find(tensor.address, tensor.nbytes)
        if storage is not None:
            offset = tensor.address - storage.address
            return storage.view(tensor.shape, tensor.dtype, tensor.strides, offset)
    return _copied(tensor, where, tensor.device)


def _copied(tensor: _core.Tensor, where: _core.Domain, device: _Device, **how: Any) -> _core.Tensor:
    copy = where.empty(tensor.shape, tensor.dtype, device=device, **how)
    copy.copy_from(tensor)
    return copy


def share(
    source: _core.Tensor, *, timeout: Optional[float] = 0, domain: Optional[_core.Domain] = None
) -> _core.Tensor:
    """Move the storage of a private tensor into shared memory, for all its views.

    Arrays and tensors of other libraries cannot be moved: asarray() copies them, and
    tenon.torch.share_memory() moves those of PyTorch.

    Returns
    -------
    `source` itself.
    """
    if not isinstance(source, _core.Tensor):
        raise TypeError(f"a tenon.Tensor can be moved, not {type(source).__name__}: see asarray()")
    return source.share(_place(domain), timeout)


def _rebuild_tensor(name: str, handle: bytes) -> _core.Tensor:
    return _domain.named(name).load_handle(handle)
