# SPDX-License-Identifier: Apache-2.0
"""Memory of libraries that have only __cuda_array_interface__, as Numba's arrays, with the fake driver."""

import contextlib
import ctypes
import gc
import weakref

import pytest
from devices import WAIT_S, child, held_stream, load_fake, needs_driver, universe

import tenon
import tenon.multiprocessing as mp
from tenon import _core, _domain

__all__ = ["child", "universe"]  # fixtures
pytestmark = needs_driver

BYTES = 4096
LEGACY, PER_THREAD = 1, 2


class Array:
    """An array of another library: it has the interface and nothing else."""

    def __init__(self, address, **entries):
        interface = {"shape": (6,), "typestr": "|u1", "data": (address, False), "version": 3}
        interface.update(entries)
        self.__cuda_array_interface__ = {name: value for name, value in interface.items() if value is not ...}


class Library:
    """Memory of cuMemAlloc() on a device, and a stream there."""

    def __init__(self, fake, address, stream):
        self.fake, self.address, self.stream = fake, address, stream

    def array(self, **entries):
        return Array(self.address, **entries)

    def fill(self, value, stream=None, size_bytes=BYTES):
        fill = self.fake.fake_kernel_fill
        fill.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_ubyte]
        assert fill(stream, self.address, size_bytes, value) == 0

    def write(self, data):
        args = ctypes.c_uint64(self.address), data, ctypes.c_size_t(len(data))
        assert self.fake.cuMemcpyHtoDAsync_v2(*args, None) == 0
        assert self.fake.cuStreamSynchronize(None) == 0


@contextlib.contextmanager
def library(device=0):
    """The context of the device stays current until the end, when the memory is freed."""
    fake, context, at, stream = load_fake(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    assert fake.cuInit(0) == 0
    assert fake.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert fake.cuCtxPushCurrent_v2(context) == 0
    assert fake.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(BYTES)) == 0
    assert fake.cuStreamCreate(ctypes.byref(stream), 1) == 0
    yield Library(fake, at.value, stream.value)
    gc.collect()
    if _domain.present() is not None:
        _domain.present().trim()  # what was shared is given back to the library
    assert fake.cuCtxSynchronize() == 0
    assert fake.cuStreamDestroy_v2(stream) == 0
    assert fake.cuMemFree_v2(at) == 0
    assert fake.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert fake.cuDevicePrimaryCtxRelease_v2(device) == 0


def syncs(fake):
    fake.fake_calls.restype = ctypes.c_uint64
    return fake.fake_calls(b"cuStreamSynchronize")


# ---- what the interface says


def test_the_memory_is_the_arrays_own(child):
    @child
    def case():
        with library() as ours:
            ours.write(bytes(range(24)))
            tensor = tenon.from_cuda_array(ours.array(shape=(2, 3), typestr="<i4"))
            assert (tensor.device, tensor.dtype, tensor.shape, tensor.strides) == ("cuda:0", "int32", (2, 3), (3, 1))
            assert tensor.address == ours.address
            assert not tensor.is_shared and not tensor.readonly and tensor.is_contiguous
            assert tensor.to("cpu").tobytes() == bytes(range(24))
            assert tenon.from_cuda_array(tensor) is tensor
            del tensor


def test_the_device_is_that_of_the_address(child):
    @child
    def case():
        with library(1) as ours:
            assert tenon.from_cuda_array(ours.array()).device == "cuda:1"


@pytest.mark.parametrize("version", [2, 3])
def test_entries_that_may_be_missing_are_as_if_none(child, version):
    @child
    def case():
        with library() as ours:
            for rest in ({}, {"strides": None, "mask": None, "stream": None, "descr": [("", "|u1")]}):
                tensor = tenon.from_cuda_array(ours.array(version=version, **rest))
                assert (tensor.shape, tensor.strides, tensor.dtype) == ((6,), (1,), "uint8")
                del tensor


def test_every_dtype_that_numpy_has_is_taken(child):
    @child
    def case():
        with library() as ours:
            dtypes = {"|b1": "bool", "|i1": "int8", "<u2": "uint16", "<i8": "int64", "<f2": "float16", "<f4": "float32",
                      "<f8": "float64", "<c8": "complex64", "<c16": "complex128"}
            for typestr, dtype in dtypes.items():
                assert tenon.from_cuda_array(ours.array(typestr=typestr)).dtype == dtype


def test_strides_are_in_bytes_and_may_be_negative_or_0(child):
    @child
    def case():
        with library() as ours:
            ours.write(b"".join(n.to_bytes(2, "little") for n in range(12)))
            take = {"typestr": "<i2", "shape": (2, 3)}
            columns = tenon.from_cuda_array(ours.array(strides=(2, 8), **take))
            assert columns.strides == (1, 4) and columns.to("cpu").tolist() == [[0, 4, 8], [1, 5, 9]]
            repeated = tenon.from_cuda_array(ours.array(strides=(0, 2), **take))
            assert repeated.to("cpu").tolist() == [[0, 1, 2]] * 2
            last = Array(ours.address + 10, strides=(-6, -2), **take)
            assert tenon.from_cuda_array(last).to("cpu").tolist() == [[5, 4, 3], [2, 1, 0]]
            one = tenon.from_cuda_array(ours.array(shape=(1,), typestr="<i2", strides=(7,)))
            assert one.to("cpu").tolist() == [0]
            del columns, repeated, one


