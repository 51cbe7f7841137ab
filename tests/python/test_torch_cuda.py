# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors of PyTorch, sent by tenon: PyTorch's own tests of that, and what it has no tests for.

PyTorch without CUDA has them over the fake driver (cuda_torch.py); docs/checklist.md says which test stands for
which of PyTorch's. More of them are in test_torch_cuda_rows.py.
"""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest
from devices import WAIT_S, child, universe

torch = pytest.importorskip("torch")

import cuda_torch  # noqa: E402
import tenon  # noqa: E402
import tenon.multiprocessing as mp  # noqa: E402
import tenon.torch  # noqa: E402
from cuda_children import (  # noqa: E402
    CUDA, Installed, begin, blocks_on_devices, finish, give_back, needs_torch, ours, queues, start, theirs, torch_child,
)
from tenon import _core  # noqa: E402

__all__ = ["child", "torch_child", "universe"]  # fixtures
pytestmark = needs_torch


# ---- the tensors themselves


def test_tensors_are_made_in_memory_of_tenon(torch_child):
    @torch_child
    def case():
        made = tenon.torch.empty(2, 3, dtype=torch.int16, device=CUDA)
        assert (made.device, made.shape, made.dtype) == (torch.device(CUDA), (2, 3), torch.int16)
        assert tenon.torch.empty((4,), device="cuda", requires_grad=True).is_leaf
        assert tenon.torch.empty(3).device.type == "cpu" and tenon.torch.is_shared(tenon.torch.empty(3))
        assert tenon.torch.empty(0, device=CUDA).numel() == 0
        assert tenon.torch.copies() == (0, 0)
        shared = tenon.torch.from_torch(made.fill_(7))
        assert shared.device == CUDA and shared.address == made.data_ptr()
        assert shared.to("cpu").tolist() == [[7] * 3] * 2
        again = tenon.torch.to_torch(shared)
        assert again.data_ptr() == made.data_ptr()
        assert again.untyped_storage()._cdata == made.untyped_storage()._cdata
        assert tenon.torch.copies() == (0, 0)


def test_a_tensor_of_pytorch_is_shared_where_it_lies(torch_child):
    @torch_child
    def case():
        tensor = torch.arange(6, dtype=torch.int32, device=CUDA).view(2, 3)
        column, before = tensor[:, 1], tensor.data_ptr()
        assert tensor.share_memory_() is tensor
        assert tensor.is_shared() and tensor.data_ptr() == before
        shared = tenon.torch.from_torch(tensor)
        assert shared.address == before and shared.strategy == "cuda_ipc" and shared.shape == (2, 3)
        tensor.add_(1)
        assert column.cpu().tolist() == [2, 5]
        assert tenon.torch.from_torch(tensor).to("cpu").tolist() == [[1, 2, 3], [4, 5, 6]]
        assert tenon.torch.copies() == (0, 0)


def test_a_tensor_need_not_be_on_the_current_device(torch_child):
    @torch_child
    def case():
        tensor = torch.empty(3, dtype=torch.uint8, device="cuda:1").fill_(4)
        assert torch.cuda.current_device() == 0
        shared = tenon.torch.from_torch(tensor)
        assert (shared.device, shared.address) == ("cuda:1", tensor.data_ptr())
        assert shared.to("cpu").tolist() == [4] * 3 and tenon.torch.copies() == (0, 0)


@pytest.mark.parametrize("take", [tenon.from_dlpack, tenon.asarray])
def test_dlpack_takes_a_tensor_of_any_device(torch_child, take):
    @torch_child
    def case():
        tensor = torch.empty(3, dtype=torch.uint8, device="cuda:1").fill_(4)
        taken = take(tensor)
        assert taken.device == "cuda:1" and taken.to("cpu").tolist() == [4] * 3
        with torch.cuda.device(1):
            assert take(theirs(2, value=5)).to("cpu").tolist() == [5] * 2
            assert tenon.torch.empty(2, device="cuda").device == torch.device("cuda:1")


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
@pytest.mark.parametrize("is_default", [True, False])
def test_dlpack_orders_the_work_of_the_current_stream(torch_child, monkeypatch, device, is_default):
    @torch_child
    def case():
        waits, wait = [], cuda_torch.Event.wait
        monkeypatch.setattr(cuda_torch.Event, "wait", lambda event, stream: waits.append(stream) or wait(event, stream))
        tensor, stream = torch.zeros(8, dtype=torch.uint8, device=device), torch.cuda.Stream(device)
        later = torch.cuda.default_stream(device) if is_default else torch.cuda.Stream(device)
        torch.cuda.synchronize(device)
        with torch.cuda.stream(stream), cuda_torch.held(stream):
            tensor.fill_(7)
            taken = tenon.from_dlpack(tensor, stream=None if is_default else later)
            assert waits == [later]
        later.synchronize()
        assert taken.to("cpu").tolist() == [7] * 8


def test_pytorch_gets_its_memory_back_when_nobody_has_it(torch_child):
    @torch_child
    def case():
        tensor = torch.zeros(8, dtype=torch.uint8, device=CUDA)
        held, number = tenon.torch.from_torch(tensor), len(cuda_torch.state.lent)
        del tensor
        give_back()
        assert len(cuda_torch.state.lent) == number
        del held
        give_back()
        assert len(cuda_torch.state.lent) == number - 1


def test_memory_that_cannot_be_shared_is_copied_once_and_counted(torch_child):
    @torch_child
    def case():
        cuda_torch.use_pieces()
        tensor = torch.arange(6, dtype=torch.int32, device=CUDA).view(2, 3)
        column, before = tensor[:, 1], tensor.data_ptr()
        with pytest.warns(RuntimeWarning, match="copied into tenon's memory"):
            assert tensor.share_memory_() is tensor
        assert tenon.torch.copies() == (1, 24)
        assert tensor.data_ptr() != before and tensor.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
        tensor.add_(1)
        assert column.cpu().tolist() == [2, 5]  # a view of the storage has moved with it
        assert tensor.is_shared() and torch.zeros(2, device=CUDA).is_shared()
        tensor.share_memory_()
        assert tenon.torch.from_torch(tensor).to("cpu").tolist() == [[1, 2, 3], [4, 5, 6]]
        assert tenon.torch.from_torch(tensor).strategy == "cuda_vmm"
        assert tenon.torch.copies() == (1, 24)


@pytest.mark.parametrize("is_copied", [False, True])
def test_sharing_is_in_the_order_of_the_current_stream(torch_child, is_copied):
    @torch_child
    def case():
        if is_copied:
            cuda_torch.use_pieces()
        tensor, stream = torch.zeros(8, dtype=torch.uint8, device=CUDA), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), cuda_torch.held(stream):
            tensor.fill_(7)
            tensor.share_memory_()  # it returns, although nothing was written yet
            shared = tenon.torch.from_torch(tensor)
            with pytest.raises(tenon.TimedOut):
                shared.sync(0)
        shared.sync(WAIT_S)
        assert shared.to("cpu").tolist() == [7] * 8
        assert tenon.torch.copies().count == is_copied


def test_a_module_is_shared_on_its_device(torch_child):
    @torch_child
    def case():
        module = torch.nn.Linear(3, 2).to(CUDA)
        weight, address = module.weight, module.weight.data_ptr()
        module.share_memory()
        assert module.weight is weight and weight.data_ptr() == address
        assert tenon.torch.from_torch(weight).device == CUDA
        assert tenon.torch.copies() == (0, 0)


# ---- rows of PyTorch's own tests


def fill(requests, answers):
    for tensor, column in iter(requests.get, None):
        tensor.fill_(5)
        column.fill_(6)
        answers.put(tensor)
        answers.put(tensor)
        answers.put((tensor.device.type, tensor.untyped_storage()._cdata == column.untyped_storage()._cdata))


@pytest.mark.parametrize("how", ["tenon's", "torch's", "torch's in pieces", "torch's in private pieces"])
def test_cuda_simple(torch_child, how):
    @torch_child
    def case():
        if "pieces" in how:
            cuda_torch.use_pieces(have_descriptors="private" not in how)
        requests, answers = queues(2)
        process = start(fill, requests, answers)
        for _ in range(5):
            tensor = ours(4, 4) if how == "tenon's" else theirs(4, 4)
            requests.put((tensor, tensor[:, 1]))
            first, second = answers.get(timeout=WAIT_S), answers.get(timeout=WAIT_S)
            assert answers.get(timeout=WAIT_S) == ("cuda", True)
            assert tensor.cpu().tolist() == [[5, 6, 5, 5]] * 4  # one memory
            assert first.data_ptr() == second.data_ptr() == tensor.data_ptr()
            assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
        requests.put(None)
        finish(process)
        assert tenon.torch.copies().count == (5 if "private" in how else 0)


def send_and_delete(queue, ready, make=ours):
    for number in range(5):
        tensor = make(8, value=number)
        queue.put(tensor)
        del tensor
    ready.wait(WAIT_S)


def test_cuda_memory_allocation(torch_child):
    @torch_child
    def case():
        (queue,), ready = queues(1), mp.get_context("spawn").Event()
        process = start(send_and_delete, queue, ready)
        received = [queue.get(timeout=WAIT_S) for _ in range(5)]
        assert [tensor.cpu().tolist() for tensor in received] == [[number] * 8 for number in range(5)]
        ready.set()
        finish(process)


@pytest.mark.parametrize("make", [ours, theirs])
def test_tensors_outlive_their_producer(torch_child, make):
    @torch_child
    def case():
        (queue,), ready = queues(1), mp.get_context("spawn").Event()
        ready.set()
        process = start(send_and_delete, queue, ready, make)
        finish(process)
        received = [queue.get(timeout=WAIT_S) for _ in range(5)]
        assert [tensor.cpu().tolist() for tensor in received] == [[number] * 8 for number in range(5)]


def drop(queue, count):
    for _ in range(count):
        queue.get(timeout=WAIT_S)


def test_cuda_ipc_deadlock(torch_child):
    @torch_child
    def case():
        queue = mp.get_context("spawn").Queue(1)
        process = start(drop, queue, 50)
        for number in range(50):
            queue.put({"weight": ours(4, value=number), "bias": ours(1)})
        finish(process)


def pass_on(source, target):
    for tensor in iter(source.get, None):
        target.put(tensor)
    target.put(None)


def test_cuda_send_many(torch_child):
    @torch_child
    def case():
        first, second, third = queues(3)
        processes = [start(pass_on, first, second), start(pass_on, second, third)]
        count, total = 300, 0
        feeder = threading.Thread(target=lambda: [first.put(ours(5, value=1)) for _ in range(count)] + [first.put(None)])
        feeder.start()
        for tensor in iter(lambda: third.get(timeout=WAIT_S), None):
            total += int(tensor.cpu().sum())
            del tensor
        feeder.join()
        assert total == 5 * count
        for process in processes:
            finish(process)


def look(requests, answers):
    for tensors in iter(requests.get, None):
        answers.put([(str(tensor.device), tensor.cpu().tolist(), tensor.stride()) for tensor in tensors])


def seen_by_a_child(tensors):
    requests, answers = queues(2)
    process = start(look, requests, answers)
    requests.put(tensors)
    seen = answers.get(timeout=WAIT_S)
    requests.put(None)
    finish(process)
    return seen


def test_cuda_small_tensors(torch_child):
    @torch_child
    def case():
        tensors = [
            tenon.torch.empty(3, dtype=torch.uint8, device=f"cuda:{number % 2}").fill_(number) for number in range(6)
        ]
        expected = [(f"cuda:{number % 2}", [number] * 3, (1,)) for number in range(6)]
        assert seen_by_a_child(tensors) == expected


def test_devices_are_told_by_uuid_and_not_by_number(torch_child):
    @torch_child
    def case():
        requests, answers = queues(2)
        tensor = tenon.torch.empty(3, dtype=torch.uint8, device="cuda:1").fill_(4)
        os.environ["TENON_FAKECUDA_VISIBLE"] = "1,0"  # the child numbers devices the other way
        process = start(look, requests, answers)
        requests.put([tensor])
        assert answers.get(timeout=WAIT_S) == [("cuda:0", [4] * 3, (1,))]
        requests.put(None)
        finish(process)
        del os.environ["TENON_FAKECUDA_VISIBLE"]


def test_empty_tensor_sharing_cuda(torch_child):
    @torch_child
    def case():
        tensors = [torch.empty(0, device=CUDA), torch.empty(0, 3, dtype=torch.int64, device=CUDA), ours(3)[:0]]
        tensors.append(torch.empty(0, device="cuda:1"))
        seen = [device for device, _, _ in seen_by_a_child(tensors)]
        assert seen == [CUDA, CUDA, CUDA, "cuda:1"]


def describe(requests, answers):
    for tensor in iter(requests.get, None):
        answers.put((type(tensor).__name__, tensor.requires_grad, tensor.grad is None, tensor.is_leaf))
        tensor.data.fill_(9)
        answers.put("written")


@pytest.mark.parametrize("kind", ["variable", "leaf", "parameter", "integer"])
def test_variables_and_parameters_on_cuda(torch_child, kind):
    @torch_child
    def case():
        requests, answers = queues(2)
        process = start(describe, requests, answers)
        dtype = torch.int32 if kind == "integer" else torch.float32
        tensor = ours(2, 2, dtype=dtype, value=1)
        if kind in ("leaf", "parameter"):
            tensor = torch.nn.Parameter(tensor) if kind == "parameter" else tensor.requires_grad_()
            tensor.grad = torch.ones(2, 2, device=CUDA)
        elif kind == "integer":
            tensor = torch.nn.Parameter(tensor, requires_grad=False)
        requests.put(tensor)
        name = "Parameter" if kind in ("parameter", "integer") else "Tensor"
        assert answers.get(timeout=WAIT_S) == (name, kind in ("leaf", "parameter"), True, True)
        assert answers.get(timeout=WAIT_S) == "written"
        assert tensor.detach().cpu().tolist() == [[9, 9], [9, 9]]
        requests.put(None)
        finish(process)


def test_non_leaf_of_cuda_is_refused_in_the_sender(torch_child):
    @torch_child
    def case():
        tensor = ours(2, dtype=torch.float32).requires_grad_()
        with pytest.raises(RuntimeError, match="not a leaf"):
            queues(1)[0].put(tensor * 2)


def test_mixed_types_cuda_sharing(torch_child):
    @torch_child
    def case():
        for _ in range(3):
            tensors = [ours(4, dtype=torch.float32, value=1), ours(4, value=2), ours(2, 2, dtype=torch.int64, value=3)]
            assert [values for _, values, _ in seen_by_a_child(tensors)] == [[1.0] * 4, [2] * 4, [[3, 3], [3, 3]]]


def test_views_keep_their_strides_and_their_storage(torch_child):
    @torch_child
    def case():
        whole = torch.arange(12, dtype=torch.int16, device=CUDA).view(3, 4)
        tensors = [whole, whole.t(), whole[1:, ::2], whole[2]]
        seen = seen_by_a_child(tensors)
        assert seen == [(CUDA, tensor.cpu().tolist(), tensor.stride()) for tensor in tensors]
        assert tenon.torch.copies().count == 0


def test_complex_views_keep_their_bits(torch_child):
    @torch_child
    def case():
        tensor = torch.tensor([1 + 2j, 3 - 1j], device=CUDA)
        assert seen_by_a_child([tensor.conj()])[0][1] == [1 - 2j, 3 + 1j]


def multiply(requests, answers):
    """Works on a stream of its own, with no event."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = requests.get(timeout=WAIT_S)
        copied = ours(8)
        copied.copy_(tensor)
        answers.put("given")
        answers.put(copied)
        requests.get(timeout=WAIT_S)


