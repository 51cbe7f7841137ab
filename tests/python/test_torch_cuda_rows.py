# SPDX-License-Identifier: Apache-2.0
"""More rows of PyTorch's own tests for CUDA tensors, and of what PyTorch does not test.

docs/checklist.md says which test stands for which. Many tensors here are cut from one block of the driver, as those of
PyTorch's caching allocator are.
"""

import contextlib
import ctypes
import gc
import os
import pathlib
import select
import signal
import threading

import pytest
from devices import WAIT_S, child, load_fake, universe

torch = pytest.importorskip("torch")

import cuda_torch  # noqa: E402
import tenon  # noqa: E402
import tenon.multiprocessing as mp  # noqa: E402
import tenon.torch  # noqa: E402
from cuda_children import (  # noqa: E402
    CUDA, Installed, blocks_on_devices, finish, give_back, needs_torch, ours, queues, start, theirs, torch_child,
)
from tenon import _core  # noqa: E402

__all__ = ["child", "torch_child", "universe"]  # fixtures
pytestmark = needs_torch


def opens():
    """How often processes have opened memory of others by a handle."""
    fake = load_fake()
    fake.fake_opens.restype = ctypes.c_uint64
    return fake.fake_opens()


def storage_of(tensor):
    return tensor.untyped_storage()._cdata


# ---- tensors of one block


def look(requests, answers):
    for tensors in iter(requests.get, None):
        answers.put(
            [(str(one.device), one.dtype, one.cpu().tolist(), one.untyped_storage().nbytes()) for one in tensors]
        )


def test_small_tensors_of_one_block_arrive_by_themselves(torch_child):
    @torch_child
    def case():
        cuda_torch.use_blocks()
        tensors = [torch.empty(3, dtype=torch.uint8, device=f"cuda:{n % 2}").fill_(n) for n in range(6)]
        for tensor in tensors[2:]:
            first = tensors[tensor.device.index]
            assert 0 < tensor.data_ptr() - first.data_ptr() < cuda_torch.BLOCK_BYTES
        requests, answers = queues(2)
        process, before = start(look, requests, answers), opens()
        requests.put(tensors)
        seen = answers.get(timeout=WAIT_S)
        assert seen == [(f"cuda:{n % 2}", torch.uint8, [n] * 3, 3) for n in range(6)]
        assert opens() == before + 2 and tenon.torch.copies() == (0, 0)
        requests.put(None)
        finish(process)


def test_types_of_one_block_arrive_round_after_round(torch_child):
    @torch_child
    def case():
        cuda_torch.use_blocks()
        requests, answers = queues(2)
        process, before, addresses = start(look, requests, answers), opens(), set()
        for n in range(10):
            tensors = [theirs(4, dtype=torch.float32, value=n + 0.5), theirs(8, value=n)]
            addresses |= {tensor.data_ptr() for tensor in tensors}
            requests.put(tensors)
            seen = answers.get(timeout=WAIT_S)
            assert seen == [(CUDA, torch.float32, [n + 0.5] * 4, 16), (CUDA, torch.uint8, [n] * 8, 8)]
            del tensors
            give_back()
        assert len(addresses) < 20  # memory was used again
        assert opens() == before + 1
        requests.put(None)
        finish(process)


def put_and_delete(how, queue, answers, released):
    """What PyTorch frees at once stays while a consumer has it, and then goes back to PyTorch."""
    if how == "block":
        cuda_torch.use_blocks()
    else:
        cuda_torch.use_pieces(have_descriptors=True)
    addresses = []
    for n in range(5):
        tensor = theirs(8, value=n)
        addresses.append(tensor.data_ptr())
        queue.put(tensor)
        del tensor
    assert len(set(addresses)) == 5
    assert released.get(timeout=WAIT_S) == "received"
    give_back()
    answers.put(len(cuda_torch.state.lent))
    assert released.get(timeout=WAIT_S) == "released"
    give_back()
    is_used_again = theirs(8).data_ptr() in addresses
    answers.put((len(cuda_torch.state.lent), is_used_again))


