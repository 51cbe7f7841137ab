# SPDX-License-Identifier: Apache-2.0
"""A program as its users write them: type checkers must agree with it, and it runs.

Each `type: ignore` stands at a mistake that a checker must find, in code that does not run.
"""

import ctypes
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import numpy as np
import tenon
import tenon.multiprocessing as mp
from tenon.multiprocessing.connection import Connection
from tenon.multiprocessing.queues import SimpleQueue
from tenon.multiprocessing.shared_memory import SharedMemory
from tenon.multiprocessing.synchronize import Event, Lock

WAIT_S = 60


def produce(queue: "mp.Queue[Dict[str, Any]]") -> None:
    queue.put({"frame": 1, "image": np.full((4, 6, 3), 42, np.uint8)})


def square(array: "np.ndarray[Any, Any]") -> float:
    return float((array**2).sum())


def increase(index: int, tensor: tenon.Tensor, lock: Lock) -> None:
    with lock:
        tensor[index] = tensor[index] + index


def say(event: Event, end: Connection) -> None:
    end.send("ready")
    event.set()


def share_queues() -> None:
    queue: "mp.Queue[Dict[str, Any]]" = mp.Queue()
    process = mp.get_context("fork").Process(target=produce, args=(queue,), daemon=True)
    process.detached = False
    process.start()
    message = queue.get(timeout=WAIT_S)
    process.join(WAIT_S)
    code: Optional[int] = process.exitcode
    pid: Optional[int] = process.pid
    assert code == 0 and pid is not None and message["image"].mean() == 42
    untyped = mp.Queue(3)
    untyped.put((1, "two"))
    assert untyped.get() == (1, "two") and untyped.empty()
    tasks: "mp.JoinableQueue[int]" = mp.JoinableQueue()
    tasks.put(1)
    number: int = tasks.get()
    tasks.task_done()
    tasks.join()
    simple: "SimpleQueue[str]" = mp.SimpleQueue()
    simple.put("text")
    assert simple.get() == "text" and number == 1


def share_work() -> None:
    with mp.get_context("fork").Pool(2) as pool:
        sums: List[float] = pool.map(square, [np.ones(3), np.ones(4)])
        result = pool.apply_async(square, (np.ones(5),))
        try:
            later: float = result.get(WAIT_S)
        except mp.WorkerDied as died:
            raise SystemExit(f"{died.task} ended {died.pids}") from died
    assert sums == [3, 4] and later == 5
    tensor, lock = tenon.zeros(3, "int64"), mp.Lock()
    context = mp.start_processes(increase, (tensor, lock), 3, join=False, start_method="fork")
    pids: List[int] = context.pids()
    while not context.join(WAIT_S, grace_period=1):
        pass
    assert len(pids) == 3 and tensor.tolist() == [0, 1, 2]


def synchronize() -> None:
    event, condition, barrier = mp.Event(), mp.Condition(mp.RLock()), mp.Barrier(1)
    here, there = mp.Pipe()
    process = mp.get_context("fork").Process(target=say, args=(event, there))
    process.start()
    was_set: bool = event.wait(WAIT_S)
    assert was_set and here.recv() == "ready"
    process.join()
    with condition:
        condition.notify_all()
        assert not condition.wait(0.001)
        assert condition.wait_for(event.is_set)
    permits = mp.BoundedSemaphore(2)
    if permits.acquire(timeout=WAIT_S):
        permits.release()
    value: int = permits.get_value()
    assert barrier.wait() == 0 and value == 2
    counter = mp.Value(ctypes.c_int, 5)
    with counter.get_lock():
        counter.value += 1
    array = mp.Array("d", [1.0, 2.0], lock=mp.Lock())
    assert counter.value == 6 and array[1] == 2.0


