# SPDX-License-Identifier: Apache-2.0
"""Pickling tensors and storages of PyTorch: they arrive as storages over tenon's memory."""

import torch

from . import _core, _domain, _torch_cuda, _torch_file
from ._torch_file import filename_of
from ._torch_private import (
    is_without_memory,
    nested_offsets,
    nested_sizes,
    nested_strides,
    nested_view,
    rebuild_quantized,
    reduce_storage,
    set_bits,
    set_coalesced,
    sparse_parts,
    typed,
    untyped,
    warn_if_has_hooks,
)
from ._torch_storage import over_fixed, share, storages

_SPARSE_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def check_device(device, what):
    if device.type == "cuda":
        _torch_cuda.check()
    elif device.type != "cpu":
        raise NotImplementedError(
            f"{what} on {device} cannot be shared by tenon: move it to the CPU first"
        )


def _install_once():
    """Install tenon.torch in a process that receives a tensor, unless the program has decided otherwise."""
    from . import torch as ours

    ours._notice()


def _rebuild_storage(carrier, offset, size_bytes):
    """Make a storage. `carrier` is the number of a tensor in the message, or a domain's name and a handle."""
    _install_once()
    if isinstance(carrier, int):
        tensor = _core.take(carrier)
    else:
        tensor = _domain.named(carrier[0]).load_handle(carrier[1])
    return _over_part(tensor, offset, size_bytes)


def _rebuild_empty(uuid):
    """An empty storage on a device, which may have another number here."""
    _install_once()
    return untyped(torch.empty(0, dtype=torch.uint8, device=_core.find_device(uuid)))


def _over_part(tensor, offset, size_bytes):
    if not 0 <= offset <= offset + size_bytes <= tensor.nbytes:
        raise ValueError(
            f"a storage of {size_bytes} bytes at {offset} does not lie in a tensor of "
            f"{tensor.nbytes}"
        )
    if (offset, size_bytes) != (0, tensor.nbytes):
        tensor = tensor.view((size_bytes,), "uint8", None, tensor.byte_offset + offset)
    return over_fixed(tensor)  # the sender has it as a tensor of PyTorch, too


def reduce_any_storage(storage):
    if storage.device.type == "meta":
        raise RuntimeError("a storage on the meta device cannot be pickled; a tensor there can")
    check_device(storage.device, "a storage")
    if storage.nbytes() == 0 and storage.device.type == "cpu":
        return torch.UntypedStorage, (0,)
    if storage.nbytes() == 0:
        return _rebuild_empty, (_torch_cuda.uuid_of(storage.device),)
    domain, timeout = _core.dumping() or (None, 0)
    shared = share(storage, domain, timeout)
    if shared is None and filename_of(storage) is not None:
        return _torch_file.open_again, _torch_file.name(storage)
    if shared is None:
        return reduce_storage(storage)
    offset = storage.data_ptr() - shared.address
    _torch_cuda.record(shared)
    if domain is None:  # not a queue of tenon: the message may be lost, so the handle ends with this process
        carrier = shared.domain.name, shared.to_handle(lifetime=0)
    else:
        carrier = _core.send(shared)
    return _rebuild_storage, (carrier, offset, storage.nbytes())


def _finish(tensor, kind, requires_grad):
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(
            tensor, requires_grad
        )  # at once, since integers cannot change it later
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_tensor(kind, storage, dtype, offset, shape, strides, requires_grad, bits):
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, strides)
    if bits:
        set_bits(tensor, *bits)
    return _finish(tensor, kind, requires_grad)


def _reduce_strided(tensor):
    storage = untyped(tensor)
    if storage.nbytes() > 0 and storages.domain_of(storage) is None:
        domain, timeout = _core.dumping() or (None, 0)
        share(storage, domain, timeout, tensor)
    bits = tensor.is_conj(), tensor.is_neg()
    return _rebuild_tensor, (
        type(tensor),
        storage,
        tensor.dtype,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.requires_grad,
        bits if any(bits) else None,
    )


def _rebuild_meta(kind, dtype, size_bytes, offset, shape, strides, requires_grad):
    storage = torch.UntypedStorage(size_bytes, device="meta")
    tensor = torch.empty(0, dtype=dtype, device="meta").set_(storage, offset, shape, strides)
    return _finish(tensor, kind, requires_grad)