def test_event(torch_child):
    """The child's stream does its work after the parent's, which has not begun when the child is given the tensor."""

    @torch_child
    def case():
        requests, answers = queues(2)
        process = start(multiply, requests, answers)
        tensor, stream = ours(8), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), cuda_torch.held(stream):
            tensor.fill_(7)
            requests.put(tensor)
            assert answers.get(timeout=WAIT_S) == "given"  # nobody has waited
        copied = answers.get(timeout=WAIT_S)
        assert copied.cpu().tolist() == [7] * 8
        requests.put(None)
        finish(process)


def copy_after(_, event, requests, answers):
    """The tensor came before the parent gave its device the work that the event stands for."""
    tensor, stream = requests.get(timeout=WAIT_S), torch.cuda.Stream()
    answers.put("opened")
    assert requests.get(timeout=WAIT_S) == "recorded"
    with torch.cuda.stream(stream):
        event.wait(stream)
        copied = ours(8)
        copied.copy_(tensor)
        answers.put((event.device, event.query()))
    event.synchronize()
    answers.put(copied)
    assert requests.get(timeout=WAIT_S) is None


def test_an_event_is_an_argument_of_a_process(torch_child):
    @torch_child
    def case():
        requests, answers = queues(2)
        event, stream, tensor = torch.cuda.Event(interprocess=True), torch.cuda.Stream(), ours(8)
        process = start(copy_after, Installed(), event, requests, answers)
        requests.put(tensor)
        assert answers.get(timeout=WAIT_S) == "opened"
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), cuda_torch.held(stream):
            tensor.fill_(7)
            event.record()
            requests.put("recorded")
            assert answers.get(timeout=WAIT_S) == (torch.device(CUDA), False)
        assert answers.get(timeout=WAIT_S).cpu().tolist() == [7] * 8
        requests.put(None)
        finish(process)


