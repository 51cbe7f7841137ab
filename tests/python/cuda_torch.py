# SPDX-License-Identifier: Apache-2.0
"""Lets a PyTorch that was built without CUDA have CUDA tensors, whose memory is that of the fake driver.

install() gives PyTorch what it lacks, in this process: the names of torch.cuda that tenon and the tests use,
kernels for the dispatch key of CUDA, and a guard that knows of devices. The tensors are torch.Tensor, with
PyTorch's own storages. Copies within a device, and fill_() of bytes, are operations of the current stream, which
the fake driver can hold; every other function copies to the CPU, is done there, and waits.

With a PyTorch that has CUDA, install() does nothing, and the tests use PyTorch's own.
"""

import contextlib
import ctypes
import functools
import os
import threading
from multiprocessing.reduction import ForkingPickler

import torch
from devices import load_fake
from torch import library
from torch.multiprocessing import reductions

GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry
CPU, CUDA, META = 0, 1, 14  # c10::DeviceType
KDL_CUDA = 2

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """DLManagedTensor of DLPack before 1.0."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", DELETER),
    ]


class Stream:
    """torch.cuda.Stream; the number 0 is the legacy default stream."""

    def __init__(self, device=None, number=None):
        self.device_index = index_of(device)
        self.cuda_stream = new_stream(self.device_index) if number is None else number

    def __eq__(self, other):
        return (self.device_index, self.cuda_stream) == (other.device_index, other.cuda_stream)

    def __hash__(self):
        return hash((self.device_index, self.cuda_stream))

    def synchronize(self):
        with context(self.device_index) as fake:
            assert fake.cuStreamSynchronize(ctypes.c_void_p(self.cuda_stream)) == 0

    def wait_event(self, event):
        event.wait(self)


class ExternalStream(Stream):
    """torch.cuda.ExternalStream"""

    def __init__(self, stream_ptr, device=None):
        super().__init__(device, stream_ptr)


class Device:
    """torch.cuda.device: a context in which a device is the current one of the thread."""

    def __init__(self, device):
        self.index = index_of(device)

    def __enter__(self):
        self.before, state.current.__dict__["device"] = current_device(), self.index

    def __exit__(self, *error):
        state.current.__dict__["device"] = self.before


class Event:
    """torch.cuda.Event: the driver's event is made when it is first needed."""

    DISABLE_TIMING, INTERPROCESS, HANDLE_BYTES, NOT_READY = 2, 4, 64, 600

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self.flags = blocking | (0 if enable_timing else self.DISABLE_TIMING) | (self.INTERPROCESS if interprocess else 0)
        self.device = self.cuda_event = None

    def call(self, name, *args, index=None):
        """Call a function of the driver with the event as its first argument; its result."""
        if self.cuda_event is None and index is not None:
            made = ctypes.c_void_p()
            with context(index) as fake:
                assert fake.cuEventCreate(ctypes.byref(made), self.flags) == 0
            self.take(index, made.value)
        with context(self.device.index) as fake:
            return getattr(fake, name)(ctypes.c_void_p(self.cuda_event), *args)

    def take(self, index, number):
        self.device, self.cuda_event = torch.device("cuda", index), number
        state.events.append((index, number))

    def record(self, stream=None):
        stream = stream or current_stream()
        assert self.device is None or self.device.index == stream.device_index, "an event of another device"
        assert self.call("cuEventRecord", ctypes.c_void_p(stream.cuda_stream), index=stream.device_index) == 0

    def wait(self, stream=None):
        stream = stream or current_stream()
        with context(stream.device_index) as fake:
            args = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p(self.cuda_event)
            assert fake.cuStreamWaitEvent(*args, 0) == 0

    def query(self):
        result = 0 if self.cuda_event is None else self.call("cuEventQuery")
        assert result in (0, self.NOT_READY)
        return result == 0

    def synchronize(self):
        assert self.cuda_event is None or self.call("cuEventSynchronize") == 0

    def ipc_handle(self):
        handle = ctypes.create_string_buffer(self.HANDLE_BYTES)
        function = load_fake().cuIpcGetEventHandle
        if self.cuda_event is None:
            self.call("cuEventQuery", index=0)
        with context(self.device.index):
            result = function(handle, ctypes.c_void_p(self.cuda_event))
        if result != 0:
            raise RuntimeError(f"CUDA error {result}: the event has no handle")
        return handle.raw

    @classmethod
    def from_ipc_handle(cls, device, handle):
        class Handle(ctypes.Structure):
            _fields_ = [("reserved", ctypes.c_char * cls.HANDLE_BYTES)]

        event, made = cls(interprocess=True), ctypes.c_void_p()
        with context(index_of(device)) as fake:
            result = fake.cuIpcOpenEventHandle(ctypes.byref(made), Handle.from_buffer_copy(handle))
        if result != 0:
            raise RuntimeError(f"CUDA error {result}: the handle is of no event")
        event.take(index_of(device), made.value)
        return event


