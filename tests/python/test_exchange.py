# SPDX-License-Identifier: Apache-2.0
"""tenon._core.Tensor and other libraries: the buffer protocol, DLPack, NumPy, PyTorch."""

import array
import binascii
import ctypes
import gc
import math
import struct
import sys
import threading
import weakref

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenon import _core

LIMITS = settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "l" if ctypes.sizeof(ctypes.c_long) == 8 else "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "L" if ctypes.sizeof(ctypes.c_long) == 8 else "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "complex64": "Zf",
    "complex128": "Zd",
}
SHAPE = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@pytest.fixture
def numpy():
    return pytest.importorskip("numpy")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def counted(shape, dtype="int64"):
    flat = _core.private((math.prod(shape),), dtype)
    for i in range(flat.size):
        flat[i] = i % 100
    return flat.reshape(shape)


def same_place(one, other):
    """Whether two tensors have the same elements in memory; a stride that is never taken is of no matter."""
    steps = [[stride for size, stride in zip(t.shape, t.strides) if size > 1] for t in (one, other)]
    return one.size == 0 or (one.address == other.address and steps[0] == steps[1])


def a_view(data, tensor):
    """Some view of a tensor, or of its like in NumPy: steps, turned axes, parts."""
    index = tuple(
        slice(
            data.draw(st.integers(0, max(size - 1, 0))) if step > 0 else None,
            None,
            step,
        )
        for size, step in zip(tensor.shape, data.draw(st.tuples(*[st.sampled_from([1, 2, -1, -2])] * tensor.ndim)))
    )
    axes = data.draw(st.permutations(range(tensor.ndim)))
    return lambda base: base[index].transpose(*axes) if base.ndim else base


# ---- the buffer protocol, out


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_buffer_is_the_memory_itself(domain, dtype):
    for tensor in (domain.zeros((2, 3), dtype), _core.private((2, 3), dtype)):
        with memoryview(tensor) as view:
            assert (view.format, view.shape, view.itemsize) == (FORMATS[dtype], (2, 3), tensor.itemsize)
            assert view.strides == (3 * tensor.itemsize, tensor.itemsize)
            assert not view.readonly and view.contiguous and view.obj is tensor
            tensor[1, 2] = 1
            assert view.tobytes() == tensor.tobytes() != bytes(tensor.nbytes)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "complex32"])
def test_a_dtype_that_buffers_do_not_have_is_named(numpy, dtype):
    tensor = _core.private(3, dtype)
    for call in (memoryview, numpy.asarray, bytes, tensor.__array__):
        args = () if call == tensor.__array__ else (tensor,)
        with pytest.raises(BufferError, match=rf"{dtype}.*DLPack"):
            call(*args)


def test_a_buffer_that_must_be_contiguous_is_refused_where_it_is_not():
    tensor = counted((3, 4), "uint8")
    assert bytes(tensor) == bytes(range(12))
    assert binascii.crc32(tensor) == binascii.crc32(bytes(range(12)))
    for view in (tensor.T, tensor[:, ::2], tensor[::-1]):
        with pytest.raises(BufferError, match="row-major"):
            binascii.crc32(view)
        assert memoryview(view).tolist() == view.tolist()
        assert bytes(view) == view.tobytes() == memoryview(view).tobytes()
    assert memoryview(tensor.T).f_contiguous


def test_a_read_only_tensor_gives_a_read_only_buffer():
    tensor = _core.from_buffer(b"abc")
    assert memoryview(tensor).readonly
    assert bytes(tensor) == b"abc"
    with pytest.raises(TypeError, match="read-write"):
        struct.pack_into("b", tensor, 0, 1)
    with pytest.raises((BufferError, TypeError)):
        memoryview(tensor)[0] = 1


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (1,) * 32])
def test_buffers_of_odd_shapes(numpy, shape):
    tensor = counted(shape, "float32")
    array = numpy.asarray(tensor)
    assert array.shape == shape and array.dtype == "float32" and not array.flags.owndata
    if tensor.size:
        array[...] = 7
        assert tensor.item() == 7.0 and array.ctypes.data == tensor.address
    assert numpy.asarray(memoryview(tensor)).shape == shape
    assert _core.from_buffer(tensor).shape == shape