def send_event(how, device, requests, answers):
    event, stream = torch.cuda.Event(interprocess=True), torch.cuda.Stream(device)
    with cuda_torch.held(stream):
        event.record(stream)
        answers.put(event if how == "event" else (event.ipc_handle(), device))
        assert requests.get(timeout=WAIT_S) == "seen"
    assert requests.get(timeout=WAIT_S) is None  # an event must not end before those who have it


@pytest.mark.parametrize("how", ["event", "handle"])
@pytest.mark.parametrize("device", [0, 1])
def test_an_event_goes_through_a_queue(torch_child, how, device):
    @torch_child
    def case():
        requests, answers = queues(2)
        process = start(send_event, how, device, requests, answers)
        got = answers.get(timeout=WAIT_S)
        event = got if how == "event" else torch.cuda.Event.from_ipc_handle(got[1], got[0])
        assert isinstance(event, torch.cuda.Event) and event.device == torch.device("cuda", device)
        assert not event.query()
        requests.put("seen")
        event.synchronize()
        assert event.query()
        requests.put(None)
        finish(process)


def test_an_event_of_one_process_is_refused(torch_child):
    @torch_child
    def case():
        queue = mp.get_context("spawn").SimpleQueue()
        with pytest.raises(RuntimeError, match="CUDA error"):
            queue.put(torch.cuda.Event())
        queue.put("next")
        assert queue.get() == "next"


