# SPDX-License-Identifier: Apache-2.0
"""Making tensors in this process's domain."""

from typing import Any, Optional, Sequence, Union

from . import _core, _domain

_Shape = Union[int, Sequence[int]]


def empty(
    shape: _Shape,
    dtype: Any = "float32",
    *,
    timeout: Optional[float] = 0,
    strategy: Optional[str] = None,
    write_once: bool = False,
    domain: Optional[_core.Domain] = None,
) -> _core.Tensor:
    """A tensor in shared memory, contents undefined.

    dtype: of NumPy or PyTorch, a name, or a Python type. timeout: seconds to wait for memory
    while the domain's quota is used; None: for ever. strategy: "arena", "file_descriptor" or
    "file_system"; None: this process's. Raises MemoryError, TypeError, ValueError.
    """
    where = domain or _domain.default()
    return where.empty(shape, dtype, timeout, strategy=strategy, write_once=write_once)


def zeros(
    shape: _Shape,
    dtype: Any = "float32",
    *,
    timeout: Optional[float] = 0,
    strategy: Optional[str] = None,
    write_once: bool = False,
    domain: Optional[_core.Domain] = None,
) -> _core.Tensor:
    """As empty(), filled with zeros."""
    where = domain or _domain.default()
    return where.zeros(shape, dtype, timeout, strategy=strategy, write_once=write_once)


def full(
    shape: _Shape,
    value: Any,
    dtype: Any = None,
    *,
    timeout: Optional[float] = 0,
    strategy: Optional[str] = None,
    write_once: bool = False,
    domain: Optional[_core.Domain] = None,
) -> _core.Tensor:
    """As empty(), filled with one value; its dtype is that of the value unless it is given."""
    where = domain or _domain.default()
    dtype = type(value) if dtype is None else dtype
    tensor = where.empty(shape, dtype, timeout, strategy=strategy, write_once=write_once)
    tensor[...] = value
    return tensor


def asarray(source: Any, dtype: Any = None, *, domain: Optional[_core.Domain] = None) -> _core.Tensor:
    """A tensor in shared memory with the elements of `source`.

    source: a tensor, an array, anything with the buffer protocol or DLPack, or nested sequences
    of numbers. What lies in the domain already is not copied, unless its dtype is another one.
    Where no domain is named, that holds for a tensor in any domain.
    """
    where = domain or _domain.default()
    if isinstance(source, _core.Tensor):
        tensor = source
    else:
        tensor = _over(source)
    if dtype is not None and _core.dtype_name(dtype) != tensor.dtype:
        return _converted(tensor, dtype, where)
    if domain is None and tensor.is_shared:
        return tensor
    return _placed(tensor, where)


def _over(source: Any) -> _core.Tensor:
    """A private tensor over its memory, or over that of an array which NumPy makes of it."""
    try:
        return _core.from_buffer(source)
    except (TypeError, ValueError, BufferError) as error:
        if hasattr(source, "__dlpack__"):
            try:
                return _core.from_dlpack(source)
            except (TypeError, BufferError):
                raise error from None  # which says what is wrong with the elements
        import numpy

        return _core.from_buffer(numpy.asarray(source))


def _converted(tensor: _core.Tensor, dtype: Any, where: _core.Domain) -> _core.Tensor:
    import numpy

    result = where.empty(tensor.shape, dtype)
    numpy.asarray(result)[...] = numpy.asarray(tensor)
    return result


def _placed(tensor: _core.Tensor, where: _core.Domain) -> _core.Tensor:
    """Where it lies already, or a copy."""
    if tensor.is_shared and tensor.domain is where:
        return tensor
    if tensor.size > 0 and tensor.is_contiguous:
        storage = where.find(tensor.address, tensor.nbytes)
        if storage is not None:
            offset = tensor.address - storage.address
            return storage.view(tensor.shape, tensor.dtype, tensor.strides, offset)
    copy = where.empty(tensor.shape, tensor.dtype)
    copy.copy_from(tensor)
    return copy


def share(
    source: _core.Tensor, *, timeout: Optional[float] = 0, domain: Optional[_core.Domain] = None
) -> _core.Tensor:
    """Move a private tensor's storage into shared memory, for all its views; returns it.

    An array or tensor of another library cannot be moved: asarray() copies it, and
    tenon.torch.share_memory() moves PyTorch's.
    """
    if not isinstance(source, _core.Tensor):
        raise TypeError(f"a tenon.Tensor can be moved, not {type(source).__name__}: see asarray()")
    return source.share(domain or _domain.default(), timeout)


def _rebuild_tensor(name: str, handle: bytes) -> _core.Tensor:
    return _domain.named(name).load_handle(handle)