def test_a_buffer_keeps_the_tensor(numpy):
    tensor = counted((3,))
    reference = weakref.ref(tensor)
    array = numpy.asarray(tensor)
    del tensor
    gc.collect()
    assert reference() is not None and array.tolist() == [0, 1, 2]
    del array
    gc.collect()
    assert reference() is None


def test_elements_that_mean_something_else_are_not_handed_out():
    tensor = counted((3,), "int8")
    tensor.quantizer = (0.5, 1)
    for call in (memoryview, lambda t: t.__dlpack__(), lambda t: t.__dlpack__(max_version=(1, 0))):
        with pytest.raises(BufferError, match="quantizer"):
            call(tensor)


# ---- the buffer protocol, in


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_an_array_of_python_is_taken_without_a_copy(code):
    source = array.array(code, [1, 2, 3])
    tensor = _core.from_buffer(source)
    assert tensor.tolist() == [1, 2, 3]
    assert tensor.itemsize == source.itemsize and tensor.address == source.buffer_info()[0]
    tensor[1] = 7
    assert source[1] == 7
    with pytest.raises(BufferError):
        source.append(4)  # it is lent
    del tensor
    source.append(4)


def test_bytes_are_taken_read_only_and_bytearrays_to_write():
    assert _core.from_buffer(b"ab").readonly
    source = bytearray(b"ab")
    tensor = _core.from_buffer(source)
    tensor[0] = ord("x")
    assert source == b"xb" and tensor.dtype == "uint8"
    assert _core.from_buffer(memoryview(source)[::-1]).tobytes() == b"bx"
    assert _core.from_buffer((ctypes.c_int * 3)(1, 2, 3)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda n: n.array([object()]), "O"),
        (lambda n: n.zeros(2, "i4,f8"), "structured"),
        (lambda n: n.zeros(2, "M8[s]"), "datetime64"),
        (lambda n: n.zeros(2, "m8[s]"), "timedelta64"),
        (lambda n: n.zeros(2, "S4"), "4s"),
        (lambda n: n.zeros(2, "U4"), "w"),
        (lambda n: n.zeros(2, ">i4" if sys.byteorder == "little" else "<i4"), "byte order"),
        (lambda n: n.zeros(2, "longdouble"), "g"),
        (lambda n: n.zeros(2, "V8"), "8x|V8"),
        (lambda n: [1, 2], "list"),
        (lambda n: None, "NoneType"),
    ],
)
def test_what_is_no_tensor_is_refused_by_name(numpy, make, match):
    with pytest.raises(TypeError, match=match):
        _core.from_buffer(make(numpy))


def test_a_field_of_a_structure_with_odd_steps_is_refused(numpy):
    source = numpy.zeros(3, "i4,i4,i2")
    with pytest.raises(ValueError, match="10 bytes on axis 0"):
        _core.from_buffer(source["f0"])
    assert _core.from_buffer(source["f0"][:1]).tolist() == [0]
    even = numpy.zeros(3, "i4,i4")
    assert _core.from_buffer(even["f1"]).strides == (2,)


def test_a_buffer_that_is_not_aligned_is_read_and_written():
    source = bytearray(17)
    tensor = _core.from_buffer(memoryview(source)[1:].cast("d"))
    tensor[1] = 2.5
    assert tensor.tolist() == [0.0, 2.5]
    assert tensor.copy().tolist() == [0.0, 2.5]