def test_a_storage_that_is_there_already_is_waited_for_again(torch_child):
    """PyTorch waits only when a storage is opened, and not for a later message of the same one."""

    @torch_child
    def case():
        (queue,), tensor, stream = queues(1), ours(8, value=1), torch.cuda.Stream()
        queue.put(tensor)
        first = queue.get(timeout=WAIT_S)
        torch.cuda.synchronize()
        with cuda_torch.held(stream):
            with torch.cuda.stream(stream):
                tensor.fill_(7)
                queue.put(tensor)
            other, copied = torch.cuda.Stream(), ours(8)
            with torch.cuda.stream(other):
                second = queue.get(timeout=WAIT_S)
                copied.copy_(second)
        torch.cuda.synchronize()
        assert copied.cpu().tolist() == [7] * 8
        assert second.data_ptr() == first.data_ptr()


def work(tensor):
    tensor.fill_(3)
    return tensor, tenon.torch.empty(2, dtype=torch.uint8, device=CUDA).fill_(4)


def test_pools_take_and_give_cuda_tensors(torch_child):
    @torch_child
    def case():
        tensor = ours(4)
        with mp.get_context("spawn").Pool(2, initializer=begin) as pool:
            for same, made in pool.map(work, [tensor] * 3):
                assert same.data_ptr() == tensor.data_ptr() and made.cpu().tolist() == [4, 4]
            assert tensor.cpu().tolist() == [3] * 4
            pool.close()
            pool.join()


