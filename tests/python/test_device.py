# SPDX-License-Identifier: Apache-2.0
"""Tensors on CUDA devices, with the fake driver of tests/fakecuda."""

import copy
import ctypes
import multiprocessing
import operator
import os
import pickle
import threading
import time

import pytest
from devices import (
    DEVICES, MEMORY_BYTES, VALUES, WAIT_S, back, child, give_work, held_stream, load_fake, needs_driver, on_device,
    universe,
)

import tenon
import tenon.multiprocessing as mp
from tenon import _core, _domain

__all__ = ["child", "universe"]  # fixtures
pytestmark = needs_driver


# ---- devices


def test_devices_are_listed_without_the_cpu(child):
    @child
    def case():
        first, second = tenon.devices()
        assert isinstance(first, tenon.Device)
        assert (first.name, second.name) == ("cuda:0", "cuda:1")
        assert first.uuid.startswith("GPU-") and first.uuid != second.uuid
        assert tenon.zeros(3, device=second).device == "cuda:1"
        assert first.model and isinstance(first.model, str)
        assert (first.memory_bytes, first.driver_version, first.shares) == (MEMORY_BYTES, 13000, True)
        assert (first.pci, first.numa_node) == ("0000:01:00.0", -1)


def test_no_driver_means_no_devices_and_says_why(child):
    @child
    def case():
        os.environ["TENON_CUDA_LIBRARY"] = "/nonexistent/libcuda.so.1"
        assert tenon.devices() == []
        for make in (
            lambda: tenon.empty(3, device="cuda:0"),
            lambda: tenon.zeros(3, device="GPU-5fd4f087-86f3-7a43-b711-4771313afc50"),
            lambda: tenon.full(3, 1.0, device="cuda"),
            lambda: tenon.asarray([1.0], device="cuda:0"),
            lambda: tenon.zeros(3).to("cuda:0"),
        ):
            with pytest.raises(tenon.Unsupported, match="/nonexistent/libcuda.so.1"):
                make()


def test_unknown_device_is_not_found(child):
    @child
    def case():
        with pytest.raises(tenon.NotFound, match="no device cuda:7"):
            tenon.empty(3, device="cuda:7")
        with pytest.raises(tenon.NotFound, match="GPU-0000"):
            tenon.zeros(3).to("GPU-00000000-0000-0000-0000-000000000000")
        with pytest.raises(tenon.Invalid, match="'gpu' names no device"):
            tenon.domain().zeros(3, "int8", device="gpu")
        with pytest.raises(TypeError, match="a device is a text"):
            tenon.zeros(3).to(0)
        with pytest.raises(ValueError, match="null character"):
            tenon.zeros(3).to("cuda:0\0")


def test_child_of_a_process_that_used_the_driver_is_refused(child):
    @child
    def case():
        assert len(tenon.devices()) == DEVICES

        def forked():
            for call in (tenon.devices, lambda: tenon.empty(3, device="cuda:0")):
                with pytest.raises(tenon.Forked):
                    call()

        process = multiprocessing.get_context("fork").Process(target=forked)
        process.start()
        process.join(WAIT_S)
        assert process.exitcode == 0


# ---- making


def test_tensor_names_its_device(child):
    @child
    def case():
        assert tenon.zeros(3).device == "cpu"
        assert "device" not in repr(tenon.zeros(3))
        tensor = tenon.zeros(3, device="cuda")
        assert (tensor.device, tensor.strategy) == ("cuda:0", "cuda_vmm")
        assert repr(tensor) == "tenon.Tensor(shape=(3,), dtype=float32, device=cuda:0, shared by cuda_vmm)"
        tensor.name = "weights"
        assert repr(tensor).endswith("device=cuda:0, shared by cuda_vmm, name='weights')")