def test_a_buffer_is_released_with_its_last_view_or_when_shared(domain):
    source = bytearray(4)
    tensor = _core.from_buffer(source)
    view = tensor[1:]
    del tensor
    with pytest.raises(BufferError):
        source.append(1)
    del view
    source.append(1)
    tensor = _core.from_buffer(source).share(domain)
    source.append(1)
    tensor[0] = 9
    assert source[0] == 0 and tensor.tobytes() == b"\x09\0\0\0\1"
    with pytest.raises(PermissionError, match="read-only"):
        _core.from_buffer(b"abc").share(domain)


@LIMITS
@given(shape=SHAPE, dtype=st.sampled_from(sorted(FORMATS)), data=st.data())
def test_any_view_goes_to_numpy_and_back_as_it_is(domain, shape, dtype, data):
    numpy = pytest.importorskip("numpy")
    tensor = domain.zeros(shape, dtype)
    tensor.copy_from((numpy.arange(math.prod(shape)) % 100).astype(dtype).reshape(shape))
    base = numpy.asarray(tensor)
    take = a_view(data, base)
    view, expected = take(tensor), take(base)
    assert view.shape == expected.shape and view.tolist() == expected.tolist()
    has_dlpack = dtype != "bool" or _version(numpy) >= (1, 25)
    gets = [numpy.asarray, lambda t: t.__array__(), lambda t: numpy.asarray(memoryview(t))]
    goes_back = view.size > 0 and any(n > 1 and step < 0 for n, step in zip(view.shape, view.strides))
    for get in [*gets, numpy.from_dlpack] if has_dlpack and not goes_back else gets:
        got = get(view)
        assert got.dtype == numpy.dtype(dtype) and got.dtype.num == numpy.dtype(dtype).num
        assert got.shape == expected.shape and got.tolist() == expected.tolist()
        assert same_place(_core.from_buffer(got), view)
    for lend in (_core.from_buffer, _core.from_dlpack) if has_dlpack else (_core.from_buffer,):
        back = lend(expected)
        assert (back.dtype, back.shape, back.tolist()) == (dtype, expected.shape, expected.tolist())
        assert not back.readonly and not back.is_shared
        assert same_place(back, view)


# ---- NumPy


def _version(numpy):
    return tuple(int(part) for part in numpy.__version__.split(".")[:2])


def test_an_array_is_asked_for_with_a_dtype_and_a_copy(numpy):
    tensor = counted((2, 2), "float32")
    array = numpy.asarray(tensor)
    assert numpy.shares_memory(array, numpy.asarray(tensor))
    wide = tensor.__array__("float64")
    assert wide.dtype == "float64" and wide.tolist() == tensor.tolist()
    assert numpy.asarray(tensor, dtype="int8").tolist() == [[0, 1], [2, 3]]
    copy = tensor.__array__(copy=True)
    copy[...] = 9
    assert tensor.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert numpy.shares_memory(tensor.__array__(copy=False), array)
    assert numpy.shares_memory(tensor.__array__(dtype="float32", copy=False), array)
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__(dtype="int8", copy=False)
    assert (numpy.add(tensor, 1) == [[1, 2], [3, 4]]).all()


def test_a_read_only_array_stays_read_only_both_ways(numpy):
    source = numpy.arange(3)
    source.flags.writeable = False
    says_so = _version(numpy) >= (2, 1)  # its DLPack can
    for lend in (_core.from_buffer, _core.from_dlpack) if says_so else (_core.from_buffer,):
        tensor = lend(source)
        assert tensor.readonly and tensor.tolist() == [0, 1, 2]
        assert not numpy.asarray(tensor).flags.writeable
        assert not says_so or not numpy.from_dlpack(tensor).flags.writeable


def test_scalars_of_numpy_are_numbers_and_arrays_are_assigned(numpy):
    tensor = _core.private((2, 3), "float32")
    tensor[0, 1] = numpy.float64(1.5)
    tensor[1] = numpy.int8(2)
    tensor[:, 0] = numpy.array([7, 8])
    assert tensor.tolist() == [[7.0, 1.5, 0.0], [8.0, 2.0, 2.0]]
    index = numpy.int64(1)
    assert tensor[index, index] == 2.0