def test_cuda_bad_call_of_a_forked_child_is_an_error(torch_child):
    @torch_child
    def case():
        tensor = ours(4)
        context = mp.get_context("fork")
        errors = context.SimpleQueue()

        def forked():
            for call in (lambda: tenon.torch.empty(3, device=CUDA), lambda: tenon.torch.from_torch(tensor)):
                try:
                    call()
                    errors.put("no error")
                except tenon.Forked as error:
                    errors.put(str(error))

        process = context.Process(target=forked)
        process.start()
        texts = errors.get(), errors.get()
        process.join(WAIT_S)
        assert all("fork" in text for text in texts), texts


# ---- what PyTorch has no tests for


def hold_and_die(queue, ready):
    received = queue.get(timeout=WAIT_S)
    ready.set()
    os.kill(os.getpid(), signal.SIGKILL)
    del received


def test_a_killed_consumer_leaves_no_memory_behind(torch_child):
    @torch_child
    def case():
        (queue,), ready = queues(1), mp.get_context("spawn").Event()
        process = start(hold_and_die, queue, ready)
        tensor = ours(100)
        queue.put(tensor)
        assert ready.wait(WAIT_S)
        process.join(WAIT_S)
        del tensor
        gc.collect()
        tenon.domain().reap()
        assert blocks_on_devices() == []