state = None  # what install() made, one a process


class State:
    def __init__(self):
        self.lock = threading.RLock()
        self.contexts = {}  # by device
        self.streams = []  # (device, number)
        self.events = []  # (device, number)
        self.current = threading.local()  # the streams by device, and the device
        self.lent = {}  # address of a Managed: what it needs
        self.freed = []  # (function, address, device): freed when the process ends
        self.allocate = None  # of a pluggable allocator
        self.libraries = []
        self.allocated = 0


def current_device():
    return state.current.__dict__.get("device", 0)


def index_of(device):
    index = device if device is None or isinstance(device, int) else torch.device(device).index
    return current_device() if index is None else index


@contextlib.contextmanager
def context(index):
    """The driver, with the context of a device."""
    fake = load_fake()
    with state.lock:
        if index not in state.contexts:
            made = ctypes.c_void_p()
            assert fake.cuInit(0) == 0
            assert fake.cuDevicePrimaryCtxRetain(ctypes.byref(made), index) == 0
            state.contexts[index] = made
    assert fake.cuCtxPushCurrent_v2(state.contexts[index]) == 0
    try:
        yield fake
    finally:
        assert fake.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0


def new_stream(index):
    made = ctypes.c_void_p()
    with context(index) as fake:
        assert fake.cuStreamCreate(ctypes.byref(made), 1) == 0
    state.streams.append((index, made.value))
    return made.value


def current_stream(device=None):
    index = index_of(device)
    return state.current.__dict__.get(index) or Stream(index, 0)


def default_stream(device=None):
    return Stream(index_of(device), 0)


@contextlib.contextmanager
def on_stream(stream):
    before = state.current.__dict__.get(stream.device_index)
    state.current.__dict__[stream.device_index] = stream
    yield
    state.current.__dict__[stream.device_index] = before


def synchronize(device=None):
    with context(index_of(device)) as fake:
        assert fake.cuCtxSynchronize() == 0


@contextlib.contextmanager
def held(stream=None):
    """A stream begins nothing until the end of the block; None is the default stream of device 0."""
    index, number = (stream.device_index, stream.cuda_stream) if stream is not None else (0, 0)
    with context(index) as fake:
        fake.fake_hold(ctypes.c_void_p(number))
    try:
        yield
    finally:
        with context(index) as fake:
            fake.fake_release(ctypes.c_void_p(number))


# ---- memory


def driver_allocate(size_bytes, index, stream):
    made = ctypes.c_uint64()
    with context(index) as fake:
        if fake.cuMemAlloc_v2(ctypes.byref(made), ctypes.c_size_t(size_bytes)) != 0:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {size_bytes} bytes")
    state.allocated += 1
    return made.value


def driver_free(address, size_bytes, index, stream):
    """Freed when the process ends: PyTorch's caching allocator keeps the memory, too."""
    state.freed.append((free_now, address, index))


def free_now(fake, address):
    assert fake.cuMemFree_v2(ctypes.c_uint64(address)) == 0


class Location(ctypes.Structure):
    """CUmemLocation"""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("rest", ctypes.c_uint64 * 2)]


class Access(ctypes.Structure):
    """CUmemAccessDesc"""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


PIECE_BYTES = 2 << 20


def map_piece(size_bytes, index, stream, handles=0):
    """Memory as that of PyTorch's expandable segments, which the driver shares with others only if it has handles."""
    made, handle, place = ctypes.c_uint64(), ctypes.c_uint64(), Location(1, index)
    size = ctypes.c_size_t(PIECE_BYTES)
    assert size_bytes <= PIECE_BYTES
    with context(index) as fake:
        assert fake.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(Properties(1, handles, place)), 0) == 0
        assert fake.cuMemAddressReserve(ctypes.byref(made), size, ctypes.c_size_t(0), ctypes.c_uint64(0), 0) == 0
        assert fake.cuMemMap(made, size, ctypes.c_size_t(0), handle, 0) == 0
        assert fake.cuMemSetAccess(made, size, ctypes.byref(Access(place, 3)), ctypes.c_size_t(1)) == 0
        assert fake.cuMemRelease(handle) == 0
    return made.value