def _reduce_meta(tensor):
    place = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    about = type(tensor), tensor.dtype, untyped(tensor).nbytes(), *place, tensor.requires_grad
    return _rebuild_meta, about


def _rebuild_coo(kind, indices, values, shape, is_coalesced, requires_grad):
    tensor = set_coalesced(torch.sparse_coo_tensor(indices, values, shape, device=values.device), is_coalesced)
    return _finish(tensor, kind, requires_grad)


def _rebuild_compressed(kind, compressed, plain, values, shape, layout, requires_grad):
    parts = compressed, plain, values
    tensor = torch.sparse_compressed_tensor(*parts, shape, layout=layout, device=values.device)
    return _finish(tensor, kind, requires_grad)


def _reduce_sparse(tensor):
    kind, data, grad = type(tensor), tensor.detach(), tensor.requires_grad
    shape = tuple(tensor.shape)
    if tensor.layout == torch.sparse_coo:
        parts = sparse_parts(data)
        return _rebuild_coo, (kind, *parts, shape, tensor.is_coalesced(), grad)
    compressed, plain = _SPARSE_COMPRESSED[tensor.layout]
    parts = getattr(data, compressed)(), getattr(data, plain)(), data.values()
    return _rebuild_compressed, (kind, *parts, shape, tensor.layout, grad)


def _rebuild_nested(kind, parts, requires_grad):
    return _finish(nested_view(*parts), kind, requires_grad)


def _nested_parts(tensor):
    return (
        tensor.values(),
        nested_sizes(tensor),
        nested_strides(tensor),
        nested_offsets(tensor),
    )


def _rebuild_quantized(kind, storage, offset, shape, strides, quantizer):
    tensor = rebuild_quantized(
        storage, offset, shape, strides, quantizer, False, {}
    )
    return _finish(tensor, kind, False)


def _quantizer_of(tensor):
    if tensor.qscheme() == torch.per_tensor_affine:
        return torch.per_tensor_affine, tensor.q_scale(), tensor.q_zero_point()
    if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        scales, zero_points = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        return torch.per_channel_affine, scales, zero_points, tensor.q_per_channel_axis()
    raise NotImplementedError(f"a tensor of qscheme {tensor.qscheme()} cannot be shared")


def _reduce_quantized(tensor):
    storage = typed(tensor)
    place = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    return _rebuild_quantized, (type(tensor), storage, *place, _quantizer_of(tensor))


def reduce_tensor(tensor):
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "a tensor with requires_grad that is not a leaf cannot go to another process, since "
            "its graph cannot: send tensor.detach() if only the data is meant"
        )
    warn_if_has_hooks(tensor)
    if tensor.device.type == "meta":
        return _reduce_meta(tensor)
    check_device(tensor.device, "a tensor")
    if tensor.is_nested:
        return _rebuild_nested, (
            type(tensor),
            _nested_parts(tensor.detach()),
            tensor.requires_grad,
        )
    if tensor.layout == torch.sparse_coo or tensor.layout in _SPARSE_COMPRESSED:
        return _reduce_sparse(tensor)
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"a tensor of layout {tensor.layout} cannot be shared")
    if is_without_memory(tensor):
        raise NotImplementedError(
            "a tensor of zeros that has no memory cannot be shared: clone() it first"
        )
    return _reduce_quantized(tensor) if tensor.is_quantized else _reduce_strided(tensor)


def parts_of(tensor):
    """The tensors whose storages hold the memory of a tensor."""
    if hasattr(tensor, "__tensor_flatten__"):
        inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    elif tensor.is_nested:
        inner = _nested_parts(tensor.detach())[:1]
    elif tensor.layout == torch.sparse_coo:
        inner = sparse_parts(tensor.detach())
    elif tensor.layout in _SPARSE_COMPRESSED:
        data = tensor.detach()
        inner = [
            getattr(data, name)() for name in (*_SPARSE_COMPRESSED[tensor.layout], "values")
        ]
    else:
        return [tensor]
    return [part for whole in inner for part in parts_of(whole)]