@pytest.mark.parametrize("how", ["block", "pieces"])
def test_memory_goes_back_to_pytorch_once_it_is_released(torch_child, how):
    @torch_child
    def case():
        queue, answers, released = queues(3)
        process = start(put_and_delete, how, queue, answers, released)
        assert not cuda_torch.state.contexts  # nothing was allocated here before
        received = [queue.get(timeout=WAIT_S) for _ in range(5)]
        released.put("received")
        assert answers.get(timeout=WAIT_S) == 5
        other = torch.empty(8, dtype=torch.uint8, device="cuda:1")
        for n, tensor in enumerate(received):
            assert tensor.cpu().tolist() == [n] * 8
            assert other.copy_(tensor).cpu().tolist() == [n] * 8
        del received, tensor
        gc.collect()
        give_back()
        released.put("released")
        assert answers.get(timeout=WAIT_S) == (0, how == "block")
        finish(process)


def drop(queue, count):
    for _ in range(count):
        queue.get(timeout=WAIT_S)


def test_state_dicts_of_blocks_go_through_a_queue_of_one(torch_child):
    """And the producer's memory does not grow, although it calls nothing but put()."""

    @torch_child
    def case():
        cuda_torch.use_blocks()
        queue, count, size = mp.get_context("spawn").Queue(1), 100, 256 << 10
        process = start(drop, queue, count)
        for n in range(count):
            queue.put({"weight": theirs(size, value=n), "bias": theirs(1)})
        finish(process)
        assert cuda_torch.state.allocated < count * size / cuda_torch.BLOCK_BYTES / 2


def pass_on(source, target):
    for tensor in iter(source.get, None):
        target.put(tensor)
        del tensor
    target.put(None)


def test_tensors_of_a_block_are_passed_on_by_processes(torch_child):
    @torch_child
    def case():
        cuda_torch.use_blocks()
        first, second, third = queues(3)
        processes = [start(pass_on, first, second), start(pass_on, second, third)]
        before = opens()
        for n in range(100):
            first.put(theirs(5, value=n))
        first.put(None)
        for n, tensor in enumerate(iter(lambda: third.get(timeout=WAIT_S), None)):
            assert tensor.cpu().tolist() == [n] * 5
        assert n == 99 and opens() == before + 2
        del tensor
        for process in processes:
            finish(process)


# ---- the rest of PyTorch's rows


def get_in_a_fork(requests, answers):
    try:
        answers.put(requests.get(timeout=WAIT_S))
    except tenon.Forked as error:
        answers.put(error)


def test_a_forked_child_sends_back_why_it_cannot_receive(torch_child):
    @torch_child
    def case():
        context, tensor = mp.get_context("fork"), ours(4)
        requests, answers = context.Queue(), context.Queue()
        process = context.Process(target=get_in_a_fork, args=(requests, answers))
        process.start()
        requests.put(tensor)
        error = answers.get(timeout=WAIT_S)
        assert isinstance(error, tenon.Forked) and "fork" in str(error)
        finish(process)


def look_at_storages(requests, answers):
    storage, typed, chunk = requests.get(timeout=WAIT_S)
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    answers.put((type(storage).__name__, type(typed).__name__, typed.dtype, chunk.storage_offset()))
    answers.put((whole.cpu().tolist(), chunk.cpu().tolist()))
    answers.put(storage._cdata == typed.untyped()._cdata == storage_of(chunk))


def test_storages_and_chunks_of_them_are_one_memory(torch_child):
    @torch_child
    def case():
        cuda_torch.use_blocks()
        requests, answers = queues(2)
        process = start(look_at_storages, requests, answers)
        tensor = torch.arange(12, dtype=torch.uint8, device=CUDA)
        requests.put((tensor.untyped_storage(), tensor.storage(), tensor.chunk(3)[1]))
        assert answers.get(timeout=WAIT_S) == ("UntypedStorage", "TypedStorage", torch.uint8, 4)
        assert answers.get(timeout=WAIT_S) == (list(range(12)), [4, 5, 6, 7])
        assert answers.get(timeout=WAIT_S) is True
        finish(process)