def test_functions_make_tensors_on_the_device_that_is_named(child):
    @child
    def case():
        uuid = tenon.devices()[1].uuid
        for device, name in (("cuda:0", "cuda:0"), ("CUDA:1", "cuda:1"), (uuid, "cuda:1"), ("cpu", "cpu")):
            here, where = {"device": device}, tenon.domain()
            assert tenon.empty((2, 3), **here).device == where.empty(3, "int8", **here).device == name
            for zeros in (tenon.zeros(3, **here), where.zeros(3, "float32", **here)):
                assert (zeros.device, back(zeros)) == (name, [0, 0, 0])
            full = tenon.full((2, 2), 7, **here)
            assert (full.device, full.dtype, back(full)) == (name, "int64", [[7, 7], [7, 7]])
            array = tenon.asarray([[1, 2], [3, 4]], "int16", **here)
            assert (array.device, array.dtype, back(array)) == (name, "int16", [[1, 2], [3, 4]])


def test_asarray_takes_arrays_in_any_order_of_elements(child):
    numpy = pytest.importorskip("numpy")

    @child
    def case():
        array = numpy.arange(24.0).reshape(4, 6)
        for part in (array.T, array[::2, ::-1], array[:0], array[1, 2]):
            assert back(tenon.asarray(part, device="cuda:0")) == part.tolist()


def test_asarray_leaves_a_tensor_where_it_is(child):
    @child
    def case():
        tensor = on_device()
        assert tenon.asarray(tensor) is tensor
        assert tenon.asarray(tensor, device="cuda:0") is tensor
        assert tenon.asarray(tensor, "float32", domain=tenon.domain()) is tensor
        assert tenon.asarray(tensor, device="cpu").tolist() == back(tensor)
        other = _core.Domain.create()
        copied = tenon.asarray(tensor, domain=other)
        assert (copied.device, copied.domain, back(copied)) == ("cuda:0", other, back(tensor))
        del copied
        other.trim()
        other.close()


def test_strategy_of_a_device_is_refused_elsewhere(child):
    @child
    def case():
        assert tenon.empty(3, strategy="cuda_vmm", device="cuda:0").strategy == "cuda_vmm"
        with pytest.raises(tenon.Invalid, match="that of tensors on CUDA and ROCm devices"):
            tenon.empty(3, strategy="cuda_vmm")
        for strategy in _core.strategies():
            with pytest.raises(tenon.Invalid, match="of memory of the host"):
                tenon.empty(3, strategy=strategy, device="cuda:0")


def test_driver_that_fails_raises(child):
    @child
    def case():
        tensor, fake = on_device(), load_fake()
        fake.fake_fail_nth(None, 1, 999)
        with pytest.raises(tenon.DeviceFailed):
            tensor.to("cpu")
        assert back(tensor) == [VALUES[:3], VALUES[3:]]


def test_large_tensors_and_write_once_are_on_devices_too(child):
    @child
    def case():
        large = tenon.zeros(40 << 20, "uint8", device="cuda:0")
        assert (large.nbytes, large.device) == (40 << 20, "cuda:0")
        fixed = tenon.full(4, 3, "uint8", write_once=True, device="cuda:0")
        assert back(fixed) == [3, 3, 3, 3]


# ---- views


def test_views_of_a_device_are_views(child):
    @child
    def case():
        tensor = on_device()
        views = (
            tensor[1],
            tensor[:, ::2],
            tensor[None, ..., 0:1],
            tensor.reshape(3, 2),
            tensor.T,
            tensor.transpose(1, 0),
            tensor.view((24,), "uint8"),
            copy.copy(tensor),
            *tensor,
        )
        for view in views:
            assert view.device == "cuda:0" and view.same_storage(tensor)
        assert back(tensor[1]) == VALUES[3:]
        assert back(tensor.reshape(3, 2)) == [VALUES[:2], VALUES[2:4], VALUES[4:]]
        assert len(tensor) == 2 and tensor.T.shape == (3, 2) and tensor.address > 0


def test_copy_is_on_the_same_device(child):
    @child
    def case():
        tensor = on_device(device="cuda:1")
        for copied in (tensor.copy(), copy.deepcopy(tensor)):
            assert copied.device == "cuda:1" and not copied.same_storage(tensor)
            assert back(copied) == back(tensor)


# ---- to() and copy_from()