def test_a_read_only_array_is_a_read_only_tensor(child):
    @child
    def case():
        with library() as ours:
            tensor = tenon.from_cuda_array(ours.array(data=(ours.address, True)))
            assert tensor.readonly
            with pytest.raises(ValueError, match="read-only"):
                tensor.copy_from(tenon.zeros(6, "uint8"))
            del tensor


def test_an_array_without_elements_needs_no_address(child):
    @child
    def case():
        with library() as ours:
            for address in (0, ours.address, 4096):
                tensor = tenon.from_cuda_array(Array(address, shape=(0, 3), stream=LEGACY))
                assert (tensor.device, tensor.shape, tensor.address) == ("cuda:0", (0, 3), 0)
            assert tenon.from_cuda_array(ours.array(shape=())).size == 1


def test_the_array_lives_as_long_as_a_tensor_over_it(child):
    @child
    def case():
        with library() as ours:
            array = ours.array()
            is_there = weakref.ref(array)
            tensor = tenon.from_cuda_array(array)
            view = tensor[2:]
            del array, tensor
            gc.collect()
            assert is_there() is not None
            del view
            gc.collect()
            assert is_there() is None


WRONG = {
    "a version that is too new": ({"version": 4}, ValueError, r"\['version'\] is 4"),
    "a version that is too old": ({"version": 1}, ValueError, r"\['version'\] is 1"),
    "a version that is a text": ({"version": "3"}, TypeError, r"\['version'\] is '3', and not an int"),
    "no version": ({"version": ...}, ValueError, "no 'version'"),
    "a mask": ({"mask": object()}, ValueError, r"\['mask'\]"),
    "no shape": ({"shape": ...}, ValueError, "no 'shape'"),
    "a shape that is a list": ({"shape": [6]}, TypeError, r"\['shape'\] is \[6\], and not a tuple of ints"),
    "a shape of fractions": ({"shape": (6.0,)}, TypeError, r"\['shape'\] is 6.0, and not an int"),
    "a negative size": ({"shape": (6, -1)}, ValueError, r"\['shape'\] is \(6, -1\)"),
    "a size that is too large": ({"shape": (1 << 70,)}, ValueError, r"\['shape'\] has \d+, which is too large"),
    "too many axes": ({"shape": (1,) * 65}, ValueError, r"\['shape'\] has 65 axes"),
    "more elements than memory": ({"shape": (1 << 62,), "typestr": "<f8"}, ValueError, ""),
    "no typestr": ({"typestr": ...}, ValueError, "no 'typestr'"),
    "a typestr that is none": ({"typestr": 4}, TypeError, r"\['typestr'\] is 4"),
    "a name in place of a typestr": ({"typestr": "float32"}, TypeError, r"\['typestr'\] is 'float32'"),
    "an empty typestr": ({"typestr": ""}, TypeError, r"\['typestr'\] is ''"),
    "a foreign byte order": ({"typestr": ">f4"}, TypeError, r"\['typestr'\] is '>f4'"),
    "dates": ({"typestr": "<M8"}, TypeError, r"\['typestr'\] is '<M8'"),
    "structs": ({"typestr": "|V8"}, TypeError, r"\['typestr'\] is '\|V8'"),
    "no data": ({"data": ...}, ValueError, "no 'data'"),
    "data that is an address": ({"data": 4096}, TypeError, r"\['data'\] is 4096"),
    "data of three": ({"data": (4096, False, 0)}, TypeError, r"\['data'\] is \(4096, False, 0\)"),
    "an address that is a text": ({"data": ("4096", False)}, TypeError, r"\['data'\] is \('4096', False\)"),
    "a negative address": ({"data": (-1, False)}, ValueError, r"\['data'\] is \(-1, False\)"),
    "no address of elements": ({"data": (0, False)}, ValueError, r"\['data'\] is \(0, False\)"),
    "an address of the host": ({"data": (4096, False)}, ValueError, r"\['data'\]: address 1000 is not of memory of a"),
    "strides that are an int": ({"strides": 1}, TypeError, r"\['strides'\] is 1, and not a tuple of ints"),
    "strides of another shape": ({"strides": (1, 1)}, ValueError, r"\['strides'\] is \(1, 1\), for 1 axes"),
    "strides of half an element": ({"typestr": "<i2", "strides": (3,)}, ValueError, r"\['strides'\] is \(3,\): 3 bytes"),
    "strides beyond all memory": ({"strides": (1 << 62,)}, ValueError, ""),
    "a stream that is 0": ({"stream": 0}, ValueError, r"\['stream'\] is 0"),
    "a negative stream": ({"stream": -1}, ValueError, r"\['stream'\] is -1"),
    "a stream that is a text": ({"stream": "1"}, TypeError, r"\['stream'\] is '1', and not an int"),
}  # fmt: skip