def record_what_it_is_given(requests, answers):
    event, tensor = requests.get(timeout=WAIT_S)
    stream = torch.cuda.Stream()
    with cuda_torch.held(stream):
        with torch.cuda.stream(stream):
            tensor.fill_(7)
            event.record()
        answers.put("recorded")
        assert requests.get(timeout=WAIT_S) == "waits"
    assert requests.get(timeout=WAIT_S) is None


def test_the_maker_of_an_event_waits_for_its_receiver(torch_child):
    """The event was not recorded before it was sent."""

    @torch_child
    def case():
        requests, answers = queues(2)
        process = start(record_what_it_is_given, requests, answers)
        event, tensor, stream = torch.cuda.Event(interprocess=True), ours(8), torch.cuda.Stream()
        requests.put((event, tensor))
        assert event.query()
        assert answers.get(timeout=WAIT_S) == "recorded"
        assert not event.query()
        with torch.cuda.stream(stream):
            event.wait()
            copied = ours(8)
            copied.copy_(tensor)
        requests.put("waits")
        event.synchronize()
        assert event.query()
        stream.synchronize()
        assert copied.cpu().tolist() == [7] * 8
        requests.put(None)
        finish(process)


def write_and_look(requests, answers):
    for tensor in iter(requests.get, None):
        answers.put((type(tensor).__name__, tensor.requires_grad, tensor.grad is None, not tensor._backward_hooks))
        tensor.data.fill_(9)
        answers.put("written")
        assert requests.get(timeout=WAIT_S) == "written"
        answers.put(tensor.detach().cpu().tolist())


def test_later_writes_on_cuda_are_seen_both_ways(torch_child):
    @torch_child
    def case():
        cuda_torch.use_blocks()
        requests, answers = queues(2)
        process = start(write_and_look, requests, answers)
        for make in (torch.Tensor.detach, torch.Tensor.requires_grad_, torch.nn.Parameter):
            tensor = make(theirs(2, dtype=torch.float32, value=1))
            if tensor.requires_grad:
                tensor.grad = torch.ones(2, device=CUDA)
                tensor.register_hook(lambda grad: grad)
            requests.put(tensor)
            name = "Parameter" if make is torch.nn.Parameter else "Tensor"
            assert answers.get(timeout=WAIT_S) == (name, tensor.requires_grad, True, True)
            assert answers.get(timeout=WAIT_S) == "written"
            assert tensor.detach().cpu().tolist() == [9, 9]
            tensor.data.fill_(4)
            torch.cuda.synchronize()
            requests.put("written")
            assert answers.get(timeout=WAIT_S) == [4, 4]
        requests.put(None)
        finish(process)


def take_parameter(_, parameter, answers):
    mp.current_process()._args = ()  # they would keep the memory until the driver has ended
    answers.put((type(parameter).__name__, parameter.dtype, parameter.requires_grad, parameter.cpu().tolist()))


@pytest.mark.parametrize("make", [ours, theirs])
def test_an_integer_parameter_is_an_argument_of_a_process(torch_child, make):
    @torch_child
    def case():
        (answers,) = queues(1)
        parameter = torch.nn.Parameter(make(3, dtype=torch.int32, value=5), requires_grad=False)
        process = start(take_parameter, Installed(), parameter, answers)
        assert answers.get(timeout=WAIT_S) == ("Parameter", torch.int32, False, [5] * 3)
        finish(process)


# ---- what PyTorch does not test


def kill(process):
    process.join(WAIT_S)
    assert process.exitcode == -signal.SIGKILL


def pass_on_and_die(source, target, written):
    tensor = source.get(timeout=WAIT_S)
    tensor.add_(1)
    target.put(tensor)
    torch.cuda.synchronize()
    written.set()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("make", [ours, theirs])