def test_to_copies_to_a_device_and_back(child):
    @child
    def case():
        private = _core.private(6, "float32")
        private.copy_from(tenon.asarray(VALUES, "float32"))
        for source in (private, tenon.asarray(VALUES, "float32")):
            source.name = "numbers"
            there = source.to("cuda:0")
            assert (there.device, there.name, there.domain) == ("cuda:0", "numbers", tenon.domain())
            here = there.to("cpu")
            assert (here.device, here.strategy, here.is_shared) == ("cpu", "arena", True)
            assert here.tolist() == VALUES and not here.same_storage(source)


def test_to_the_same_device_returns_the_tensor(child):
    @child
    def case():
        tensor, private = on_device(), _core.private(3, "int8")
        assert tensor.to("cuda:0") is tensor and tensor.to("cuda") is tensor
        assert tensor.to(tenon.devices()[0].uuid, stream=1) is tensor
        assert private.to("cpu") is private


def test_to_with_a_stream_does_not_wait(child):
    @child
    def case():
        source = tenon.asarray(VALUES, "float32")
        with held_stream():
            there = source.to("cuda:0", stream=1)  # the legacy default stream
        assert back(there) == VALUES


def test_other_threads_run_while_a_copy_waits(child):
    @child
    def case():
        source, target = tenon.asarray(VALUES, "float32"), tenon.zeros(6, device="cuda:0")
        results, copies = [], (lambda: target.copy_from(source), lambda: results.append(source.to("cuda:0")))
        for wait in copies:
            with held_stream():
                thread = threading.Thread(target=wait)
                thread.start()  # it waits for the stream, which this thread lets go on
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert back(target) == back(*results) == VALUES


def test_tensors_with_any_strides_are_copied(child):
    @child
    def case():
        here = tenon.asarray([[0, 1, 2], [3, 4, 5]], "float32")
        across, there = [[0, 3], [1, 4], [2, 5]], here.to("cuda:0")
        assert there.T.to("cpu").tolist() == here.T.to("cuda:0").to("cpu").tolist() == across
        assert here.T.to("cuda:0", stream=1).is_contiguous
        assert there[:, ::-2].copy().to("cpu").tolist() == [[2, 0], [5, 3]]
        there[:, 1:].copy_from(tenon.asarray([[7, 8], [9, 6]], "float32"))
        assert there.to("cpu").tolist() == [[0, 7, 8], [3, 9, 6]]
        assert tenon.asarray(here.T, device="cuda:0").to("cpu").tolist() == across


def test_to_refuses_what_is_no_stream(child):
    @child
    def case():
        with pytest.raises(OverflowError):
            tenon.zeros(3).to("cuda:0", stream=-1)
        with pytest.raises(TypeError):
            tenon.zeros(3).to("cuda:0", stream="default")


def test_copy_from_copies_between_any_devices(child):
    @child
    def case():
        source, target = tenon.asarray(VALUES, "float32"), tenon.zeros(6, device="cuda:0")
        target.copy_from(source)
        assert back(target) == VALUES
        other = tenon.zeros(6, device="cuda:0")
        other.copy_from(target)
        here = tenon.zeros(6)
        here.copy_from(other)
        assert here.tolist() == VALUES
        other[3:].copy_from(tenon.zeros(3))
        assert back(other) == VALUES[:3] + [0, 0, 0]
        with pytest.raises(tenon.Invalid):
            other.copy_from(tenon.zeros(5))


def test_copy_from_takes_an_array(child):
    numpy = pytest.importorskip("numpy")

    @child
    def case():
        target = tenon.zeros(6, device="cuda:0")
        target.copy_from(numpy.array(VALUES, "float32"))
        assert back(target) == VALUES


# ---- what reads or writes elements on the CPU


def by_numpy(name, tensor):
    import numpy

    return getattr(numpy, name)(tensor)


