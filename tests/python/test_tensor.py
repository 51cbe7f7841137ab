# SPDX-License-Identifier: Apache-2.0
"""tenon._core.Tensor: making, looking, indexing, assigning, sharing, attributes."""

import copy
import gc
import math
import os
import pickle
import struct
import sys
import weakref

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenon
from tenon import _core

LIMITS = settings(
    max_examples=120, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UINTS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
FLOATS = ["float16", "float32", "float64", "bfloat16"]
FLOAT8 = [
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]
DTYPES = ["bool", *INTS, *UINTS, *FLOATS, *FLOAT8, "complex32", "complex64", "complex128"]


def counted(shape, dtype="int64"):
    """A private tensor whose elements are 0, 1, 2, ... in row-major order."""
    flat = _core.private((math.prod(shape),), dtype)
    for i in range(flat.size):
        flat[i] = i
    return flat.reshape(*shape) if shape else flat.reshape(())


def no_storage_is_left(domain):
    gc.collect()
    return domain.audit() == []


# ---- making


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_every_dtype_is_made_and_says_so(domain, dtype):
    for tensor in (domain.zeros((2, 3), dtype), _core.private((2, 3), dtype)):
        assert tensor.dtype == dtype
        assert tensor.shape == (2, 3)
        assert tensor.strides == (3, 1)
        assert tensor.ndim == 2
        assert tensor.size == 6
        assert tensor.nbytes == 6 * tensor.itemsize == len(tensor.tobytes())
        assert tensor.tobytes() == bytes(tensor.nbytes)
        assert tensor.byte_offset == 0
        assert tensor.storage_bytes >= tensor.nbytes
        assert tensor.is_contiguous
        assert not tensor.readonly
        assert tensor.device == "cpu"
        assert _core.dtype_name(dtype) == dtype


def test_a_tensor_of_a_domain_is_shared_and_a_private_one_is_not(domain):
    shared, private = domain.empty(3, "int8"), _core.private(3, "int8")
    assert shared.is_shared and shared.strategy == "arena" and shared.domain is domain
    assert not private.is_shared and private.strategy is None and private.domain is None


@pytest.mark.parametrize("strategy", _core.strategies())
@pytest.mark.parametrize("make", ["empty", "zeros"])
def test_memory_is_had_by_the_strategy_that_is_named(domain, make, strategy):
    first = domain.zeros(100, "uint8", strategy=strategy)
    first[...] = 255
    del first
    tensor = getattr(domain, make)(100, "uint8", strategy=strategy)
    assert tensor.strategy == strategy
    assert (tensor.path is not None) == (strategy == "file_system")
    if make == "zeros":
        assert tensor.tobytes() == bytes(100)


def test_a_write_once_tensor_is_writable_where_it_was_made(domain):
    tensor = domain.zeros(4, "int32", write_once=True)
    tensor[0] = 7
    assert tensor.strategy == "file_descriptor"
    assert tensor.tolist() == [7, 0, 0, 0]


def test_wrong_arguments_are_named(domain):
    with pytest.raises(TypeError, match="no_such"):
        domain.empty(3, "no_such")
    with pytest.raises(ValueError, match="no_such"):
        domain.empty(3, "int8", strategy="no_such")
    with pytest.raises(ValueError):
        domain.empty((2, -1), "int8")
    with pytest.raises(ValueError, match="33"):
        _core.private((1,) * 33, "int8")
    with pytest.raises(TypeError):
        _core.private("shape", "int8")
    with pytest.raises(TypeError):
        _core.Tensor()


def test_a_used_up_quota_raises_no_memory_after_the_timeout():
    domain = _core.Domain.create(quota_bytes=8 << 20)
    try:
        kept = domain.empty(6 << 20, "uint8")
        with pytest.raises(MemoryError):
            domain.empty(6 << 20, "uint8")
        with pytest.raises(TimeoutError):
            domain.empty(6 << 20, "uint8", 0.01)
        private = _core.private(6 << 20, "uint8")
        with pytest.raises(MemoryError):
            private.share(domain)
        with pytest.raises(TimeoutError):
            private.share(domain, 0.01)
        assert not private.is_shared
        del kept
        assert private.share(domain, 10) is private
        assert private.is_shared
    finally:
        domain.close()


def test_a_tensor_that_no_quota_can_hold_is_not_waited_for(apart):
    def share():
        domain = _core.Domain.create(quota_bytes=8 << 20)
        private = _core.private(16 << 20, "uint8")
        for timeout in (0, 60, None):
            with pytest.raises(MemoryError, match="quota"):
                private.share(domain, timeout)
        queue = _core.Queue.create(domain)
        with pytest.raises(MemoryError, match="quota"):
            queue.put(private)
        assert not private.is_shared
        queue.close()
        domain.close()

    apart(share)


# ---- sharing


def test_sharing_moves_all_views_and_sets_their_domain(domain):
    tensor = counted((4, 3))
    row, reversed_view = tensor[1], tensor[::-1]
    of_row = row[1:]
    assert row.share(domain) is row
    for view in (tensor, row, reversed_view, of_row):
        assert view.is_shared and view.domain is domain and view.strategy == "arena"
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    tensor[1, 2] = -5
    assert of_row.tolist() == [4, -5]
    assert tensor.share(domain) is tensor
    assert tensor[2].domain is domain


def test_a_tensor_of_one_domain_is_not_shared_in_another(domain):
    other = _core.Domain.create()
    try:
        with pytest.raises(ValueError):
            domain.empty(3, "int8").share(other)
    finally:
        other.close()


def test_a_tensor_does_not_move_while_its_memory_is_used(domain):
    tensor = counted((4,))
    with memoryview(tensor) as view:
        with pytest.raises(PermissionError):
            tensor.share(domain)
        assert view.tolist() == [0, 1, 2, 3]
    capsule = tensor.__dlpack__(max_version=(1, 0))
    with pytest.raises(PermissionError):
        tensor.share(domain)
    del capsule
    assert tensor.share(domain).tolist() == [0, 1, 2, 3]


def test_a_tensor_outlives_its_domain():
    domain = _core.Domain.create()
    tensor = domain.zeros((1000, 100), "float64")
    small = domain.zeros(3, "int8", strategy="file_descriptor")
    domain.close()
    tensor[999, 99] = 1.5
    small[2] = 3
    assert tensor[999, 99] == 1.5 and small.tolist() == [0, 0, 3]
    assert tensor.domain is domain
    with pytest.raises(_core.Closed):
        tensor.to_handle()
    with pytest.raises(_core.Closed):
        tensor.copy()


def test_a_closed_domain_makes_and_finds_nothing():
    domain = _core.Domain.create()
    domain.close()
    for call in (
        lambda: domain.empty(1, "int8"),
        lambda: domain.zeros(1, "int8"),
        lambda: domain.find(0, 0),
        lambda: domain.load_handle(b""),
        lambda: _core.private(1, "int8").share(domain),
    ):
        with pytest.raises(_core.Closed):
            call()


def test_the_storage_of_an_address_is_found(domain):
    for strategy in _core.strategies():
        tensor = domain.zeros((10, 10), "int32", strategy=strategy)
        tensor[3, 3] = 0x01020304
        found = domain.find(tensor.address + 132, 4)
        assert found.same_storage(tensor)
        assert (found.dtype, found.shape, found.byte_offset) == ("uint8", (400,), 0)
        assert found.domain is domain
        assert found[132:136].tobytes() == struct.pack("=i", 0x01020304)
        assert domain.find(tensor.address, 401) is None
    private = _core.private(100, "int8")
    assert domain.find(private.address, 1) is None
    for address in (0, 1, id(private), 2**64 - 1):
        assert domain.find(address, 1) is None
        assert domain.find(address, 2**64 - 1) is None


def test_an_address_that_is_none_is_refused(domain):
    for wrong in (-1, 2**64):
        with pytest.raises(OverflowError):
            domain.find(wrong, 1)
        with pytest.raises(OverflowError):
            domain.find(1, wrong)
    with pytest.raises(TypeError):
        domain.find(1.5, 1)


def test_a_write_once_storage_is_filled_with_tensors_and_zeros(domain):
    one, other = domain.zeros(1000, "uint8"), _core.private((3, 2), "float32")
    one[...] = 7
    other[...] = 1.5
    whole = domain.filled(10_000, [(0, one), (5000, other), (9000, one)])
    assert (whole.shape, whole.dtype, whole.strategy) == ((10_000,), "uint8", "file_descriptor")
    data = whole.tobytes()
    assert data[:1000] == data[9000:] == b"\7" * 1000 and not any(data[1000:5000]) and not any(data[5024:9000])
    assert whole.view((3, 2), "float32", None, 5000).tolist() == [[1.5, 1.5]] * 3
    assert domain.filled(64, ()).tobytes() == bytes(64)


def test_who_fills_a_write_once_storage_is_told_how_far_it_is(domain):
    big, small = _core.private((9 << 20,), "uint8"), _core.private((8,), "uint8")
    big[...] = 3
    told = []
    whole = domain.filled(10 << 20, [(0, big), (9 << 20, small)], progress=told.append)
    assert told == [4 << 20, 8 << 20, 9 << 20, (9 << 20) + 8]
    assert whole.tobytes()[: 9 << 20] == b"\3" * (9 << 20)
    for raised, tell in [(ZeroDivisionError, lambda done: 1 // 0), (_core.Closed, lambda done: other.close())]:
        other = _core.Domain.create()
        with pytest.raises(raised):
            other.filled(10 << 20, [(0, big)], progress=tell)
        other.close()


def test_what_does_not_fit_into_a_write_once_storage_is_refused(domain):
    one = domain.zeros((4, 4), "uint8")
    for size, parts, error in (
        (10, [(0, one)], _core.Invalid),
        (16, [(1, one)], _core.Invalid),
        (0, [], _core.Invalid),
        (16, [(0, one[:, ::2])], ValueError),
        (16, [one], TypeError),
        (16, [(0, b"bytes")], TypeError),
        (1 << 60, [], _core.NoMemory),
    ):
        with pytest.raises(error):
            domain.filled(size, parts)
    assert domain.audit() == []


def test_a_write_once_tensor_is_found_read_only_in_a_forked_child(domain):
    tensor = domain.zeros(1000, "uint8", write_once=True)
    other = domain.zeros(1000, "uint8")
    assert not domain.find(tensor.address, 1000).readonly
    pid = os.fork()
    if pid == 0:
        found = [domain.find(t.address, 1000) for t in (tensor, other)]
        os._exit(0 if tensor.readonly and [f.readonly for f in found] == [True, False] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---- handles and pickling


def test_a_handle_is_loaded_as_often_as_it_says(domain):
    tensor = domain.zeros((2, 3), "int16")
    handle = tensor[1].to_handle(uses=2, lifetime=None)
    for _ in range(2):
        loaded = domain.load_handle(handle)
        assert loaded.same_storage(tensor) and loaded.shape == (3,) and loaded.byte_offset == 6
        assert loaded.domain is domain
    with pytest.raises(_core.Stale):
        domain.load_handle(handle)
    with pytest.raises(ValueError):
        domain.load_handle(handle[:-1])
    for wrong in ({"uses": 0}, {"uses": -1}, {"lifetime": -1.0}, {"lifetime": math.nan}):
        with pytest.raises(ValueError):
            tensor.to_handle(**wrong)


def test_a_private_tensor_has_no_handle_and_cannot_be_pickled(domain):
    tensor = _core.private(3, "int8")
    with pytest.raises(ValueError, match=r"share\(\)"):
        tensor.to_handle()
    with pytest.raises(ValueError, match=r"share\(\)"):
        pickle.dumps(tensor)


def test_a_shared_tensor_is_pickled_as_a_handle(domain):
    tensor = domain.zeros(3, "int8")
    tensor.name = "weights"
    rebuild, (name, handle) = tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    assert rebuild is tenon._rebuild_tensor
    assert name == domain.name
    loaded = domain.load_handle(handle)
    assert loaded.same_storage(tensor) and loaded.name == "weights"


# ---- views

INDEX = st.one_of(
    st.integers(-4, 4),
    st.slices(4),
    st.builds(slice, *[st.one_of(st.none(), st.integers(-9, 9)) for _ in range(2)], st.integers(-3, 3)),
    st.none(),
    st.just(Ellipsis),
)
SHAPE = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@LIMITS
@given(shape=SHAPE, index=st.one_of(INDEX, st.lists(INDEX, max_size=5).map(tuple)))
def test_an_index_gives_what_numpy_gives(shape, index):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(math.prod(shape), dtype="int64").reshape(shape)
    tensor = _core.from_buffer(array)
    try:
        expected = array[index]
    except (IndexError, ValueError) as error:
        with pytest.raises(type(error)):
            tensor[index]
        return
    got = tensor[index]
    if isinstance(expected, numpy.ndarray):
        assert got.shape == expected.shape
        assert got.tolist() == expected.tolist()
        assert numpy.asarray(got).tolist() == expected.tolist()
        if got.size:
            assert got.same_storage(tensor)
            assert got.address == expected.ctypes.data
    else:
        assert type(got) is int and got == expected


@LIMITS
@given(shape=SHAPE, index=st.lists(INDEX, max_size=5).map(tuple), data=st.data())
def test_an_assignment_does_what_numpy_does(shape, index, data):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(math.prod(shape), dtype="int32").reshape(shape)
    tensor = _core.private(shape, "int32")
    tensor.copy_from(array)
    try:
        target = array[index]
    except (IndexError, ValueError) as error:
        with pytest.raises(type(error)):
            tensor[index] = 1
        return
    shapes = [()]
    if isinstance(target, numpy.ndarray):  # into one element NumPy takes no array of one
        target = target.shape
        shapes += [target, target[1:], (1,) * len(target), (1, *target), (*target, 2), (5,)]
    value_shape = data.draw(st.sampled_from(shapes))
    value = numpy.arange(math.prod(value_shape), dtype="int32").reshape(value_shape) + 100
    try:
        array[index] = value
    except ValueError:
        with pytest.raises(ValueError):
            tensor[index] = value
    else:
        tensor[index] = value
    assert tensor.tolist() == array.tolist()


def test_views_share_the_storage_and_copies_do_not(domain):
    for tensor in (counted((4, 6)), counted((4, 6)).share(domain)):
        for view in (tensor.T, tensor[1:3, ::2], tensor.reshape(6, 4), tensor.transpose(1, 0), tensor.view((24,))):
            assert view.same_storage(tensor)
            made = view.copy()
            assert not made.same_storage(tensor)
            assert made.is_contiguous and made.is_shared == tensor.is_shared
            assert made.domain is tensor.domain
            assert made.tolist() == view.tolist()
            view[...] = -1
            assert made.tolist() != view.tolist()
            tensor.copy_from(counted((4, 6)))


def test_a_view_takes_a_dtype_strides_and_an_offset():
    tensor = counted((6,), "uint8")
    assert tensor.view((3,), "uint16").tobytes() == bytes(range(6))
    assert tensor.view((2, 2), strides=(1, 2), byte_offset=1).tolist() == [[1, 3], [2, 4]]
    assert tensor.view((3,), strides=(-2,), byte_offset=5).tolist() == [5, 3, 1]
    assert tensor[2:].view((2,)).tolist() == [2, 3]
    with pytest.raises(ValueError):
        tensor.view((7,))
    with pytest.raises(ValueError):
        tensor.view((2,), strides=(-1,))
    with pytest.raises(ValueError, match="1 strides for 2 axes"):
        tensor.view((2, 2), strides=(1,))


def test_axes_and_sizes_that_do_not_fit_are_named():
    tensor = counted((2, 3))
    assert tensor.reshape(-1).shape == (6,) and tensor.reshape((3, -1)).shape == (3, 2)
    assert tensor.transpose(-1, 0).shape == (3, 2) and tensor.transpose().shape == (3, 2)
    for call in (
        lambda: tensor.reshape(4),
        lambda: tensor.T.reshape(6),
        lambda: tensor.transpose(0),
        lambda: tensor.transpose(0, 0),
        lambda: tensor.transpose(0, 2),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("index", [True, 1.5, "a", [0, 1], (0, [0])])
def test_what_is_no_index_is_named(index):
    tensor = counted((2, 3))
    name = type(index[1] if isinstance(index, tuple) else index).__name__
    with pytest.raises(TypeError, match=name):
        tensor[index]
    with pytest.raises(TypeError, match=name):
        tensor[index] = 0


def test_an_index_may_be_any_object_that_stands_for_an_int():
    class Two:
        def __index__(self):
            return 2

    tensor = counted((4, 3))
    assert tensor[Two()].tolist() == [6, 7, 8]
    assert tensor[Two(), Two()] == 8
    with pytest.raises(IndexError):
        tensor[2**70]
    with pytest.raises(IndexError, match="axis 1 of size 3"):
        tensor[0, 3]
    with pytest.raises(IndexError, match="2 axes"):
        tensor[0, 0, 0]


# ---- as a sequence


def test_a_tensor_is_a_sequence_of_its_first_axis():
    tensor = counted((3, 2))
    assert len(tensor) == 3
    assert [row.tolist() for row in tensor] == [[0, 1], [2, 3], [4, 5]]
    assert list(tensor[1]) == [2, 3]
    assert [row.tolist() for row in reversed(tensor)] == [[4, 5], [2, 3], [0, 1]]
    scalar = tensor[0, ..., 0].reshape(()) if hasattr(tensor[0, ..., 0], "reshape") else counted(())
    for call in (len, iter):
        with pytest.raises(TypeError):
            call(scalar)


def test_a_tensor_of_one_element_is_a_truth_and_an_item():
    tensor = counted((2, 1))
    assert not tensor[0] and tensor[1]
    assert tensor[1].item() == 1
    for wrong in (tensor, tensor[2:]):
        with pytest.raises(ValueError):
            bool(wrong)
        with pytest.raises(ValueError):
            wrong.item()


def test_a_tensor_equals_only_itself_and_can_be_a_key():
    one, other = counted((2,)), counted((2,))
    assert one == one and one != other and {one: 1}[one] == 1
    reference = weakref.ref(one)
    assert reference() is one
    del one
    gc.collect()
    assert reference() is None


def test_what_is_shown_says_what_it_is(domain):
    tensor = domain.zeros((2, 3), "float32")
    assert repr(tensor) == "tenon.Tensor(shape=(2, 3), dtype=float32, shared by arena)"
    tensor.name = "w"
    assert repr(tensor) == "tenon.Tensor(shape=(2, 3), dtype=float32, shared by arena, name='w')"
    assert repr(_core.private(2, "int8")) == "tenon.Tensor(shape=(2,), dtype=int8, private)"
    assert repr(_core.from_buffer(b"ab")) == "tenon.Tensor(shape=(2,), dtype=uint8, private, read-only)"


# ---- elements


@pytest.mark.parametrize("dtype", [*INTS, *UINTS])
def test_ints_are_kept_to_their_last_bit_and_no_further(dtype):
    bits = {**INTS, **UINTS}[dtype]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype in INTS else (0, 2**bits - 1)
    tensor = _core.private(2, dtype)
    for value in (low, low + 1, 0, 1, high - 1, high):
        tensor[0] = value
        tensor[1:] = value
        assert tensor.tolist() == [value, value]
        assert tensor[:1].tobytes() == value.to_bytes(bits // 8, sys.byteorder, signed=low < 0)
    for value in (low - 1, high + 1, 2**70, -(2**70)):
        with pytest.raises(OverflowError, match=dtype):
            tensor[0] = value
    for value in (1.5, 1j):
        with pytest.raises(TypeError):
            tensor[0] = value
    assert tensor.tolist() == [high, high]


@LIMITS
@given(value=st.floats(allow_nan=True))
def test_floats_are_rounded_as_struct_and_numpy_round_them(value):
    numpy = pytest.importorskip("numpy")
    for dtype in ("float16", "float32", "float64"):
        tensor = _core.private((), dtype)
        tensor[...] = value
        with numpy.errstate(all="ignore"):
            expected = numpy.array(value).astype(dtype)
        if math.isnan(value):
            assert math.isnan(tensor.item())
        else:
            assert tensor.tobytes() == expected.tobytes()
            assert tensor.item() == float(expected)


@LIMITS
@given(value=st.floats(allow_nan=False, width=32))
def test_a_bfloat16_is_the_nearest_upper_half_of_a_float32(value):
    tensor = _core.private((), "bfloat16")
    tensor[...] = value
    word = struct.unpack("=I", struct.pack("=f", value))[0]
    expected = (word + 0x7FFF + (word >> 16 & 1)) >> 16
    assert tensor.view((), "uint16").item() == expected
    assert tensor.item() == struct.unpack("=f", struct.pack("=I", expected << 16))[0]


@pytest.mark.parametrize("dtype", [*FLOAT8, "float16", "bfloat16"])
def test_every_value_of_a_small_float_is_read_and_written_back(dtype):
    count = 256 if dtype in FLOAT8 else 65536
    tensor = _core.private((count,), dtype)
    bits = tensor.view((count,), "uint8" if count == 256 else "uint16")
    for word in range(count):
        bits[word] = word
    again = _core.private((1,), dtype)
    word_of = again.view((1,), bits.dtype)
    finite = []
    for word, value in enumerate(tensor.tolist()):
        again[0] = value
        if math.isnan(value):
            assert math.isnan(again[0])
        else:
            assert word_of[0] == word, (dtype, word, value)
            finite += [] if math.isinf(value) else [value]
    largest = {
        "float8_e3m4": 15.5,
        "float8_e4m3": 240.0,
        "float8_e4m3b11fnuz": 30.0,
        "float8_e4m3fn": 448.0,
        "float8_e4m3fnuz": 240.0,
        "float8_e5m2": 57344.0,
        "float8_e5m2fnuz": 57344.0,
        "float8_e8m0fnu": 2.0**127,
        "float16": 65504.0,
        "bfloat16": 3.3895313892515355e38,
    }
    assert max(finite) == largest[dtype]


def test_small_floats_round_ties_to_even_and_overflow_as_specified():
    tensor = _core.private((), "float8_e4m3fn")
    rounded = {17.0: 16.0, 19.0: 20.0, 464.0: 448.0, -0.0: -0.0, 2.0**-10: 0.0, 2.0**-9: 2.0**-9}
    for value, expected in rounded.items():
        tensor[...] = value
        assert math.copysign(1, tensor.item()) == math.copysign(1, expected) and tensor.item() == expected
    for value in (465.0, 1e300, math.inf, -math.inf):
        tensor[...] = value
        assert math.isnan(tensor.item())
    tensor = _core.private((), "float8_e5m2")
    for value, expected in ((61439.0, 57344.0), (61440.0, math.inf), (-1e300, -math.inf)):
        tensor[...] = value
        assert tensor.item() == expected


@pytest.mark.parametrize("dtype", ["complex32", "complex64", "complex128"])
def test_complex_numbers_are_written_and_read(dtype):
    tensor = _core.private(3, dtype)
    tensor[0] = 1.5 - 2j
    tensor[1:] = 3
    assert tensor.tolist() == [1.5 - 2j, 3 + 0j, 3 + 0j]


def test_lanes_are_read_as_tuples_and_copied_whole():
    tensor = _core.private(2, "int32x4")
    tensor.view((8,), "int32")[...] = _core.from_buffer(memoryview(bytes(range(32))).cast("i"))
    first = struct.unpack("=4i", bytes(range(16)))
    assert tensor[0] == first and tensor.tolist()[0] == first
    other = _core.private(2, "int32x4")
    other[...] = tensor
    assert other.tolist() == tensor.tolist()
    with pytest.raises(TypeError, match="4 lanes"):
        tensor[0] = 1


# ---- assignment


def test_an_assignment_converts_dtypes_or_changes_nothing():
    tensor = counted((3,), "float32")
    tensor[...] = counted((3,), "int8")
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    ints = counted((3,), "int8")
    with pytest.raises(TypeError):
        ints[...] = tensor
    wide = counted((3,), "int64")
    wide[2] = 1000
    with pytest.raises(OverflowError):
        ints[...] = wide
    assert ints.tolist() == [0, 1, 2]


def test_overlapping_parts_are_assigned_as_if_they_were_not():
    tensor = counted((6,))
    tensor[1:] = tensor[:-1]
    assert tensor.tolist() == [0, 0, 1, 2, 3, 4]
    tensor[...] = tensor[::-1]
    assert tensor.tolist() == [4, 3, 2, 1, 0, 0]


def test_a_read_only_tensor_is_named_when_it_is_written():
    tensor = _core.from_buffer(b"abc")
    assert tensor.readonly
    tensor.name = "golden"
    for call in (
        lambda: tensor.__setitem__(0, 1),
        lambda: tensor.__setitem__(slice(None), tensor),
        lambda: tensor.copy_from(b"abc"),
    ):
        with pytest.raises(ValueError, match="'golden' is read-only"):
            call()
    with pytest.raises(ValueError, match="read-only"):
        tensor[1:][0] = 1
    assert tensor.tobytes() == b"abc"
    assert not tensor.copy().readonly


def test_what_cannot_be_assigned_is_named():
    tensor = counted((2, 3))
    for wrong in ("abc", None, object()):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            tensor[0] = wrong
    with pytest.raises(ValueError, match=r"shape \(2,\) does not fit into shape \(3,\)"):
        tensor[0] = counted((2,))
    with pytest.raises(TypeError, match="deleted"):
        del tensor[0]
    with pytest.raises(ValueError):
        tensor.copy_from(counted((3, 2)))
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_assignment_finds_a_tensor_that_the_number_has_moved(domain):
    class Mover:
        def __index__(self):
            tensor.share(domain)
            return 7

    tensor = counted((3,))
    tensor[1] = Mover()
    assert tensor.is_shared and tensor.tolist() == [0, 7, 2]


def test_the_module_copy_makes_views_and_copies(domain):
    for tensor in (counted((3,)), counted((3,)).share(domain)):
        tensor.name = "n"
        shallow, deep = copy.copy(tensor), copy.deepcopy(tensor)
        tensor[0] = 9
        assert shallow.same_storage(tensor) and shallow.tolist() == [9, 1, 2]
        assert not deep.same_storage(tensor) and deep.tolist() == [0, 1, 2] and deep.name == "n"


# ---- attributes


def test_attributes_are_set_read_removed_and_travel(domain):
    tensor = domain.zeros((4, 2), "int8")
    assert (tensor.flags, tensor.requires_grad, tensor.name, tensor.axis_names) == (0, False, None, None)
    assert (tensor.lod, tensor.quantizer, tensor.metadata) == (None, None, {})
    tensor.requires_grad = True
    tensor.name = "wörter"
    tensor.axis_names = ("rows", None)
    tensor.lod = [[0, 2], [0, 1, 4]]
    tensor.quantizer = ([0.5, 2.0], (1, -1), -1)
    tensor.metadata = {"one": b"1", "empty": b"", "view": memoryview(b"abc")}
    loaded = domain.load_handle(tensor.to_handle())
    for t in (tensor, loaded, tensor.copy()):
        assert (t.flags, t.requires_grad, t.name, t.axis_names) == (1, True, "wörter", ("rows", ""))
        assert t.lod == [[0, 2], [0, 1, 4]]
        assert t.quantizer == ((0.5, 2.0), (1, -1), 1)
        assert t.metadata == {"one": b"1", "empty": b"", "view": b"abc"}
    tensor.requires_grad = False
    tensor.name = tensor.axis_names = tensor.lod = tensor.quantizer = tensor.metadata = None
    assert (tensor.flags, tensor.name, tensor.axis_names, tensor.lod) == (0, None, None, None)
    assert (tensor.quantizer, tensor.metadata) == (None, {})
    tensor.quantizer = (0.25, 3)
    assert tensor.quantizer == ((0.25,), (3,), None)
    del tensor.quantizer
    assert tensor.quantizer is None


@pytest.mark.parametrize(
    ("name", "wrong", "error"),
    [
        ("flags", 1 << 31, ValueError),
        ("flags", 1 << 40, ValueError),
        ("flags", -1, OverflowError),
        ("name", "x" * 200, ValueError),
        ("name", "a\0b", ValueError),
        ("name", 5, TypeError),
        ("axis_names", ("one",), ValueError),
        ("axis_names", (1, 2), TypeError),
        ("lod", [[0, 5]], ValueError),
        ("lod", [[0, -1]], OverflowError),
        ("lod", [[0, 4]] * 9, ValueError),
        ("lod", 5, TypeError),
        ("quantizer", (0.0, 1), ValueError),
        ("quantizer", ([1.0], [1, 2]), ValueError),
        ("quantizer", ([1.0], [1], 7), ValueError),
        ("quantizer", 0.5, TypeError),
        ("metadata", {"a": 5}, TypeError),
        ("metadata", {5: b"a"}, TypeError),
        ("metadata", {"a": b"1", "": b"2"}, ValueError),
        ("metadata", {"a": bytes(40000)}, ValueError),
    ],
)
def test_a_wrong_attribute_changes_nothing(name, wrong, error):
    tensor = _core.private((4, 2), "int8")
    tensor.flags = 1
    tensor.name = "kept"
    tensor.axis_names = ("r", "c")
    tensor.lod = [[0, 4]]
    tensor.quantizer = (1.5, 2)
    tensor.metadata = {"a": b"kept", "b": b"too"}
    before = getattr(tensor, name)
    with pytest.raises(error):
        setattr(tensor, name, wrong)
    assert getattr(tensor, name) == before


def test_metadata_is_a_copy():
    tensor = _core.private(1, "int8")
    tensor.metadata["a"] = b"1"
    assert tensor.metadata == {}


# ---- references


def test_nothing_is_left_of_tensors_that_come_and_go(domain):
    def once():
        tensor = domain.zeros((4, 3), "float32")
        views = [tensor.T, tensor[1], tensor[::-1, ::2], tensor.reshape(12), tensor.view((6,))]
        views += [tensor.copy(), domain.find(tensor.address, 1), domain.load_handle(tensor.to_handle())]
        tensor[...] = 1
        tensor[0] = tensor[1]
        tensor.metadata = {"a": b"1"}
        tensor.quantizer = tensor.lod = None
        private = _core.private(3, "int8")
        part = private[1:]
        private.share(domain)
        for call in (
            lambda: tensor[9],
            lambda: tensor.reshape(7),
            lambda: setattr(tensor, "name", 5),
            lambda: tensor.__setitem__(0, "x"),
            lambda: tensor.__setitem__(0, _core.private(7, "int8")),
            lambda: domain.empty(1, "none"),
        ):
            with pytest.raises((IndexError, ValueError, TypeError)):
                call()
        repr(part), tensor.shape, tensor.domain, list(tensor), tensor.tolist(), views

    once()
    gc.collect()
    counts = [sys.getrefcount(domain), sys.getrefcount(_core.Tensor), len(gc.get_objects())]
    for _ in range(50):
        once()
    gc.collect()
    after = [sys.getrefcount(domain), sys.getrefcount(_core.Tensor), len(gc.get_objects())]
    assert after[0] == counts[0]
    assert abs(after[1] - counts[1]) < 10 and abs(after[2] - counts[2]) < 50
    assert no_storage_is_left(domain)


def test_numpys_short_names_and_one_element_as_a_number(domain):
    for name, dtype in (("f8", "float64"), ("<i4", "int32"), ("u1", "uint8"), ("c16", "complex128"), ("b1", "bool")):
        assert domain.zeros((2,), name).dtype == dtype
    for name in ("f3", "b4", ">f4", "x1", "i16", "f"):
        with pytest.raises(TypeError, match="no dtype"):
            domain.zeros((2,), name)
    one = domain.zeros((), "f4")
    one[...] = 2.5
    assert (float(one), int(one)) == (2.5, 2)
    rows = domain.zeros((2, 3), "i8")
    rows[1] = [1, 2, 3]
    assert rows.tolist() == [[0, 0, 0], [1, 2, 3]]
