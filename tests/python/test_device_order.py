# SPDX-License-Identifier: Apache-2.0
"""The order of work on streams: record, wait, sync, queues, DLPack and the CUDA array interface."""

import ctypes
import os
import signal

import pytest
from devices import WAIT_S, back, child, give_work, held_stream, load_fake, needs_driver, on_device, universe

import tenon
import tenon.multiprocessing as mp
from tenon import _core

__all__ = ["child", "universe"]  # fixtures
pytestmark = needs_driver

SEVENS = b"\7" * 24
LEGACY, PER_THREAD = 1, 2


class Torch:
    """A stream as PyTorch has it."""

    def __init__(self, number):
        self.cuda_stream = number


class CuPy:
    def __init__(self, number):
        self.ptr = number


class Standard:
    def __init__(self, number):
        self.number = number

    def __cuda_stream__(self):
        return 0, self.number


class Attribute:
    __cuda_stream__ = (0, 0)


def waits_of(fake):
    fake.fake_calls.restype = ctypes.c_uint64
    return fake.fake_calls(b"cuStreamWaitValue64")


def new_stream(fake):
    stream = ctypes.c_void_p()
    assert fake.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream.value


def bytes_of(tensor):
    return tensor.to("cpu").tobytes()


def give_copy(stream, target, source):
    """Have a kernel on a stream copy a tensor of 24 bytes."""
    fake = load_fake()
    fake.fake_kernel_copy.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t]
    assert fake.fake_kernel_copy(stream, target.address, source.address, 24) == 0


# ---- tensors


def test_every_kind_of_stream_is_taken(child):
    @child
    def case():
        tensor = on_device()
        for stream in (None, 0, LEGACY, PER_THREAD, Torch(0), CuPy(0), Standard(LEGACY), Attribute()):
            tensor.record(stream)
            tensor.wait(stream)
        tensor.record()
        tensor.wait(stream=LEGACY)
        tensor.sync()


def test_what_is_no_stream_is_refused(child):
    @child
    def case():
        class Wrong:
            __cuda_stream__ = 7

        tensor = on_device()
        for call in (tensor.record, tensor.wait):
            with pytest.raises(TypeError, match="a stream is an int, or an object with cuda_stream"):
                call("default")
            with pytest.raises(TypeError, match="__cuda_stream__ of Wrong"):
                call(Wrong())
            with pytest.raises(OverflowError):
                call(-1)
            with pytest.raises(TypeError):
                call(Torch("1"))


def test_tensors_of_the_cpu_have_no_order(child):
    @child
    def case():
        tensor = tenon.zeros(3)
        with pytest.raises(tenon.Unsupported, match="on the CPU"):
            tensor.record()
        tensor.wait()
        tensor.sync()
        assert not tensor.is_incomplete
        with pytest.raises(tenon.Unsupported):
            _core.private(3, "int8").record()
        _core.private(3, "int8").wait()
        _core.private(3, "int8").sync(0)


def test_sync_waits_until_the_work_is_done(child):
    @child
    def case():
        tensor = on_device()
        with held_stream():
            give_work(tensor, 24)
            tensor.record()
            with pytest.raises(tenon.TimedOut):
                tensor.sync(0)
        tensor.sync(WAIT_S)
        assert bytes_of(tensor) == SEVENS and not tensor.is_incomplete


def test_wait_orders_another_stream_without_waiting(child):
    @child
    def case():
        fake, tensor, target = load_fake(), on_device(), on_device()
        with held_stream():
            other = new_stream(fake)
            give_work(tensor, 24)
            tensor.record()
            before = waits_of(fake)
            tensor.wait(other)  # it returns, although the work has not begun
            assert waits_of(fake) == before + 1
            give_copy(other, target, tensor)
            with pytest.raises(tenon.TimedOut):
                tensor.sync(0)
            fake.fake_release(None)
            assert fake.cuStreamSynchronize(ctypes.c_void_p(other)) == 0
            assert bytes_of(target) == SEVENS
            assert fake.cuStreamDestroy_v2(ctypes.c_void_p(other)) == 0