BY_NUMPY = {
    "set from list": lambda tensor: operator.setitem(tensor, 0, [1.0, 2.0, 3.0]),
    "asarray with a dtype": lambda tensor: tenon.asarray(tensor, "int32"),
    "__array__": lambda tensor: tensor.__array__(),
    "__array__ with a dtype": lambda tensor: tensor.__array__("float64", copy=True),
    "numpy.asarray": lambda tensor: by_numpy("asarray", tensor),
    "numpy.array": lambda tensor: by_numpy("array", tensor),
    "numpy.sum": lambda tensor: by_numpy("sum", tensor),
}
REFUSED = {
    **BY_NUMPY,
    "memoryview": memoryview,
    "bytes": bytes,
    "bytearray": bytearray,
    "ctypes": (ctypes.c_float * 6).from_buffer,
    "pickle_buffer": pickle.PickleBuffer,
    "tobytes": lambda tensor: tensor.tobytes(),
    "tobytes of a view": lambda tensor: tensor.T.tobytes(),
    "tolist": lambda tensor: tensor.tolist(),
    "tolist of none": lambda tensor: tensor[0:0].tolist(),
    "item": lambda tensor: tensor[0, 0:1].item(),
    "element": lambda tensor: tensor[1, 2],
    "element without axes": lambda tensor: tensor[0, 0:1].reshape(())[()],
    "iteration": lambda tensor: list(tensor[0]),
    "unpacking": lambda tensor: [*tensor.reshape(6)],
    "contains": lambda tensor: 1.5 in tensor[0],
    "reversed": lambda tensor: list(reversed(tensor[0])),
    "bool": lambda tensor: bool(tensor[0, 0:1]),
    "int": lambda tensor: int(tensor[0, 0:1]),
    "float": lambda tensor: float(tensor[0, 0:1]),
    "complex": lambda tensor: complex(tensor[0, 0:1]),
    "set element": lambda tensor: operator.setitem(tensor, (0, 0), 1.0),
    "set all": lambda tensor: operator.setitem(tensor, ..., 0),
    "set from tensor": lambda tensor: operator.setitem(tensor, 0, tenon.zeros(3)),
    "set tensor of the CPU": lambda tensor: operator.setitem(tenon.zeros((2, 3)), ..., tensor),
    "set with another dtype": lambda tensor: operator.setitem(_core.private((2, 3), "int8"), ..., tensor),
    "from_buffer": _core.from_buffer,
    "metadata": lambda tensor: setattr(tenon.zeros(3), "metadata", {"key": tensor}),
    "load_handle": lambda tensor: tenon.domain().load_handle(tensor),
}


@pytest.mark.parametrize("name", REFUSED)
def test_elements_of_a_device_are_refused_on_the_cpu(child, name):
    if name in BY_NUMPY:
        pytest.importorskip("numpy")

    @child
    def case():
        tensor = on_device()
        with pytest.raises(TypeError, match=r'cuda:0.*\.to\("cpu"\)'):
            REFUSED[name](tensor)
        assert back(tensor) == [VALUES[:3], VALUES[3:]]


def test_message_cannot_name_a_tensor_of_a_device_as_an_array(child):
    numpy = pytest.importorskip("numpy")

    @child
    def case():
        data, tensors = _core.dumps({"array": numpy.zeros((2, 3), "float32")})
        assert len(tensors) == 1
        for given in (on_device(), on_device().T):
            with pytest.raises(TypeError, match="cuda:0"):
                _core.loads(data, [given])


def test_message_cannot_name_a_tensor_of_a_device_as_a_buffer(child):
    @child
    def case():
        value = pickle.PickleBuffer(bytearray(100_000))
        data, tensors = _core.dumps(value)
        assert [tensor.nbytes for tensor in tensors] == [100_000]
        with pytest.raises(TypeError, match="cuda:0"):
            _core.loads(data, [tenon.zeros(100_000, "uint8", device="cuda:0")])


def test_torch_gets_no_tensor_of_a_device_as_one_of_the_cpu(child):
    pytest.importorskip("torch")

    @child
    def case():
        import tenon.torch

        for tensor in (on_device(), on_device()[0:0]):
            with pytest.raises(TypeError, match=r'cuda:0.*\.to\("cpu"\)'):
                tenon.torch.to_torch(tensor)


# ---- other libraries