def unmap_piece(address, size_bytes, index, stream):
    state.freed.append((unmap_now, address, index))


def unmap_now(fake, address):
    size, at = ctypes.c_size_t(PIECE_BYTES), ctypes.c_uint64(address)
    assert fake.cuMemUnmap(at, size) == 0
    assert fake.cuMemAddressFree(at, size) == 0


def use_pieces(have_descriptors=False):
    state.allocate = functools.partial(map_piece, handles=int(have_descriptors)), unmap_piece


BLOCK_BYTES, STEP_BYTES = 2 << 20, 512


def use_blocks():
    """Cut tensors from blocks of the driver, and use memory again once it is freed, as PyTorch's caching allocator does."""
    unused, freed = {}, {}  # by device and stream: begin and end of what is left; the same and size: addresses

    def rounded(size_bytes):
        return -(-size_bytes // STEP_BYTES) * STEP_BYTES

    def allocate(size_bytes, index, stream):
        size, kept = rounded(size_bytes), freed.get((index, stream, rounded(size_bytes)))
        if kept:
            return kept.pop()
        address, end = unused.get((index, stream), (0, 0))
        if end - address < size:
            address = driver_allocate(max(size, BLOCK_BYTES), index, stream)
            end = address + max(size, BLOCK_BYTES)
            state.freed.append((free_now, address, index))
        unused[index, stream] = address + size, end
        return address

    def free(address, size_bytes, index, stream):
        freed.setdefault((index, stream, rounded(size_bytes)), []).append(address)

    state.allocate = allocate, free


@DELETER
def delete(managed):
    release, args = state.lent.pop(managed)[-1]
    release(*args)


def tensor_at(address, size_bytes, index, release):
    """A uint8 tensor over memory of a device; `release` is (function, arguments) for its end."""
    shape, strides = (ctypes.c_int64 * 1)(size_bytes), (ctypes.c_int64 * 1)(1)
    managed = Managed(data=address, ndim=1, code=1, bits=8, lanes=1, shape=shape, strides=strides, deleter=delete)
    managed.device[:] = KDL_CUDA, index
    state.lent[ctypes.addressof(managed)] = managed, shape, strides, release
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return torch.utils.dlpack.from_dlpack(new(ctypes.addressof(managed), b"dltensor", None))


def empty(size, *, dtype=None, device=None, **_):
    dtype = dtype or torch.get_default_dtype()
    count = 1
    for n in size:
        count *= n
    index = index_of(device)
    size_bytes = count * dtype.itemsize
    if size_bytes == 0:
        return tensor_at(0, 0, index, (int, ())).view(dtype).view(size)
    allocate, free = state.allocate or (driver_allocate, driver_free)
    stream = current_stream(index).cuda_stream
    address = allocate(size_bytes, index, stream)
    assert address, "PyTorch does not check this, and makes a tensor at address 0"
    made = tensor_at(address, size_bytes, index, (free, (address, size_bytes, index, stream)))
    return made.view(dtype).view(size)


def empty_strided(size, stride, *, dtype=None, device=None, **_):
    count = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0
    return empty((count,), dtype=dtype, device=device).as_strided(size, stride)


# ---- kernels


def storage_bytes(tensor):
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def to_host(tensor):
    """A tensor of the CPU with the same elements and strides, over a copy of the whole storage."""
    storage = tensor.untyped_storage()
    host = torch.empty(storage.nbytes(), dtype=torch.uint8)
    if storage.nbytes() > 0:
        stream = ctypes.c_void_p(current_stream(tensor.device).cuda_stream)
        with context(tensor.device.index) as fake:
            args = ctypes.c_void_p(host.data_ptr()), ctypes.c_uint64(storage.data_ptr()), ctypes.c_size_t(len(host))
            assert fake.cuMemcpyDtoHAsync_v2(*args, stream) == 0
            assert fake.cuStreamSynchronize(stream) == 0
    place = tensor.storage_offset(), tensor.shape, tensor.stride()
    made = torch.empty(0, dtype=tensor.dtype).set_(host.untyped_storage(), *place)
    made = made.conj() if tensor.is_conj() else made
    return torch._neg_view(made) if tensor.is_neg() else made


def to_device(host, tensor):
    """Write what to_host() gave back to the device."""
    storage = host.untyped_storage()
    if storage.nbytes() == 0:
        return
    stream = ctypes.c_void_p(current_stream(tensor.device).cuda_stream)
    with context(tensor.device.index) as fake:
        args = ctypes.c_uint64(tensor.untyped_storage().data_ptr()), ctypes.c_void_p(storage.data_ptr())
        assert fake.cuMemcpyHtoDAsync_v2(*args, ctypes.c_size_t(storage.nbytes()), stream) == 0
        assert fake.cuStreamSynchronize(stream) == 0


def is_plain(tensor):
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def copy_(target, source, non_blocking=False):
    both = target.is_cuda and source.is_cuda and target.device == source.device
    if both and target.dtype == source.dtype and target.shape == source.shape and is_plain(target) and is_plain(source):
        size_bytes = target.numel() * target.element_size()
        if size_bytes > 0:
            with context(target.device.index) as fake:
                args = ctypes.c_uint64(target.data_ptr()), ctypes.c_uint64(source.data_ptr())
                stream = ctypes.c_void_p(current_stream(target.device).cuda_stream)
                assert fake.cuMemcpyDtoDAsync_v2(*args, ctypes.c_size_t(size_bytes), stream) == 0
        return target
    host = to_host(source) if source.is_cuda else source
    if not target.is_cuda:
        return target.copy_(host)
    there = to_host(target)
    there.copy_(host)
    to_device(there, target)
    return target


def fill_(tensor, value):
    """Bytes are filled in the order of the stream, without waiting."""
    if tensor.dtype != torch.uint8 or not is_plain(tensor):
        return fallback(torch.ops.aten.fill_.Scalar, tensor, value)
    with context(tensor.device.index) as fake:
        stream = ctypes.c_void_p(current_stream(tensor.device).cuda_stream)
        args = ctypes.c_uint64(tensor.data_ptr()), ctypes.c_size_t(tensor.numel()), ctypes.c_ubyte(int(value))
        assert fake.fake_kernel_fill(stream, *args) == 0
    return tensor


def fallback(op, *args, **kwargs):
    """Do it on the CPU, and write back what it changes."""
    written = []
    index = next((a.device.index for a in args if isinstance(a, torch.Tensor) and a.is_cuda), 0)

    def here(value, schema):
        if isinstance(value, (list, tuple)):
            return type(value)(here(item, schema) for item in value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return value
        host = to_host(value)
        if schema.alias_info is not None and schema.alias_info.is_write:
            written.append((host, value))
        return host

    schemas = op._schema.arguments
    given = [here(value, schema) for value, schema in zip(args, schemas)]
    named = {s.name: here(kwargs[s.name], s) for s in schemas if s.name in kwargs}
    result = op(*given, **named)
    for host, tensor in written:
        if host.shape == tensor.shape:
            to_device(host, tensor)
        else:  # it was resized
            new = host.to(tensor.device)
            tensor.set_(new.untyped_storage(), 0, new.shape, new.stride())

    def there(value):
        if isinstance(value, (list, tuple)):
            return type(value)(there(item) for item in value)
        if not isinstance(value, torch.Tensor):
            return value
        for host, tensor in written:
            if value is host:
                return tensor
        return value.to(f"cuda:{index}")

    return there(result)


VIEWS = ["as_strided.default", "view.default", "view.dtype", "_reshape_alias.default", "unfold.default",
         "set_.source_Storage_storage_offset", "set_.source_Storage"]


def redispatched(op):
    """A function of PyTorch that needs no device: the one of the CPU."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda *args, **kwargs: op.redispatch(keys, *args, **kwargs)


def overload(name):
    name, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, name), variant)


def register_kernels():
    everything, aten = library.Library("_", "IMPL"), library.Library("aten", "IMPL")
    everything.fallback(fallback, "CUDA")
    for name in VIEWS:
        aten.impl(overload(name), redispatched(overload(name)), "CUDA")
    for name, kernel in (("empty.memory_format", empty), ("empty_strided", empty_strided), ("copy_", copy_),
                         ("fill_.Scalar", fill_), ("zero_", lambda tensor: fill_(tensor, 0))):
        aten.impl(name, kernel, "CUDA")
    state.libraries += [everything, aten]


def register_guard():
    """Let C++ code ask for the current device of CUDA; the guard of meta tensors does nothing, which is enough."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    guards = (ctypes.c_void_p * (META + 1)).in_dll(ctypes.CDLL(os.path.join(folder, "libc10.so")), GUARDS)
    assert guards[CUDA] is None and guards[META] is not None
    guards[CUDA] = guards[META]


class PluggableAllocator:
    """torch.cuda.memory.CUDAPluggableAllocator"""

    class Inner:
        record_stream = None

        def set_record_stream_fn(self, address):
            self.record_stream = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)

    def __init__(self, path, allocate, free):
        library = ctypes.CDLL(path)
        self.allocate, self.free = getattr(library, allocate), getattr(library, free)
        self.allocate.restype = ctypes.c_void_p
        self.allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.free.restype = None
        self.inner = self.Inner()

    def allocator(self):
        return self.inner


def change_current_allocator(allocator):
    state.allocate = allocator.allocate, allocator.free
    state.inner = allocator.inner


def record_stream(tensor, stream):
    inner = getattr(state, "inner", None)
    if inner is not None and inner.record_stream is not None:
        inner.record_stream(tensor.untyped_storage().data_ptr(), stream.cuda_stream)


def install():
    """Give this process a PyTorch with CUDA. A spawned child calls it, too, by importing this module."""
    global state
    if state is not None or torch.version.cuda is not None:
        return
    state = State()
    register_guard()
    register_kernels()
    names = {"_lazy_init": lambda: None, "is_available": lambda: True, "current_stream": current_stream,
             "current_device": current_device, "device_count": lambda: 2, "Stream": Stream, "stream": on_stream,
             "synchronize": synchronize, "Event": Event, "ExternalStream": ExternalStream, "device": Device,
             "default_stream": default_stream}
    for name, value in names.items():
        setattr(torch.cuda, name, value)
    ForkingPickler.register(Event, reductions.reduce_event)  # as PyTorch does for its own
    torch.cuda.memory.CUDAPluggableAllocator = PluggableAllocator
    torch.cuda.memory.change_current_allocator = change_current_allocator
    torch.Tensor.record_stream = record_stream


# ---- PyTorch's own sharing, for programs that compare tenon with it


class Handle(ctypes.Structure):
    """CUipcMemHandle"""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def share_storage(storage):
    """UntypedStorage._share_cuda_(): a handle of the allocation, and an event that is recorded now."""
    index, base, size, handle = storage.device.index, ctypes.c_uint64(), ctypes.c_size_t(), Handle()
    event = Event(interprocess=True)
    event.record(current_stream(index))
    with context(index) as fake:
        address = ctypes.c_uint64(storage.data_ptr())
        assert fake.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address) == 0
        assert fake.cuIpcGetMemHandle(ctypes.byref(handle), base) == 0
    return index, bytes(handle), storage.nbytes(), address.value - base.value, b"", 0, event.ipc_handle(), True