def test_an_entry_that_is_wrong_is_named(child):
    @child
    def case():
        with library() as ours:
            for name, (entries, error, message) in WRONG.items():
                with pytest.raises(error, match=message):
                    tenon.from_cuda_array(ours.array(**entries))
                    pytest.fail(f"{name} is taken")


def test_an_object_without_the_interface_is_refused(child):
    @child
    def case():
        class Odd:
            __cuda_array_interface__ = [1]

        class Failing:
            @property
            def __cuda_array_interface__(self):
                raise RuntimeError("no interface now")

        with pytest.raises(TypeError, match="int has no __cuda_array_interface__"):
            tenon.from_cuda_array(3)
        with pytest.raises(TypeError, match="of Odd is list, not a dict"):
            tenon.from_cuda_array(Odd())
        with pytest.raises(RuntimeError, match="no interface now"):
            tenon.from_cuda_array(Failing())


# ---- order


def test_the_call_waits_for_the_stream_of_the_array(child):
    @child
    def case():
        with library() as ours:
            for stream in (LEGACY, PER_THREAD, ours.stream):
                before = syncs(ours.fake)
                ours.fill(stream % 7, stream)
                tensor = tenon.from_cuda_array(ours.array(stream=stream))
                assert syncs(ours.fake) == before + 1
                host = ctypes.create_string_buffer(6)
                assert ours.fake.fake_peek(ctypes.c_uint64(tensor.address), host, ctypes.c_size_t(6)) == 0
                assert host.raw == bytes([stream % 7]) * 6
            before = syncs(ours.fake)
            tensor = tenon.from_cuda_array(ours.array(stream=None))
            assert syncs(ours.fake) == before
            del tensor


def test_a_program_on_the_same_stream_does_not_wait(child):
    @child
    def case():
        with library() as ours, held_stream():
            ours.fill(7)  # it is not begun before the end of the block
            for stream in (0, LEGACY, -1):
                tensor = tenon.from_cuda_array(ours.array(stream=LEGACY), stream=stream)
            with pytest.raises(TypeError, match="a stream is"):
                tenon.from_cuda_array(ours.array(stream=LEGACY), stream="1")
            before = syncs(ours.fake)
            tenon.from_cuda_array(ours.array(stream=ours.stream), stream=LEGACY)  # that of the array has no work
            assert syncs(ours.fake) == before + 1
            tensor.share(stream=LEGACY)
            tensor.record(LEGACY)
            with pytest.raises(tenon.TimedOut):
                tensor.sync(0)
            ours.fake.fake_release(None)
            tensor.sync(WAIT_S)
            assert tensor.to("cpu").tolist() == [7] * 6
            del tensor


def test_a_stream_that_is_captured_is_named(child):
    @child
    def case():
        with library() as ours:
            ours.fake.fake_capture(ctypes.c_void_p(ours.stream), True)
            with pytest.raises(ValueError, match=r"\['stream'\]: the stream is being captured"):
                tenon.from_cuda_array(ours.array(stream=ours.stream))
            ours.fake.fake_capture(ctypes.c_void_p(ours.stream), False)


# ---- what is done with it


def add_one(requests, answers):
    tensor = requests.get()
    host = tensor.to("cpu")
    host[...] = [value + 1 for value in host.tolist()]
    tensor.copy_from(host)
    answers.put((tensor.device, tensor.strategy))
    del tensor
    _domain.leave()
    load_fake().fake_detach()


def test_another_process_has_the_array_where_it_lies(child):
    @child
    def case():
        with library() as ours:
            ours.write(bytes(range(6)))
            requests, answers = (mp.get_context("spawn").SimpleQueue() for _ in range(2))
            process = mp.get_context("spawn").Process(target=add_one, args=(requests, answers), daemon=True)
            process.start()
            tensor = tenon.from_cuda_array(ours.array()).share()
            assert tensor.address == ours.address and tensor.strategy == "cuda_ipc"
            requests.put(tensor)
            assert answers.get() == ("cuda:0", "cuda_ipc")
            process.join(WAIT_S)
            assert process.exitcode == 0
            host = ctypes.create_string_buffer(6)
            assert ours.fake.fake_peek(ctypes.c_uint64(ours.address), host, ctypes.c_size_t(6)) == 0
            assert host.raw == bytes(range(1, 7))
            del tensor


def test_what_takes_objects_takes_such_arrays(child):
    @child
    def case():
        with library() as ours:
            ours.write(bytes(range(6)))
            copied = tenon.asarray(ours.array())
            assert (copied.device, copied.is_shared, copied.to("cpu").tolist()) == ("cuda:0", True, list(range(6)))
            target = tenon.zeros(6, "uint8")
            target.copy_from(ours.array())
            assert target.tolist() == list(range(6))
            with pytest.raises(ValueError, match=r"\['shape'\]"):
                tenon.asarray(ours.array(shape=(-1,)))
            with pytest.raises(TypeError, match="__cuda_array_interface__ is needed"):
                target.copy_from(_core)
            del copied