def give_work_and_die(queue, make):
    tensor, stream = make(8), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), cuda_torch.held(stream):
        tensor.fill_(7)
        queue.put(tensor)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_killed_producer_is_named_to_its_consumer(torch_child, make):
    @torch_child
    def case():
        queue = mp.get_context("spawn").SimpleQueue()
        process = start(give_work_and_die, queue, make)
        process.join(WAIT_S)
        with pytest.raises(tenon.PeerDied):
            queue.get()


def test_one_tensor_for_two_consumers_stays_until_both_are_done(torch_child):
    @torch_child
    def case():
        first, second = queues(2)
        tensor = ours(8, value=5)
        for queue in (first, second):
            queue.put(tensor)
        del tensor
        assert first.get(timeout=WAIT_S).cpu().tolist() == [5] * 8
        gc.collect()
        ours(8, value=1)
        assert second.get(timeout=WAIT_S).cpu().tolist() == [5] * 8


def test_only_the_tensor_is_shared_and_not_its_neighbours(torch_child):
    @torch_child
    def case():
        one, other = ours(4), ours(4)
        assert tenon.torch.from_torch(one).storage_bytes == 4
        assert not tenon.torch.from_torch(one).same_storage(tenon.torch.from_torch(other))


# ---- an allocator of PyTorch


def test_allocator_of_pytorch_makes_tensors_that_need_no_copy(torch_child):
    @torch_child
    def case():
        torch.cuda.memory.change_current_allocator(tenon.torch.allocator())
        tensor = torch.full((4, 4), 3, dtype=torch.uint8, device=CUDA)
        assert _core.torch_memory_count() == 1
        assert seen_by_a_child([tensor]) == [(CUDA, [[3] * 4] * 4, (4, 1))]
        assert tenon.torch.copies() == (0, 0)
        (queue,) = queues(1)
        queue.put(tensor)
        tensor.record_stream(torch.cuda.Stream())
        del tensor
        gc.collect()
        assert _core.torch_memory_count() == 0
        again = torch.zeros(4, 4, dtype=torch.uint8, device=CUDA)  # not the memory that the message has
        received = queue.get(timeout=WAIT_S)
        assert received.cpu().tolist() == [[3] * 4] * 4
        assert again.data_ptr() != received.data_ptr()
        cuda_torch.state.allocate = None


THROWS = """
import ctypes, resource, types
import tenon.torch, torch
from tenon import _core
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
domain = _core.Domain.create()
torch.cuda.memory.CUDAPluggableAllocator = lambda *names: types.SimpleNamespace(allocator=lambda: None)
tenon.torch.allocator(domain)
domain.close()
allocate = ctypes.CDLL(_core.__file__).tenon_torch_alloc
allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
print(allocate(0, 0, None), flush=True)
allocate(64, 1, None)
print("not reached")
"""


def test_allocator_throws_since_pytorch_takes_null_for_memory():
    """PyTorch makes an exception of Python of it. Here nobody catches it, so the process ends and says what it is."""
    ended = subprocess.run([sys.executable, "-c", THROWS], capture_output=True, text=True, timeout=WAIT_S)
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "None\n"), ended.stderr
    assert "c10::Error" in ended.stderr
    assert "CUDA out of memory: tenon has no 64 bytes on cuda:1: the domain of the allocator is closed" in ended.stderr


def test_functions_of_the_allocator_give_and_take_memory(torch_child):
    @torch_child
    def case():
        _core.set_torch_memory(tenon.domain(), 0)
        library = ctypes.CDLL(_core.__file__)
        allocate, free = library.tenon_torch_alloc, library.tenon_torch_free
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        pieces = [(allocate(size, size % 2, None), size) for size in (1, 4096, 5 << 20)]
        assert all(address for address, _ in pieces) and _core.torch_memory_count() == 3
        for address, size in pieces:
            found = tenon.domain().find(address, size)
            assert (found.address, found.nbytes, found.device) == (address, size, f"cuda:{size % 2}")
            del found
        for size, device in ((-1, 0), (0, 0), (64, 9), (1 << 50, 0)):
            assert allocate(size, device, None) is None
        free(0x1000, 1, 0, None)  # none of its own
        for address, size in pieces:
            free(address, size, size % 2, None)
        assert _core.torch_memory_count() == 0
        _core.Domain.create().close()
        other = _core.Domain.create()
        _core.set_torch_memory(other, 0)
        other.close()
        assert allocate(64, 0, None) is None