def share_tensors() -> None:
    tensor = tenon.full((2, 3), 7, "float32", strategy="file_descriptor")
    shape: Tuple[int, ...] = tensor.shape
    array = np.asarray(tensor)
    array[0, 0] = 1
    tensor.name, tensor.requires_grad = "weights", True
    tensor.metadata = {"epoch": b"3"}
    placed: tenon.Tensor = tenon.asarray(np.arange(6)).view((2, 3), "int64").T
    view = memoryview(tensor)
    assert (
        shape == view.shape and len(placed) == 3 and [row.shape for row in placed] == [(2,)] * 3
    )
    assert tenon.share(tenon.from_dlpack(np.ones(2))).is_shared
    if placed.device != "cpu":
        placed = tenon.from_cuda_array(placed, stream=-1)
    domain: tenon.Domain = tenon.domain()
    report = tenon.inspect(domain.name)
    used: int = report.live_bytes
    assert used > 0 and report.name == domain.name
    try:
        tenon.empty(2**60)
    except tenon.NoMemory as error:
        status: int = error.status
        assert status < 0 and isinstance(error, MemoryError)
    strategies: Set[str] = mp.get_all_sharing_strategies()
    strategy: str = mp.get_sharing_strategy()
    mp.set_sharing_strategy(strategy)
    assert strategy in strategies


def store_values() -> None:
    with tenon.Store(capacity=8, budget_bytes=1 << 20, evict=True) as store:
        version: int = store.put("a", np.ones(3), lifetime=60, pinned=True)
        store["b"] = {"x": 1}
        found, same = store.get_with_version("a")
        made: float = store.get_or_make("c", lambda: 2.5, timeout=WAIT_S)
        keys: List[str] = [*store, *store.keys("a")]
        entry: tenon.StoreEntry = store.entries("a")[0]
        info: tenon.StoreInfo = store.info()
        left: Optional[float] = entry.seconds_left
        pairs: Dict[str, Any] = dict(store.items())
        assert version == same == entry.version and found.sum() == made + 0.5 and left is not None
        assert len(store) == info.count == len(pairs) and "b" in store and len(keys) == 4
        assert store.wait("b") == info.version and store.pop("b") == {"x": 1}


def use_devices() -> None:
    devices: List[tenon.Device] = tenon.devices()
    names: List[str] = [device.name for device in devices if device.shares]
    tensor = tenon.zeros(3, device=names[0] if names else "cpu")
    here: tenon.Tensor = tensor.to("cpu", stream=0)
    pair: Tuple[int, int] = tensor.__dlpack_device__()
    assert here.device == "cpu" and pair[0] in (1, 2)


def use_the_standard_library() -> None:
    methods: List[str] = mp.get_all_start_methods()
    method: str = mp.get_context(methods[0]).get_start_method()
    name: str = mp.current_process().name
    memory = SharedMemory(create=True, size=8)
    assert memory.size >= 8
    memory.close()
    memory.unlink()
    assert method == methods[0] and name == "MainProcess"


def mistakes(queue: "mp.Queue[int]", tensor: tenon.Tensor) -> None:
    queue.put("text")  # type: ignore[arg-type]
    text: str = queue.get()  # type: ignore[assignment]
    tensor.shape = (1,)  # type: ignore[misc]
    tensor.reshaped  # type: ignore[attr-defined]
    tenon.zeros("three")  # type: ignore[arg-type]
    tenon.zeros(3, timeout="soon")  # type: ignore[arg-type]
    tenon.zeros(3, domain="line")  # type: ignore[arg-type]
    tensor.to(0)  # type: ignore[arg-type]
    store = tenon.Store(capacity="8")  # type: ignore[arg-type]
    store[1] = 2  # type: ignore[index]
    count: str = store.info().count  # type: ignore[assignment]
    pid: int = tenon.Lock("board").dead_owner_pid  # type: ignore[assignment]
    tenon.inspect(5)  # type: ignore[arg-type]
    mp.set_sharing_strategy(None)  # type: ignore[arg-type]
    mp.spawn("produce")  # type: ignore[call-overload]
    mp.Event().wait("soon")  # type: ignore[arg-type]
    begin: Callable[[], None] = tenon.domain  # type: ignore[assignment]


if __name__ == "__main__":
    share_queues()
    share_work()
    synchronize()
    share_tensors()
    store_values()
    use_devices()
    use_the_standard_library()
