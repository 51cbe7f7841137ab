# SPDX-License-Identifier: Apache-2.0
"""Messages: any object through a queue of the extension, arrays beside the pickle."""

import copyreg
import os
import pickle
import signal
import threading

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tenon
from tenon import _core


@pytest.fixture
def queue(domain):
    made = _core.Queue.create(domain)
    yield made
    made.close()


def through(queue, value):
    queue.put(value)
    return queue.get(timeout=0)


def same_memory(one, other):
    return one.__array_interface__["data"][0] == other.__array_interface__["data"][0]


# ---- round trips ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [None, 1, 2.5, "text", b"bytes" * 100, (1, [2, {3: 4}]), {"a", "b"}, bytearray(b"x" * 5000), range(5), 10**40],
)
def test_objects_arrive_equal(queue, value):
    assert through(queue, value) == value


_NUMBERS = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="=", sizes=(64, 128)),
)
_OTHERS = st.one_of(
    hnp.integer_dtypes(endianness=">"), hnp.datetime64_dtypes(endianness="="), hnp.unicode_string_dtypes(), hnp.byte_string_dtypes()
)
_ARRAYS = hnp.arrays(st.one_of(_NUMBERS, _OTHERS), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
_OBJECTS = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(), st.binary(max_size=400), _ARRAYS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4), st.tuples(inner, inner)),
    max_leaves=12,
)


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other):
            assert_same(left, right)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    else:
        assert one == other


@settings(max_examples=200)
@given(_OBJECTS)
def test_nested_objects_with_arrays_of_any_dtype_arrive_equal(value):
    data, tensors = _core.dumps(value, _domain())
    assert_same(_core.loads(data, tensors), value)


_shared_domain = None


def _domain():
    global _shared_domain
    if _shared_domain is None:
        _shared_domain = _core.Domain.create()
    return _shared_domain


def teardown_module():
    if _shared_domain is not None:
        assert _shared_domain.audit() == []
        _shared_domain.close()


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_keep_their_order_and_strides_are_those_of_a_copy(queue, order):
    array = np.asarray(np.arange(24).reshape(4, 6), order=order)
    got = through(queue, array)
    assert np.array_equal(got, array)
    assert got.flags.c_contiguous == array.flags.c_contiguous


def test_an_array_that_occurs_twice_arrives_once(queue):
    array = np.ones(100)
    one, other = through(queue, [array, array])
    assert one is other


_MOST = 1_000_000  # TN_MESSAGE_MAX_TENSORS
_NAMES_IT = r"TN_MESSAGE_MAX_TENSORS \(1000000\)"


@pytest.mark.parametrize("count", [4200, 20_000])
def test_any_number_of_private_arrays_arrives(queue, count):
    arrays = [np.full(3, i) for i in range(count)]
    arrays += [np.full(500, i).astype(dtype) for i in range(3) for dtype in ("i4,i4", "M8[s]")]
    got = through(queue, arrays)
    assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(got, arrays))


def _dates(array):
    return array.view("M8[s]")


def _records(array):
    return array.view("i4,i4")


@pytest.mark.parametrize("count, view", [(5000, _dates), (5000, _records), (20_000, np.asarray), (100_000, np.asarray)])
def test_any_number_of_shared_arrays_travels_beside_a_pickle(queue, count, view):
    array = np.asarray(queue.domain.zeros((count,), "int64"))
    got, _ = through(queue, ([view(array[i : i + 1]) for i in range(count)], b"x" * 500000))
    array[:] = range(count)
    assert [int(np.asarray(one).view("int64")[0]) for one in got] == list(range(count))


@pytest.mark.parametrize("count", [20_000, 100_000])
def test_any_number_of_tensors_arrives_with_their_attributes(queue, count):
    tensors = [queue.domain.empty((1,), "int8") for _ in range(count)]
    for number, tensor in enumerate(tensors):
        tensor.metadata = {"number": str(number).encode()}
    queue.push(b"beside", tensors)
    message = queue.pop(0)
    assert message.data == b"beside"
    assert [int(tensor.metadata["number"]) for tensor in message.tensors] == list(range(count))
    assert all(got.same_storage(sent) for got, sent in zip(message.tensors, tensors))


class _Greedy:
    """Sends one tensor `count` times, and then another."""

    def __init__(self, tensor, count, other):
        self.tensor, self.count, self.other = tensor, count, other

    def __reduce__(self):
        for _ in range(self.count):
            _core.send(self.tensor)
        return _core.take, (_core.send(self.other),)


def test_a_tensor_too_many_for_a_message_stays_private(queue):
    shared, private = queue.domain.zeros(1, "int8"), _core.private((3,), "int8")
    assert through(queue, _Greedy(shared, _MOST - 1, shared)).same_storage(shared)
    with pytest.raises(ValueError, match=_NAMES_IT):
        queue.put(_Greedy(shared, _MOST, private))
    with pytest.raises(ValueError, match="at most 1000000"):
        queue.push(b"", [shared] * (_MOST + 1))
    assert not private.is_shared and queue.count() == 0