def open_storage(index, handle, size_bytes, offset_bytes, counter, counter_offset, event, is_ordered):
    """UntypedStorage._new_shared_cuda(): the event is waited for here, and only here."""
    Event.from_ipc_handle(torch.device("cuda", index), event).wait()
    if handle not in state.opened:
        made = ctypes.c_uint64()
        with context(index) as fake:
            if fake.cuIpcOpenMemHandle_v2(ctypes.byref(made), Handle.from_buffer_copy(handle), 1) != 0:
                raise RuntimeError("CUDA error: the handle cannot be opened")
        state.opened[handle] = index, made.value
    address = state.opened[handle][1] + offset_bytes
    return tensor_at(address, size_bytes, index, (int, ())).untyped_storage()


def install_sharing():
    """Let torch.multiprocessing carry CUDA tensors, after install()."""
    if state is None or hasattr(state, "opened"):
        return
    state.opened = {}  # by handle: device and address
    torch.UntypedStorage._share_cuda_ = share_storage
    torch.UntypedStorage._new_shared_cuda = staticmethod(open_storage)
    torch.UntypedStorage._release_ipc_counter_cuda = staticmethod(lambda *args, **kwargs: None)


def end():
    """Give back what the driver lent: for a process that ends by exit()."""
    if state is None or not state.contexts:
        return
    for index in state.contexts:
        synchronize(index)
    for free, address, index in state.freed:
        with context(index) as fake:
            free(fake, address)
    for index, address in getattr(state, "opened", {}).values():
        with context(index) as fake:
            assert fake.cuIpcCloseMemHandle(ctypes.c_uint64(address)) == 0
    for index, number in state.events:
        with context(index) as fake:
            assert fake.cuEventDestroy_v2(ctypes.c_void_p(number)) == 0
    for index, number in state.streams:
        with context(index) as fake:
            assert fake.cuStreamDestroy_v2(ctypes.c_void_p(number)) == 0
    fake = load_fake()
    for index in state.contexts:
        assert fake.cuDevicePrimaryCtxRelease_v2(index) == 0
    state.contexts.clear()
