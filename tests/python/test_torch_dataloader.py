# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own DataLoader with processes and queues of tenon's."""

import gc
import os
import signal
import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    get_worker_info,
)  # noqa: E402

import tenon.multiprocessing as mp  # noqa: E402
import tenon.torch  # noqa: E402
from tenon import _torch_storage  # noqa: E402
from tenon._torch_private import untyped  # noqa: E402

WITHIN_S = 60


@pytest.fixture(autouse=True)
def installed():
    tenon.torch.install()
    yield
    gc.collect()  # a loader that keeps its workers ends them when it is collected


class Numbers(Dataset):
    def __init__(self, count=24):
        self.values = torch.arange(float(count))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return torch.full((3,), float(self.values[i])), i


class Failing(Numbers):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError("item five")
        return super().__getitem__(i)


class Killed(Numbers):
    def __getitem__(self, i):
        if i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(i)


class Stuck(Numbers):
    def __init__(self):
        super().__init__()
        self.go_on = mp.Event()

    def __getitem__(self, i):
        if i == 5:
            self.go_on.wait(WITHIN_S)
        return super().__getitem__(i)


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        return iter(range(worker.id, 10, worker.num_workers))


class Seeds(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.randint(1 << 30, (1,)), get_worker_info().dataset.marked


def mark(worker_id):
    get_worker_info().dataset.marked = 100 + worker_id


def load(dataset, method="fork", **options):
    given = {
        "batch_size": 4,
        "num_workers": 2,
        "multiprocessing_context": mp.get_context(method),
        **options,
    }
    return DataLoader(dataset, **given)


def check_epoch(loader):
    batches = list(loader)
    assert torch.cat([values for values, _ in batches]).tolist() == [
        [float(i)] * 3 for i in range(24)
    ]
    assert torch.cat([indices for _, indices in batches]).tolist() == list(range(24))
    for values, _ in batches:
        assert _torch_storage.find(untyped(values)) is not None


def test_batches_come_in_order_and_in_tenons_memory(strategy):
    check_epoch(load(Numbers()))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_begin_anew_load_the_same(method):
    context = mp.get_context(method)
    context.set_forkserver_preload(["torch"])
    loader = load(
        Numbers(), method, num_workers=1, persistent_workers=True, worker_init_fn=mark
    )
    check_epoch(loader)
    check_epoch(loader)


def test_persistent_workers_load_epoch_after_epoch():
    loader = load(Numbers(), persistent_workers=True, prefetch_factor=5)
    check_epoch(loader)
    workers = [worker.pid for worker in loader._iterator._workers]
    check_epoch(loader)
    assert [worker.pid for worker in loader._iterator._workers] == workers


@pytest.mark.filterwarnings("ignore:'pin_memory'")
def test_pinning_without_a_device_changes_nothing():
    check_epoch(load(Numbers(), pin_memory=True))


def test_batches_may_be_changed_kept_and_sent_on():
    queue = mp.SimpleQueue()
    kept = []
    for values, _ in load(Numbers()):
        values.mul_(2)
        queue.put(values)
        kept.append(values)
    for values in kept:
        assert untyped(queue.get())._cdata == untyped(values)._cdata
    assert sum(float(values.sum()) for values in kept) == 2 * 3 * sum(range(24))


def test_tensors_of_a_dataset_need_no_collating():
    data = TensorDataset(torch.arange(12.0), torch.eye(12))
    for one, two in load(data, batch_size=None):
        assert two[int(one)] == 1 and two.sum() == 1


def test_a_stream_is_divided_among_workers():
    seen = torch.cat(list(load(Stream(), batch_size=2))).tolist()
    assert sorted(seen) == list(range(10))


def test_workers_are_set_up_and_seeded_by_the_generator():
    runs = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(7)
        runs.append(
            [
                (v.tolist(), m.tolist())
                for v, m in load(Seeds(), generator=generator, worker_init_fn=mark)
            ]
        )
    assert runs[0] == runs[1]
    assert [marks for _, marks in runs[0]] == [[100] * 4, [101] * 4]
    assert runs[0][0][0] != runs[0][1][0]


def test_an_exception_in_a_worker_is_raised_with_its_traceback():
    with pytest.raises(KeyError, match="(?s)worker process 1.*__getitem__.*item five"):
        list(load(Failing()))


def workers_of(iterator):
    return list(iterator._workers)


def wait_for(workers):
    for worker in workers:
        worker.join(WITHIN_S)
        assert not worker.is_alive()


def test_a_worker_that_is_killed_is_an_error_and_no_hang():
    iterator = iter(load(Killed()))
    workers = workers_of(iterator)
    with pytest.raises(RuntimeError, match="exited unexpectedly|killed by signal"):
        list(iterator)
    del iterator
    wait_for(workers)


def test_a_worker_that_is_stuck_runs_into_the_timeout():
    dataset = Stuck()
    iterator = iter(load(dataset, timeout=0.5))
    workers = workers_of(iterator)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="timed out"):
        list(iterator)
    assert time.monotonic() - begun < WITHIN_S
    dataset.go_on.set()
    del iterator
    wait_for(workers)


def test_leaving_in_the_middle_ends_the_workers():
    iterator = iter(load(Numbers(), prefetch_factor=4))
    workers = workers_of(iterator)
    next(iterator)
    del iterator
    wait_for(workers)
    check_epoch(load(Numbers()))


def test_the_loaders_process_trains_on_batches():
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 1)
    losses = []
    loader = load(Numbers(), shuffle=True, persistent_workers=True)
    for _ in range(15):
        for values, indices in loader:
            loss = ((module(values / 24) - indices[:, None] / 24) ** 2).mean()
            module.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.2 * parameter.grad
            losses.append(loss.item())
    assert sum(losses[-6:]) < sum(losses[:6]) / 10


# ---- queues that are not tenon's


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        return torch.full((1 << 16,), float(at))


def expect_no_tickets():
    end = time.monotonic() + 20  # other handles last 60 seconds longer than their sender
    while tenon.inspect().tickets:
        assert time.monotonic() < end
        tenon.domain().reap()


def test_a_loaders_leftovers_in_a_foreign_queue_end_with_its_workers():
    tenon.domain()
    for _ in range(3):
        loader = DataLoader(Rows(), 2, num_workers=2, prefetch_factor=4, multiprocessing_context="fork")
        batches = iter(loader)
        next(batches)
        workers = batches._workers
        del batches
        for worker in workers:
            worker.join()
    expect_no_tickets()


def put_all(queue):
    for number in range(8):
        queue.put(torch.full((1000,), float(number)))
    signal.pause()  # until it is killed


def test_a_killed_process_ends_its_tensors_in_a_foreign_queue():
    tenon.domain()
    context = torch.multiprocessing.get_context("fork")
    queue = context.Queue()
    sender = context.Process(target=put_all, args=(queue,))
    sender.start()
    assert queue.get(timeout=WITHIN_S)[0] == 0
    sender.kill()
    sender.join()
    expect_no_tickets()