# ---- DLPack


def test_a_capsule_has_the_version_asked_for_and_is_taken_once():
    tensor = counted((2, 3))
    versioned = "dltensor_versioned"
    for version, name in {None: "dltensor", (0, 8): "dltensor", (1, 0): versioned, (2, 0): versioned}.items():
        capsule = tensor.__dlpack__(max_version=version)
        assert f'"{name}"' in repr(capsule)
        taken = _core.from_dlpack(capsule)
        assert f'"used_{name}"' in repr(capsule)
        assert taken.address == tensor.address and taken.tolist() == tensor.tolist()
        assert not taken.readonly
        with pytest.raises(ValueError, match="taken before"):
            _core.from_dlpack(capsule)
    assert tensor.__dlpack_device__() == (1, 0)
    assert _core.from_dlpack(tensor) is tensor


def test_a_read_only_tensor_needs_a_version_that_can_say_so():
    tensor = _core.from_buffer(b"abc")
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    assert _core.from_dlpack(tensor.__dlpack__(max_version=(1, 0))).readonly
    assert not _core.from_dlpack(tensor.__dlpack__(copy=True)).readonly


def test_a_copy_is_made_where_it_is_asked_for():
    tensor = counted((2, 3))
    copy = _core.from_dlpack(tensor.T.__dlpack__(copy=True))
    same = _core.from_dlpack(tensor.T.__dlpack__(copy=False))
    tensor[0, 0] = 99
    assert copy.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert same.tolist() == [[99, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_refuses_negative_strides_and_says_what_to_do(numpy, domain, version):
    for tensor in (counted((3, 4)), domain.zeros((3, 4), "int64"), _core.from_buffer(numpy.arange(12).reshape(3, 4))):
        view = tensor[:, ::-1]
        with pytest.raises(BufferError, match=r"strides \(4, -1\).*copy\(\).*np\.asarray\(\)"):
            view.__dlpack__(max_version=version)
        for way_out in (view.copy(), numpy.asarray(view)):
            assert _core.from_dlpack(way_out).tolist() == view.tolist()
        assert _core.from_dlpack(view.__dlpack__(max_version=version, copy=True)).tolist() == view.tolist()


@pytest.mark.parametrize("shape", [(1, 3), (1,), (2, 1, 0)])
def test_negative_strides_that_are_never_taken_are_not_handed_out(shape):
    tensor = counted(shape)
    view = tensor[::-1]
    assert view.size == 0 or view.strides[0] < 0
    there = _core.from_dlpack(view.__dlpack__())
    assert there.tolist() == tensor.tolist() and min(there.strides) >= 0


def test_wrong_wishes_are_named():
    tensor = counted((3,))
    with pytest.raises(ValueError, match="stream"):
        tensor.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"\(2, 0\)"):
        tensor.__dlpack__(dl_device=(2, 0))
    tensor.__dlpack__(dl_device=(1, 0), stream=None)
    with pytest.raises(TypeError, match="max_version"):
        tensor.__dlpack__(max_version=1)
    with pytest.raises(TypeError):
        tensor.__dlpack__(None)


def new_capsule(name):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(1, name, None)


def test_what_has_no_dlpack_is_named():
    with pytest.raises(TypeError, match="list has no __dlpack__"):
        _core.from_dlpack([1])
    with pytest.raises(ValueError, match="'other'"):
        _core.from_dlpack(new_capsule(b"other"))


class Maker:
    """A library that exports."""

    def __init__(self, tensor, device=(1, 0), old=False, result=None):
        self.tensor, self.device, self.old, self.result, self.asked = tensor, device, old, result, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **wishes):
        self.asked.append(wishes)
        if self.old and wishes:
            raise TypeError("unexpected keyword argument")
        return self.result or self.tensor.__dlpack__(**wishes)