def test_stream_that_is_captured_is_refused(child):
    @child
    def case():
        fake, tensor = load_fake(), on_device()
        with held_stream():
            other = new_stream(fake)
            fake.fake_capture.argtypes = [ctypes.c_void_p, ctypes.c_bool]
            fake.fake_capture(other, True)
            with pytest.raises(tenon.Invalid, match="captured"):
                tensor.record(other)
            fake.fake_capture(other, False)
            tensor.record(other)
            tensor.sync()
            assert fake.cuStreamDestroy_v2(ctypes.c_void_p(other)) == 0


def test_closed_domain_is_named(child):
    @child
    def case():
        domain = _core.Domain.create()
        tensor = domain.zeros(3, "int8", device="cuda:0")
        domain.close()
        for call in (tensor.record, tensor.wait, tensor.sync):
            with pytest.raises(tenon.Closed):
                call()


# ---- other processes


def produce(queue, how):
    """Give the device work, send the tensor, and end; the work is done later."""
    fake, tensor = load_fake(), on_device()
    with held_stream():
        give_work(tensor, 24)
        if how == "killed":
            tensor.record()
        queue.put(tensor)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(tenon.TimedOut):
            tensor.sync(0)
        fake.fake_release(None)
    tensor.sync()


def start(target, *args):
    process = mp.get_context("spawn").Process(target=target, args=args, daemon=True)
    process.start()
    return process


def produce_by_name(domain):
    queue = tenon.Queue("ordered", domain=domain)
    queue.set_stream("cuda:0", Torch(0))
    produce(queue, "stream")


def test_queue_with_a_stream_orders_its_messages(child):
    @child
    def case():
        domain = f"order-{os.getpid()}"
        queue = tenon.Queue("ordered", domain=domain)
        process = start(produce_by_name, domain)
        queue.set_stream("cuda:0")
        tensor = queue.get(WAIT_S)
        assert bytes_of(tensor) == SEVENS
        queue.set_stream(None)
        with pytest.raises(tenon.Unsupported):
            queue.set_stream("cpu")
        with pytest.raises(TypeError, match="a stream is"):
            queue.set_stream("cuda:0", "1")
        process.join(WAIT_S)
        assert process.exitcode == 0


def test_tensor_of_a_killed_process_is_incomplete(child, universe):
    @child
    def case():
        queue = mp.get_context("spawn").SimpleQueue()
        process = start(produce, queue, "killed")
        tensor = queue.get()
        process.join(WAIT_S)
        for call in (tensor.sync, tensor.wait):
            with pytest.raises(tenon.PeerDied):
                call()
        assert tensor.is_incomplete
        with pytest.raises(tenon.PeerDied):
            tensor.__dlpack__()
        with pytest.raises(tenon.PeerDied):
            tensor.__cuda_array_interface__
        tensor.__dlpack__(stream=-1)  # whoever asks for no order is told by is_incomplete
        del tensor


# ---- other libraries


def test_dlpack_lets_the_stream_of_the_consumer_wait(child):
    @child
    def case():
        fake, tensor = load_fake(), on_device()
        with held_stream():
            other = new_stream(fake)
            give_work(tensor, 24)
            tensor.record()
            before = waits_of(fake)
            tensor.__dlpack__(stream=-1)
            assert waits_of(fake) == before
            for number, stream in enumerate((None, LEGACY, PER_THREAD, other), 1):
                tensor.__dlpack__(stream=stream, max_version=(1, 0))
                assert waits_of(fake) == before + number
            for stream in (0, -2):
                with pytest.raises(ValueError, match=f"stream={stream}"):
                    tensor.__dlpack__(stream=stream)
            fake.fake_release(None)
            tensor.sync()
            assert fake.cuStreamSynchronize(ctypes.c_void_p(other)) == 0
            assert fake.cuStreamDestroy_v2(ctypes.c_void_p(other)) == 0


def test_cuda_array_interface_names_a_stream_while_work_is_pending(child):
    @child
    def case():
        fake, tensor = load_fake(), on_device()
        assert tensor.__cuda_array_interface__["stream"] is None
        with held_stream():
            give_work(tensor, 24)
            tensor.record()
            before = waits_of(fake)
            assert tensor.__cuda_array_interface__["stream"] == LEGACY
            assert waits_of(fake) == before + 1
        tensor.sync()
        assert tensor.__cuda_array_interface__["stream"] is None