def test_what_a_killed_process_has_passed_on_is_whole(torch_child, make):
    @torch_child
    def case():
        source, target = queues(2)
        process = start(pass_on_and_die, source, target, mp.get_context("spawn").Event())
        tensor = make(8, value=5)
        source.put(tensor)
        kill(process)
        received = target.get(timeout=WAIT_S)
        assert received.cpu().tolist() == [6] * 8
        assert storage_of(received) == storage_of(tensor)
        source.put(tensor)
        assert storage_of(source.get(timeout=WAIT_S)) == storage_of(tensor)


def kill_tenond():
    for pid in [seat["pid"] for seat in tenon.inspect().seats if seat["is_manager"]]:
        watched = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert select.select([watched], [], [], WAIT_S)[0]
        os.close(watched)


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("make", [ours, theirs])
def test_tenond_may_be_killed_at_each_step_of_a_message(torch_child, make, step):
    @torch_child
    def case():
        source, target = queues(2)
        process = start(pass_on, source, target)
        tensor = make(8, value=5)
        if step == 0:
            kill_tenond()
        source.put(tensor)
        if step == 1:
            kill_tenond()
        received = target.get(timeout=WAIT_S)
        if step == 2:
            kill_tenond()
        received.fill_(6)
        source.put(received)
        assert storage_of(target.get(timeout=WAIT_S)) == storage_of(tensor)
        assert tensor.cpu().tolist() == [6] * 8
        source.put(None)
        finish(process)
        tenon.domain().reap()  # there may be no other tenond yet


@pytest.mark.parametrize("make", [ours, theirs])
def test_one_tensor_that_is_sent_often_is_opened_once(torch_child, make):
    @torch_child
    def case():
        source, target = queues(2)
        process, tensor = start(pass_on, source, target), make(100)
        source.put(tensor)
        storage = storage_of(target.get(timeout=WAIT_S))
        before = opens()
        for _ in range(100):
            source.put(tensor)
        assert len(blocks_on_devices()) == 1
        arrived = [target.get(timeout=WAIT_S) for _ in range(100)]
        assert {storage_of(one) for one in arrived} == {storage, storage_of(tensor)}
        assert opens() == before
        source.put(None)
        finish(process)


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_message_that_is_loaded_twice_is_one_memory(torch_child, make):
    @torch_child
    def case():
        queue, tensor = _core.Queue.create(tenon.domain(), policy=2), make(4)
        queue.put([tensor])
        message = queue.pop()
        one, other = message.load()[0], message.load()[0]
        message.give_back()
        again = queue.pop()
        third = again.load()[0]
        again.ack()
        one.fill_(5)
        assert other.cpu().tolist() == third.cpu().tolist() == [5] * 4
        assert storage_of(one) == storage_of(other) == storage_of(third) == storage_of(tensor)
        queue.close()


@pytest.mark.parametrize("make", [ours, theirs])
def test_an_unread_message_gives_its_memory_back(torch_child, make):
    @torch_child
    def case():
        queue = mp.get_context("spawn").SimpleQueue()
        queue.put([make(1 << 20), make(10)])
        give_back()
        assert len(blocks_on_devices()) == 2
        queue.close()
        del queue
        gc.collect()
        give_back()
        assert blocks_on_devices() == [] and not cuda_torch.state.lent


@pytest.mark.parametrize("how", ["block", "private pieces"])
def test_threads_that_send_one_tensor_share_it_once(torch_child, how):
    @torch_child
    def case():
        if how == "block":
            cuda_torch.use_blocks()
        else:
            cuda_torch.use_pieces()
        for _ in range(10):
            tensor, queue, barrier = theirs(64, value=1), mp.get_context("spawn").SimpleQueue(), threading.Barrier(6)

            def put(i, tensor=tensor, queue=queue, barrier=barrier):
                barrier.wait()
                queue.put(tensor[i:])

            threads = [threading.Thread(target=put, args=(i,)) for i in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for _ in threads:
                received = queue.get()
                assert storage_of(received) == storage_of(tensor)
                received[-1:].add_(1)
            assert tensor.cpu().tolist() == [1] * 63 + [7]
            queue.close()
            del put, threads, thread
        assert tenon.torch.copies().count == (10 if how == "private pieces" else 0)


def anonymous_kib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1])