class _Reduced:
    pass


def _forking_register(cls, function):
    ForkingPickler.register(cls, function)


@pytest.mark.parametrize("register", [copyreg.pickle, _forking_register, _core.register])
def test_a_reducer_that_is_registered_again_is_the_one_that_is_used(queue, register):
    for word in ("first", "second", "third"):
        register(_Reduced, lambda _, word=word: (str, (word,)))
        assert through(queue, _Reduced()) == word
        assert through(queue, [_Reduced()]) == [word]


def test_buffers_of_other_types_lie_in_shared_memory_on_arrival(queue):
    sent = np.zeros(1000, dtype=[("x", "f4"), ("y", "i8")])
    sent["y"] = 7
    got = through(queue, {"record": sent})["record"]
    assert got.dtype == sent.dtype and (got["y"] == 7).all()
    assert queue.domain.find(got.__array_interface__["data"][0], got.nbytes) is not None


# ---- without a copy ---------------------------------------------------------------------------


def test_arrays_in_the_domain_and_their_views_are_not_copied(queue):
    array = through(queue, np.arange(100, dtype=np.int32))
    for view in (array, array[10:], array[::-2], array.reshape(10, 10).T, array[5:6]):
        got = through(queue, view)
        assert same_memory(got, view) and got.strides == view.strides
    nested = through(queue, {"a": [array[3:]]})["a"][0]
    assert same_memory(nested, array[3:])
    nested[0] = -5
    assert array[3] == -5


@pytest.mark.parametrize("count", [4, 1000])
@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]", "i4,i4", "S8", ">i8"])
def test_arrays_of_any_dtype_and_size_in_the_domain_are_not_copied(queue, dtype, count):
    array = np.asarray(queue.domain.zeros((count,), "int64")).view(dtype)
    fixed = array[1:]
    fixed.setflags(write=False)
    for value in (array, [array[1:]], [fixed]):
        sent = value[0] if isinstance(value, list) else value
        got = through(queue, value)
        got = got[0] if isinstance(value, list) else got
        assert same_memory(got, sent) and got.dtype == sent.dtype and got.shape == sent.shape
        assert got.flags.writeable == sent.flags.writeable


def test_dates_with_steps_between_them_travel_without_a_copy_too(queue):
    array = np.asarray(queue.domain.zeros((4, 6), "int64")).view("M8[D]")
    for view in (array.T, array[::2, ::-1], array[0, 0, ...]):
        got = through(queue, view)
        assert same_memory(got, view) and got.strides == view.strides
        assert got.dtype == view.dtype and (got == np.datetime64("1970-01-01")).all()
    private = np.arange("2020-01-01", "2020-03-01", dtype="M8[D]").reshape(6, 10).T
    assert_same(through(queue, [private])[0], private)


def test_an_array_that_cannot_be_written_cannot_be_on_arrival_either(queue):
    array = through(queue, np.arange(100))
    array.setflags(write=False)
    for value in (array, [array]):
        got = through(queue, value)
        got = got[0] if isinstance(got, list) else got
        assert same_memory(got, array) and not got.flags.writeable


def test_a_private_array_is_copied_once_and_stays_as_it_is(queue):
    array = np.arange(10)
    got = through(queue, array)
    got[0] = 99
    assert array[0] == 0


def test_a_tensor_arrives_as_a_tensor_with_its_attributes(queue):
    tensor = queue.domain.zeros((2, 3), "float32")
    tensor.requires_grad = True
    tensor.name = "weight"
    got = through(queue, [tensor])[0]
    assert isinstance(got, tenon.Tensor) and got.address == tensor.address
    assert got.requires_grad and got.name == "weight"


def test_a_private_tensor_is_moved_for_all_its_views(queue):
    tensor = _core.private((4,), "int64")
    view = tensor[1:]
    got = through(queue, tensor)
    view[0] = 5
    assert tensor.is_shared and got[1] == 5


def test_a_tensor_of_another_domain_is_copied(queue):
    other = _core.Domain.create()
    tensor = other.zeros((3,), "float32")
    got = through(queue, tensor)
    assert got.address != tensor.address and got.domain is queue.domain
    del tensor
    other.close()


# ---- what goes wrong --------------------------------------------------------------------------


class Unpicklable:
    def __reduce__(self):
        raise TypeError("this object is Unpicklable")


class Exploding:
    def __reduce__(self):
        return explode, (1,)


def explode(_):
    raise ZeroDivisionError("on arrival")


def test_what_cannot_be_pickled_raises_in_put_and_leaves_nothing(queue):
    with pytest.raises(TypeError, match="Unpicklable"):
        queue.put([np.ones(1000), Unpicklable()])
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        queue.put(lambda: None)
    assert queue.count() == 0
    assert through(queue, 1) == 1