class Producer:
    """Another library's array on a device, which notes how it was asked."""

    def __init__(self, tensor):
        self.tensor, self.asked = tensor, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        return self.tensor.__dlpack__(**keywords)


class Old(Producer):
    """One that follows DLPack before 1.0."""

    def __dlpack__(self, *, stream=None):
        self.asked.append({"stream": stream})
        return self.tensor.__dlpack__(stream=stream)


@pytest.mark.parametrize("kind", [Producer, Old])
def test_from_dlpack_asks_with_the_stream_of_the_consumer(child, kind):
    @child
    def case():
        for given, asked in ((Torch(0), LEGACY), (CuPy(PER_THREAD), PER_THREAD), (LEGACY, LEGACY), (-1, -1)):
            producer = kind(on_device())
            try:
                tensor = tenon.from_dlpack(producer, stream=given)
            except BufferError as error:  # memory of others cannot be imported here
                assert "cuda:0" in str(error)
            else:
                assert tensor.device == "cuda:0"
                del tensor
            assert producer.asked[-1]["stream"] == asked
        with pytest.raises(TypeError, match="a stream is"):
            tenon.from_dlpack(producer, stream="1")


# A stand-in for a consumer, as CuPy and JAX are: it follows the two protocols and nothing else.


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Consumer:
    """An array over what a producer exports by DLPack 1.x, with the consumer's stream."""

    def __init__(self, producer, stream):
        capsule = producer.__dlpack__(stream=stream, max_version=(1, 0))
        name = b"dltensor_versioned"
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self.managed = Versioned.from_address(api.PyCapsule_GetPointer(capsule, name))
        self.used_name = b"used_dltensor_versioned"
        assert api.PyCapsule_SetName(capsule, self.used_name) == 0
        tensor = self.managed.tensor
        self.address, self.shape = tensor.data + tensor.byte_offset, tensor.shape[: tensor.ndim]
        self.device, self.stream = tuple(tensor.device), stream

    def copy_to_host(self, size_bytes):
        """The bytes, by a copy on the consumer's stream."""
        fake, host = load_fake(), ctypes.create_string_buffer(size_bytes)
        stream = ctypes.c_void_p(self.stream)
        assert fake.cuMemcpyDtoHAsync_v2(host, ctypes.c_uint64(self.address), ctypes.c_size_t(size_bytes), stream) == 0
        assert fake.cuStreamSynchronize(stream) == 0
        return host.raw

    def release(self):
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(ctypes.addressof(self.managed))


def test_consumer_of_dlpack_reads_what_a_process_is_still_writing(child):
    @child
    def case():
        domain = f"order-{os.getpid()}"
        queue = tenon.Queue("ordered", domain=domain)
        process = start(produce_by_name, domain)
        tensor = queue.get(WAIT_S)
        with held_stream():
            load_fake().fake_release(None)
            stream = new_stream(load_fake())
            array = Consumer(tensor, stream)
            assert array.shape == [2, 3] and array.device == (2, 0)
            assert array.copy_to_host(24) == SEVENS
            array.release()
            assert load_fake().cuStreamDestroy_v2(ctypes.c_void_p(stream)) == 0
        process.join(WAIT_S)
        assert process.exitcode == 0


def test_consumer_of_the_cuda_array_interface_has_the_memory(child):
    @child
    def case():
        tensor = on_device()
        interface = tensor.T.__cuda_array_interface__
        assert interface["data"] == (tensor.address, False) and interface["version"] == 3
        host = ctypes.create_string_buffer(24)
        assert load_fake().fake_peek(ctypes.c_uint64(interface["data"][0]), host, ctypes.c_size_t(24)) == 0
        assert host.raw == bytes_of(tensor)


def test_to_takes_the_default_stream_of_a_library(child):
    @child
    def case():
        source = tenon.asarray([1.0, 2.0], "float32")
        with held_stream():
            there = source.to("cuda:0", stream=Torch(0))
            with pytest.raises(tenon.TimedOut):
                there.sync(0)
        assert back(there) == [1.0, 2.0]