def put_many(queue, count):
    for n in range(count):
        queue.put(ours(100, value=n % 256))


def test_a_consumer_of_many_cuda_tensors_does_not_grow(torch_child):
    @torch_child
    def case():
        count, queue = 3000, mp.get_context("spawn").Queue()
        process = start(put_many, queue, count)
        for n in range(count):
            assert queue.get(timeout=WAIT_S)[99].item() == n % 256
            if n == count // 10:
                begun = anonymous_kib()
        assert anonymous_kib() - begun < 2048
        finish(process)
        give_back()
        assert blocks_on_devices() == []


def test_negative_and_conjugate_views_arrive_as_views(torch_child):
    @torch_child
    def case():
        requests, answers = queues(2)
        process = start(look, requests, answers)
        tensor = torch.tensor([1 + 2j, 3 - 1j], device=CUDA)
        views = [tensor, tensor.conj(), tensor.conj().imag]
        assert views[1].is_conj() and views[2].is_neg()
        requests.put(views)
        assert [values for _, _, values, _ in answers.get(timeout=WAIT_S)] == [
            [1 + 2j, 3 - 1j], [1 - 2j, 3 + 1j], [-2, 1],
        ]
        requests.put(None)
        finish(process)


def answer_places(requests, answers):
    for views in iter(requests.get, None):
        for view in views:
            answers.put((view.cpu().tolist(), view.storage_offset(), view.untyped_storage().nbytes(), storage_of(view)))


@pytest.mark.parametrize("make", [ours, theirs])
def test_views_of_a_huge_storage_take_it_along_once(torch_child, make):
    @torch_child
    def case():
        requests, answers = queues(2)
        process, size = start(answer_places, requests, answers), 24 << 20
        tensor, before = make(size, value=1), opens()
        views = [tensor[-3:], tensor[size // 2 :: size // 4]]
        views[0].fill_(2)
        torch.cuda.synchronize()
        requests.put(views)
        first, second = answers.get(timeout=WAIT_S), answers.get(timeout=WAIT_S)
        assert first[:3] == ([2] * 3, size - 3, size) and second[:3] == ([1, 1], size // 2, size)
        assert first[3] == second[3] and opens() <= before + 1
        assert len(blocks_on_devices()) == 1 and tenon.torch.copies() == (0, 0)
        requests.put(None)
        finish(process)


def get_without_the_device(requests, answers):
    try:
        requests.get(timeout=WAIT_S)
    except tenon.Unsupported as error:
        answers.put(str(error))


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_device_that_is_hidden_is_named_to_the_receiver(torch_child, make):
    @torch_child
    def case():
        requests, answers = queues(2)
        tensor = make(3, value=4)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TENON_FAKECUDA_VISIBLE", "1")
            process = start(get_without_the_device, requests, answers)
        requests.put(tensor)
        assert "does not see the device with the UUID GPU-" in answers.get(timeout=WAIT_S)
        finish(process)
        assert storage_of(requests.get(timeout=WAIT_S)) == storage_of(tensor)  # the message is not lost
        assert tensor.cpu().tolist() == [4] * 3


def test_a_full_device_is_named_and_the_tensor_stays(torch_child):
    @torch_child
    def case():
        cuda_torch.use_pieces()
        tensor, queue, taken = theirs(8, value=3), mp.get_context("spawn").SimpleQueue(), []
        for size in (64 << 20, 2 << 20):
            with contextlib.suppress(MemoryError):
                while True:
                    taken.append(tenon.torch.empty(size, dtype=torch.uint8, device=CUDA))
        address = tensor.data_ptr()
        with pytest.raises(MemoryError, match="cuda:0"):
            tensor.share_memory_()
        assert tensor.data_ptr() == address and tensor.cpu().tolist() == [3] * 8
        taken.clear()
        queue.put(tensor)
        assert queue.get().cpu().tolist() == [3] * 8