def test_a_source_is_asked_with_a_version_and_then_without():
    tensor = counted((3,))
    maker = Maker(tensor)
    assert _core.from_dlpack(maker).address == tensor.address
    assert len(maker.asked) == 1 and maker.asked[0]["max_version"][0] == 1
    maker = Maker(tensor, old=True)
    assert _core.from_dlpack(maker).address == tensor.address
    assert len(maker.asked) == 2 and maker.asked[1] == {}
    with pytest.raises(TypeError, match="int, not a capsule"):
        _core.from_dlpack(Maker(tensor, result=5))


@pytest.mark.parametrize(
    ("device", "name"), [((7, 1), "vulkan:1"), ((8, 0), "metal:0"), ((14, 2), "oneapi:2"), ((99, 0), "unknown:0")]
)
def test_another_device_is_refused_by_name_before_an_export(device, name):
    maker = Maker(counted((3,)), device=device)
    with pytest.raises(BufferError, match=name):
        _core.from_dlpack(maker)
    assert maker.asked == []


def test_an_error_of_the_library_is_its_own():
    class Broken(Maker):
        def __dlpack__(self, **wishes):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        _core.from_dlpack(Broken(None))


def test_an_export_keeps_the_memory_and_ends_in_any_thread(numpy, domain):
    for tensor in (counted((1000,)), domain.zeros(1000, "int64")):
        tensor[999] = 7
        got = [numpy.from_dlpack(tensor), _core.from_dlpack(tensor.__dlpack__()), numpy.asarray(tensor)]
        del tensor
        gc.collect()
        assert all(one[999] == 7 for one in got)
        thread = threading.Thread(target=got.clear)
        thread.start()
        thread.join()
        assert got == []
    assert domain.audit() == []


def test_an_export_outlives_the_domain(numpy):
    domain = _core.Domain.create()
    tensor = domain.zeros(100000, "int32")
    capsule = tensor.__dlpack__(max_version=(1, 0))
    array = numpy.asarray(tensor)
    domain.close()
    del tensor
    array[99999] = 5
    taken = _core.from_dlpack(capsule)
    del array, capsule
    assert taken[99999] == 5


def test_nothing_is_left_of_exports_and_imports(numpy, domain):
    source = numpy.arange(12).reshape(3, 4)

    def once():
        for tensor in (domain.zeros((3, 4), "int64"), _core.private((3, 4), "int64")):
            numpy.asarray(tensor), numpy.from_dlpack(tensor), memoryview(tensor), tensor.__array__(copy=True)
            tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0)), tensor.__dlpack__(copy=True)
            _core.from_dlpack(tensor.__dlpack__()), _core.from_dlpack(tensor.__dlpack__(max_version=(1, 0)))
            _core.from_buffer(source[::2]), _core.from_dlpack(source.T), _core.from_buffer(tensor)
            tensor[...] = source
            tensor[0] = source[1].astype("float32").astype("int8")
            _core.from_dlpack(Maker(tensor)), _core.from_dlpack(Maker(tensor, old=True))
            for call in (
                lambda: _core.from_buffer(source.astype("O")),
                lambda: _core.from_buffer(source.astype("M8[s]")),
                lambda: _core.from_dlpack(Maker(tensor, device=(8, 0))),
                lambda: _core.from_dlpack(Maker(tensor, result=5)),
                lambda: tensor.__dlpack__(dl_device=(2, 0)),
                lambda: binascii.crc32(tensor.T),
                lambda: tensor.__array__(dtype="int8", copy=False),
            ):
                with pytest.raises((TypeError, BufferError, ValueError)):
                    call()

    once()
    gc.collect()
    counts = [sys.getrefcount(source), sys.getrefcount(domain), len(gc.get_objects())]
    for _ in range(50):
        once()
    gc.collect()
    after = [sys.getrefcount(source), sys.getrefcount(domain), len(gc.get_objects())]
    assert after[:2] == counts[:2] and abs(after[2] - counts[2]) < 50
    assert domain.audit() == []
    assert domain.trim() >= 0