class FromDevice:
    """Exports as a library does whose tensors are on a device."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)


def test_dlpack_exports_the_memory_of_the_device(child):
    @child
    def case():
        tensor = on_device(device="cuda:1")
        assert tensor.__dlpack_device__() == (2, 1)
        assert tenon.zeros(3).__dlpack_device__() == (1, 0)
        for stream in (None, -1, 1, 2, 1 << 40):
            for version in (None, (1, 0)):
                capsule = tensor.__dlpack__(stream=stream, max_version=version)
                assert "dltensor" in repr(capsule)
        tensor.__dlpack__(dl_device=(2, 1), copy=False)


def test_dlpack_refuses_streams_that_are_none(child):
    @child
    def case():
        tensor = on_device()
        for stream in (0, -2, -(1 << 70)):
            with pytest.raises(ValueError, match=f"stream={stream}"):
                tensor.__dlpack__(stream=stream)
        with pytest.raises(TypeError):
            tensor.__dlpack__(stream="1")
        with pytest.raises(ValueError, match="memory of the CPU has none"):
            tenon.zeros(3).__dlpack__(stream=1)


def test_dlpack_copies_to_the_cpu_on_request(child):
    @child
    def case():
        tensor = on_device()
        for keywords in ({}, {"copy": True}, {"copy": None, "stream": -1}):
            capsule = tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0), **keywords)
            assert _core.from_dlpack(capsule).tolist() == back(tensor)
        with pytest.raises(BufferError, match="cuda:0.*copy=False"):
            tensor.__dlpack__(dl_device=(1, 0), copy=False)
        assert _core.from_dlpack(tensor.T.__dlpack__(dl_device=(1, 0))).tolist() == back(tensor.T)
        with pytest.raises(BufferError, match=r"dl_device=\(2, 1\): the tensor is on cuda:0"):
            tensor.__dlpack__(dl_device=(2, 1))
        tensor.__dlpack__(copy=True)  # on the same device


def test_numpy_gets_a_copy_by_dlpack(child):
    numpy = pytest.importorskip("numpy", "2.1")

    @child
    def case():
        tensor = on_device()
        assert numpy.from_dlpack(tensor, device="cpu").tolist() == back(tensor)
        with pytest.raises((BufferError, RuntimeError, ValueError)):
            numpy.from_dlpack(tensor)


def test_dlpack_import_of_memory_of_the_domain_is_not_shared_twice(child):
    @child
    def case():
        tensor = on_device()
        assert _core.from_dlpack(tensor) is tensor
        exports = [FromDevice(tensor), *(tensor.__dlpack__(max_version=version) for version in (None, (1, 0)))]
        for export in exports:
            again = _core.from_dlpack(export)
            assert (again.device, again.address, again.strategy) == ("cuda:0", tensor.address, None)
            again.share()
            assert (again.address, again.strategy) == (tensor.address, "cuda_vmm")
            assert back(again) == back(tensor)


def test_cuda_array_interface_says_where_the_memory_is(child):
    @child
    def case():
        tensor = on_device()
        assert tensor.__cuda_array_interface__ == {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (tensor.address, False),
            "strides": None,
            "version": 3,
            "stream": None,
        }
        assert tensor.T.__cuda_array_interface__["strides"] == (4, 12)
        assert tensor[1].__cuda_array_interface__["data"][0] == tensor.address + 12
        assert tensor[0:0].__cuda_array_interface__["data"] == (0, False)
        types = {"bool": "|b1", "int8": "|i1", "uint16": "<u2", "float16": "<f2", "complex128": "<c16"}
        for dtype, typestr in types.items():
            assert tenon.empty(3, dtype, device="cuda:0").__cuda_array_interface__["typestr"] == typestr


def test_only_cuda_devices_have_a_cuda_array_interface(child):
    @child
    def case():
        assert hasattr(on_device(), "__cuda_array_interface__")
        assert not hasattr(tenon.zeros(3), "__cuda_array_interface__")
        assert not hasattr(_core.private(3, "int8"), "__cuda_array_interface__")
        assert not hasattr(tenon.zeros(3, "bfloat16", device="cuda:0"), "__cuda_array_interface__")


# ---- other processes


def answer(requests, answers):
    """Reads the tensor of each request, writes to it, and sends a part of it back."""
    for request in iter(requests.get, None):
        tensor = request["tensor"]
        answers.put((tensor.device, tensor.to("cpu").tolist(), tensor[1:]))
        tensor[0].copy_from(tenon.full(3, 9.0, "float32"))
        answers.put("written")


def test_queue_sends_tensors_of_devices_by_reference(child):
    @child
    def case():
        context = mp.get_context("spawn")
        requests, answers = context.Queue(), context.Queue()
        process = context.Process(target=answer, args=(requests, answers), daemon=True)
        process.start()
        tensor = on_device()
        requests.put({"tensor": tensor})
        device, values, part = answers.get(timeout=WAIT_S)
        assert (device, values) == ("cuda:0", [VALUES[:3], VALUES[3:]])
        assert part.same_storage(tensor) and part.device == "cuda:0"
        assert answers.get(timeout=WAIT_S) == "written"
        assert back(tensor) == [[9.0] * 3, VALUES[3:]]
        requests.put(None)
        process.join(WAIT_S)
        assert process.exitcode == 0


def answer_by_name(domain):
    requests, answers = (tenon.Queue(name, domain=domain) for name in ("requests", "answers"))
    answer(requests, answers)


def test_named_queue_sends_tensors_of_devices_by_reference(child):
    @child
    def case():
        domain = f"devices-{os.getpid()}"
        requests, answers = (tenon.Queue(name, domain=domain) for name in ("requests", "answers"))
        process = mp.get_context("spawn").Process(target=answer_by_name, args=(domain,), daemon=True)
        process.start()
        tensor = tenon.asarray([VALUES[:3], VALUES[3:]], "float32", domain=tenon.domain(domain), device="cuda:0")
        requests.put({"tensor": tensor})
        device, values, part = answers.get(timeout=WAIT_S)
        assert (device, values) == ("cuda:0", [VALUES[:3], VALUES[3:]])
        assert part.same_storage(tensor)
        assert answers.get(timeout=WAIT_S) == "written"
        assert back(tensor[0]) == [9.0] * 3
        requests.put(None)
        process.join(WAIT_S)
        assert process.exitcode == 0


def test_queue_of_another_domain_gets_a_copy_on_the_same_device(child):
    @child
    def case():
        tensor, other = on_device(device="cuda:1"), _core.Domain.create()
        queue = _core.Queue.create(other)
        queue.put({"tensor": tensor})
        sent = queue.get()["tensor"]
        assert (sent.device, sent.domain) == ("cuda:1", other) and not sent.same_storage(tensor)
        assert back(sent) == back(tensor)
        del sent
        queue.close()
        other.trim()
        other.close()


def doubled(tensor):
    result = tenon.asarray([2 * value for value in tensor.to("cpu").tolist()], tensor.dtype, device=tensor.device)
    return tensor, result


def test_pool_takes_and_gives_tensors_of_devices(child):
    @child
    def case():
        tensor = on_device((6,))
        with mp.get_context("spawn").Pool(2) as pool:
            for same, result in pool.map(doubled, [tensor] * 4):
                assert same.same_storage(tensor) and result.device == "cuda:0"
                assert back(result) == [2 * value for value in VALUES]
            del same, result
            pool.close()
            pool.join()


def test_handle_and_pickle_are_of_the_same_memory(child):
    @child
    def case():
        tensor = on_device()
        for again in (tenon.domain().load_handle(tensor.to_handle()), pickle.loads(pickle.dumps(tensor))):
            assert again.device == "cuda:0" and again.same_storage(tensor)


def test_share_leaves_a_tensor_on_its_device(child):
    @child
    def case():
        tensor = on_device()
        assert tensor.share() is tensor and tenon.share(tensor) is tensor
        assert tensor.device == "cuda:0"


# ---- other threads


def synchronizes(fake):
    fake.fake_calls.restype = ctypes.c_uint64
    return fake.fake_calls(b"cuCtxSynchronize")


@pytest.mark.parametrize("how", ["delete", "leave"])
def test_other_threads_run_while_a_thread_waits_for_a_device(child, how):
    @child
    def case():
        fake = load_fake()
        tensors = [on_device()]
        with held_stream():
            give_work(tensors[0])
            before = synchronizes(fake)
            thread = threading.Thread(target=tensors.clear if how == "delete" else _domain.leave)
            thread.start()
            while synchronizes(fake) == before:  # this thread runs, and the other one waits
                time.sleep(0.001)
            assert thread.is_alive()
            fake.fake_release(None)
            thread.join()