def test_get_raises_with_the_class_that_cannot_be_unpickled(queue):
    queue.put(Exploding())
    queue.put(2)
    with pytest.raises(ZeroDivisionError) as raised:
        queue.get(timeout=0)
    assert "explode" in raised.value.__notes__[0]
    assert queue.get(timeout=0) == 2


@pytest.mark.parametrize(
    "data",
    [b"", b"?", b"P", b"P\0\0\0\xff\xff\xff\xff", b"A", b"T", b"P\0\0\0\1\0\0\0" + b"\xff" * 24 + b"N."],
)
def test_bytes_that_are_no_message_are_an_error(data):
    with pytest.raises(ValueError, match="no value that put"):
        _core.loads(data, [])


@settings(max_examples=200)
@given(st.binary(min_size=1, max_size=64), st.integers(0, 2))
def test_altered_heads_of_messages_never_crash(noise, tensors):
    domain = _domain()
    data, sent = _core.dumps({"r": np.zeros(100, dtype="i2,i4")}, domain)
    altered = noise[:24] + data[len(noise[:24]) :]
    try:
        _core.loads(altered, (sent * 2)[:tensors])
    except Exception:  # noqa: S110: any error will do, as long as it is one
        pass


def test_sizes_beyond_the_quota_are_a_memory_error_at_once():
    small = _core.Domain.create(quota_bytes=1 << 20)
    queue = _core.Queue.create(small)
    with pytest.raises(MemoryError):
        queue.put(np.zeros(1 << 21, np.uint8))
    queue.put(1)
    assert queue.get() == 1
    queue.close()
    small.close()


def test_a_closed_queue_and_a_closed_domain_say_so(domain):
    queue = _core.Queue.create(domain)
    queue.close()
    queue.close()
    with pytest.raises(ValueError, match="closed the queue"):
        queue.put(1)
    other = _core.Domain.create()
    left = _core.Queue.create(other)
    other.close()
    with pytest.raises(BrokenPipeError, match="closed the domain"):
        left.get()


# ---- waiting ----------------------------------------------------------------------------------


def test_times_pass_and_errors_are_of_the_built_in_families(queue):
    with pytest.raises(TimeoutError):
        queue.get(timeout=0.01)
    with pytest.raises(_core.TimedOut) as raised:
        queue.get(0)
    assert raised.value.status == -2
    queue.end()
    with pytest.raises(BrokenPipeError):
        queue.put(1)


def test_a_thread_that_waits_lets_others_run(queue):
    got = []
    thread = threading.Thread(target=lambda: got.append(queue.get()))
    thread.start()
    queue.put("late")
    thread.join(30)
    assert got == ["late"]


def test_a_queue_can_be_closed_while_another_thread_waits_in_it(domain):
    queue = _core.Queue.create(domain)
    got, waits = [], threading.Event()

    def wait():
        waits.set()
        got.append(queue.get())

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait()
    number = queue.id
    other = _core.Queue.open(domain, number)
    queue.close()
    other.put(3)
    thread.join(30)
    assert got == [3]
    other.close()


def test_closing_the_domain_ends_the_waits_of_other_threads():
    domain = _core.Domain.create()
    queue = _core.Queue.create(domain)
    errors, waits = [], threading.Event()

    def wait():
        waits.set()
        try:
            queue.get()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait()
    domain.close()
    thread.join(30)
    assert len(errors) == 1 and isinstance(errors[0], _core.Closed)


def fork(run):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = run() or 0
        finally:
            os._exit(code)
    return pid


def test_ctrl_c_ends_a_wait(queue):
    read, write = os.pipe()

    def wait():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            os.write(write, b"x")
            queue.get()
        except KeyboardInterrupt:
            return 7

    pid = fork(wait)
    os.read(read, 1)
    os.kill(pid, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    os.close(read)
    os.close(write)


def test_a_handler_that_does_not_raise_ends_no_wait(queue):
    read, write = os.pipe()

    def wait():
        signal.signal(signal.SIGUSR1, lambda *_: os.write(write, b"h"))
        os.write(write, b"x")
        return queue.get()

    pid = fork(wait)
    os.read(read, 1)
    os.kill(pid, signal.SIGUSR1)
    assert os.read(read, 1) == b"h"
    queue.put(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    os.close(read)
    os.close(write)


def test_a_killed_producer_is_named(queue):
    read, write = os.pipe()

    def produce():
        queue.put("last")
        os.write(write, b"x")
        signal.pause()

    pid = fork(produce)
    os.read(read, 1)
    assert queue.get() == "last"
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(BrokenPipeError) as raised:
        queue.get()
    assert raised.value.pid == pid and raised.value.seat is not None
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)


def test_a_leased_message_comes_again_and_is_acknowledged(domain):
    queue = _core.Queue.create(domain, policy=2)
    queue.put("job")
    pid = fork(lambda: int(queue.pop().load() != "job"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    message = queue.pop()
    assert message.load() == "job" and message.attempt == 1
    message.ack()
    with pytest.raises(_core.Stale):
        message.ack()
    queue.close()