# ---- PyTorch

TORCH_DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
]


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_pytorch_sees_the_same_memory_by_dlpack(domain, torch, dtype):
    for tensor in (domain.zeros((3, 4), dtype), _core.private((3, 4), dtype)):
        for view in (tensor, tensor.T, tensor[1:, ::2], tensor[1, 1:], tensor[:0]):
            try:
                there = torch.from_dlpack(view)
            except (RuntimeError, BufferError) as error:
                # PyTorch has float8 in DLPack since late, and bool since 2.0.
                assert dtype.startswith("float8") or (dtype, torch.__version__[0]) == ("bool", "1"), error
                pytest.skip(str(error))
            assert there.dtype == getattr(torch, dtype)
            assert tuple(there.shape) == view.shape
            assert view.size == 0 or (there.data_ptr() == view.address and there.stride() == view.strides)
            back = _core.from_dlpack(there)
            assert (back.dtype, back.shape) == (dtype, view.shape)
            assert back.size == 0 or back.address == view.address
        torch.from_dlpack(tensor)[2, 3] = 1
        assert tensor[2, 3] == 1


@LIMITS
@given(value=st.floats(width=32, allow_nan=False))
def test_bfloat16_means_what_pytorch_means(value):
    torch = pytest.importorskip("torch")
    tensor = _core.private(1, "bfloat16")
    tensor[0] = value
    assert torch.from_dlpack(tensor).item() == torch.tensor(value, dtype=torch.float32).to(torch.bfloat16).item()


def test_pytorch_is_refused_a_tensor_that_goes_backwards_and_lives(numpy, torch):
    with pytest.raises(BufferError, match=r"strides \(-1,\)"):
        torch.from_dlpack(_core.from_buffer(numpy.arange(4.0))[::-1])
    assert torch.from_dlpack(_core.from_buffer(numpy.arange(1.0))[::-1]).tolist() == [0]
    assert torch.from_dlpack(counted((3, 0))[::-1]).shape == (3, 0)


def test_what_pytorch_will_not_lend_is_its_own_error(torch):
    with pytest.raises((BufferError, RuntimeError), match="grad"):
        _core.from_dlpack(torch.ones(3, requires_grad=True))
    tensor = _core.from_dlpack(torch.ones(2, 3).T)
    assert tensor.tolist() == [[1.0, 1.0]] * 3 and tensor.strides == (1, 3)


@pytest.mark.parametrize(
    "device, stream, told",
    [((1, 0), None, {}), ((2, 0), None, {"stream": 1}), ((2, 1), 2, {"stream": 2}), ((2, 1), -1, {"stream": -1}),
     ((10, 0), None, {"stream": 0})],
)
def test_source_on_a_device_is_always_told_a_stream(device, stream, told):
    """PyTorch takes none for no order, and not for the default stream as DLPack says."""

    class Source:
        def __dlpack_device__(self):
            return device

        def __dlpack__(self, **asked):
            raise BufferError({name: asked[name] for name in asked if name != "max_version"})

    with pytest.raises(BufferError) as error:
        _core.from_dlpack(Source(), stream=stream)
    assert error.value.args == (told,)


def test_negated_view_of_pytorch_is_refused(torch):
    negated = torch.tensor([1 + 2j]).conj().imag
    assert negated.is_neg() and negated.tolist() == [-2]
    for take in _core.from_dlpack, _core.private((1,), "float32").copy_from:
        with pytest.raises(BufferError, match="resolve_neg"):
            take(negated)
    assert _core.from_dlpack(negated.resolve_neg()).tolist() == [-2]


def test_pytorch_and_tensors_keep_each_others_memory_alive(torch):
    there = torch.from_dlpack(counted((1000,)))
    gc.collect()
    assert there[999].item() == 99
    here = _core.from_dlpack(torch.arange(1000))
    gc.collect()
    assert here[999] == 999
    del there, here
