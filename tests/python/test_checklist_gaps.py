# SPDX-License-Identifier: Apache-2.0
"""What PyTorch does not test of its own processes: kills, limits, damage, and what messages cost.

docs/checklist.md says which of these tests stands for what.
"""

import contextlib
import ctypes
import os
import pathlib
import platform
import queue as queues
import resource
import select
import signal
import subprocess
import sys
import threading

import numpy as np
import peers as children
import pytest
import tenon
import tenon.multiprocessing as mp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peers import METHODS, PRELOADED, WITHIN_S
from tenon import _core

mp.set_forkserver_preload(PRELOADED)

FORK = mp.get_context("fork")
STRATEGIES = _core.strategies()


@pytest.fixture(scope="module")
def peers():
    made = children.Peers(children.Peer)
    yield made
    made.close()


@pytest.fixture(params=METHODS)
def peer(request, peers):
    return peers[request.param]


def make_all(number):
    """A tensor of each strategy."""
    return [tenon.full((1000,), number, "int32", strategy=name) for name in STRATEGIES]


def storages():
    tenon.domain().reap()
    return {block["block"] for block in tenon.inspect().blocks if block["kind"] == "tensor"}


def are_all(tensors, number):
    return all((np.asarray(tensor) == number).all() for tensor in tensors)


def wait_for_end(pid):
    with contextlib.suppress(ProcessLookupError):
        watched = os.pidfd_open(pid)
        ended = select.select([watched], [], [], WITHIN_S)[0]
        os.close(watched)
        assert ended


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(WITHIN_S)
    assert process.exitcode == -signal.SIGKILL


def in_child(function, *arguments):
    process = FORK.Process(target=function, args=arguments)
    process.start()
    process.join(WITHIN_S)
    assert process.exitcode == 0


# ---- kills


def make(source, target):
    return make_all(6)


def make_and_put(source, target):
    target.put(make_all(6))


def do_nothing(source, target):
    pass


def get_and_write(source, target):
    tensors = source.get()
    for tensor in tensors:
        np.asarray(tensor)[...] = 4
    return tensors


def get_and_pass_on(source, target):
    tensors = get_and_write(source, target)
    target.put(tensors)
    return tensors


def come_to(step, source, target, reached):
    held = step(source, target)
    reached.set()
    signal.pause()
    return held


@pytest.mark.parametrize(
    "step", [make, make_and_put, do_nothing, get_and_write, get_and_pass_on], ids=lambda step: step.__name__
)
def test_a_kill_at_any_step_loses_only_what_that_process_had(context, step):
    before = storages()
    source, target, reached = context.Queue(), context.Queue(), context.Event()
    sent = make_all(0)
    process = context.Process(target=come_to, args=(step, source, target, reached))
    process.start()
    source.put(sent)
    assert reached.wait(WITHIN_S)
    kill(process)
    assert are_all(sent, 4 if step in (get_and_write, get_and_pass_on) else 0)
    if step in (make_and_put, get_and_pass_on):
        arrived = target.get(timeout=WITHIN_S)
        assert are_all(arrived, 6 if step is make_and_put else 4)
        assert step is make_and_put or [one.address for one in arrived] == [one.address for one in sent]
        del arrived
    if step in (make, make_and_put, do_nothing):
        assert are_all(source.get(timeout=WITHIN_S), 0)
    with pytest.raises((queues.Empty, tenon.PeerDied)):
        target.get(timeout=0)
    for one in (source, target):
        one.put("goes on")
        assert one.get(timeout=WITHIN_S) == "goes on"
    del sent
    assert storages() == before
    source.close()
    target.close()


def kill_tenond():
    managers = [seat["pid"] for seat in tenon.inspect().seats if seat["is_manager"]]
    for pid in managers:
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)


@pytest.mark.parametrize("step", range(6))
def test_tenond_may_be_killed_at_each_step_of_a_message(peers, strategy, step):
    before, peer, passed_on = storages(), peers["fork"], FORK.SimpleQueue()
    tensor = None

    def create():
        nonlocal tensor
        tensor = tenon.zeros((1000,), "int32")

    def get_back():
        got = passed_on.get()
        assert got.address == tensor.address and got.strategy == strategy and are_all([got], 1)

    steps = [
        create,
        lambda: peer.begin(add_one_and_pass_on, passed_on, tensor),
        peer.answer,
        get_back,
        lambda: peer.ask(children.forget),
    ]
    for number, do in enumerate(steps):
        if number == step:
            kill_tenond()
        do()
    if step == len(steps):
        kill_tenond()
    tensor = None
    assert storages() == before
    passed_on.close()


def add_one_and_pass_on(queue, tensor):
    np.asarray(tensor)[...] += 1
    children.kept["tensor"] = tensor
    queue.put(tensor)


def say_and(do, ready, queue):
    ready.set()
    if do == "get":
        queue.get()
    else:
        queue.put("more")


@pytest.mark.parametrize("do", ["get", "put"])
def test_a_process_killed_in_a_wait_for_a_queue_blocks_no_other(context, do):
    queue, ready = context.Queue(1), context.Event()
    if do == "put":
        queue.put("first")
    process = context.Process(target=say_and, args=(do, ready, queue))
    process.start()
    assert ready.wait(WITHIN_S)
    kill(process)
    if do == "get":
        queue.put("first", timeout=WITHIN_S)
    assert queue.get(timeout=WITHIN_S) == "first"
    queue.put("second", timeout=WITHIN_S)
    assert queue.get(timeout=WITHIN_S) == "second"
    queue.close()


def put_all_and_end(queue):
    queue.put(make_all(6))


def test_a_producer_may_end_before_any_consumer_starts(context):
    before, queue = storages(), context.Queue()
    process = context.Process(target=put_all_and_end, args=(queue,))
    process.start()
    process.join(WITHIN_S)
    assert process.exitcode == 0
    assert are_all(queue.get(timeout=WITHIN_S), 6)
    assert storages() == before
    queue.close()


def test_a_producer_may_end_while_no_tenond_runs():
    """Nobody waits between the kill and the put, so that no survivor starts another."""
    before, queue = storages(), FORK.Queue()
    kill_tenond()
    in_child(put_all_and_end, queue)
    assert are_all(queue.get(timeout=WITHIN_S), 6)
    assert storages() == before
    queue.close()


# ---- limits


def try_many(strategy):
    made, errors = [], []
    for _ in range(20):
        try:
            made.append(tenon.full((1000,), 3, "int32", strategy=strategy))
        except (OSError, MemoryError) as error:
            errors.append(error)
    assert are_all(made, 3)
    return errors


def take_all_descriptors(strategy):
    first = make_all(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))  # tenon would raise a soft limit alone
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(0))
    errors = try_many(strategy)
    assert bool(errors) == (strategy != "arena")
    assert all("descriptor" in str(error) for error in errors)
    for descriptor in taken:
        os.close(descriptor)
    assert try_many(strategy) == [] and are_all(first, 1)


def test_without_a_descriptor_left_the_error_says_so_and_all_goes_on(strategy):
    in_child(take_all_descriptors, strategy)


def take_all_addresses(strategy):
    first, hard = make_all(1), resource.getrlimit(resource.RLIMIT_AS)[1]
    assert try_many(strategy) == []
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), hard))
    errors = try_many(strategy)
    assert (errors == []) == (strategy == "arena")
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    assert try_many(strategy) == [] and are_all(first, 1)


def test_without_room_for_a_mapping_there_is_an_error_and_all_goes_on(strategy):
    in_child(take_all_addresses, strategy)


def mappings():
    return len(pathlib.Path("/proc/self/maps").read_text().splitlines())


def test_twenty_thousand_tensors_of_the_arena_take_no_mappings():
    first = tenon.zeros((10,), "int32")
    before = mappings()
    made = [tenon.zeros((10,), "int32") for _ in range(20000)]
    queue = mp.SimpleQueue()
    queue.put(made[::100])
    assert len(queue.get()) == 200 and mappings() - before < 50
    del first
    queue.close()


def test_a_used_up_quota_raises_memory_error_until_memory_is_freed(strategy):
    domain, size = _core.Domain.create(quota_bytes=1 << 23), 1 << 20
    made = []
    with pytest.raises(MemoryError, match="quota|bytes"):
        for _ in range(9):
            made.append(domain.zeros((size,), "uint8", strategy=strategy))
    assert 4 <= len(made) <= 8
    del made[-1]
    made.append(domain.zeros((size,), "uint8", WITHIN_S, strategy=strategy))
    assert made[0].tobytes() == bytes(size)
    made.clear()
    domain.close()


def wait_and_put(tensors, go, queue):
    assert go.wait(WITHIN_S)
    queue.put(tensors)


def test_a_child_forked_after_sharing_is_a_holder_of_its_own(fork):
    before, tensors = storages(), make_all(5)
    queue, go = fork.Queue(), fork.Event()
    process = fork.Process(target=wait_and_put, args=(tensors, go, queue))
    process.start()
    del tensors
    go.set()
    assert are_all(queue.get(timeout=WITHIN_S), 5)
    process.join(WITHIN_S)
    assert process.exitcode == 0 and storages() == before
    queue.close()


def test_threads_that_put_one_private_tensor_share_it_once(strategy):
    for _ in range(20):
        tensor, queue, barrier = _core.private((64,), "int32"), mp.SimpleQueue(), threading.Barrier(6)

        def put(i, tensor=tensor, queue=queue, barrier=barrier):
            barrier.wait()
            queue.put(tensor[i:])

        threads = [threading.Thread(target=put, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in threads:
            queue.get()[-1] += 1
        assert tensor[63] == 6 and tensor.strategy == strategy
        queue.close()


# ---- damage from outside


def get_or_error(queue):
    try:
        return queue.get(timeout=WITHIN_S).tolist()
    except Exception as error:
        return type(error).__name__


def damaged(damage):
    """A tensor by name whose file somebody did something to."""
    tensor = tenon.full((3,), 8, "int32", strategy="file_system")
    damage(tensor.path)
    return tensor


def test_a_removed_name_is_an_error_only_for_a_late_receiver(peers):
    before, peer, queue = storages(), peers["fork"], FORK.Queue()
    tensor = damaged(os.unlink)
    queue.put(tensor)
    assert queue.get(timeout=WITHIN_S).tolist() == tensor.tolist() == [8, 8, 8]
    queue.put(tensor)
    queue.put(tenon.full((2,), 1, "int32"))
    assert peer.ask(get_or_error, queue) == "NotFound"
    assert peer.ask(get_or_error, queue) == [1, 1]
    del tensor
    assert storages() == before
    queue.close()


@pytest.mark.parametrize("left", [0, 10])
def test_a_file_that_was_truncated_is_an_error_and_no_signal(peers, left):
    before, peer, queue = storages(), peers["fork"], FORK.Queue()
    tensor = damaged(lambda path: os.truncate(path, left))
    queue.put(tensor)
    queue.put(tenon.full((2,), 1, "int32"))
    assert peer.ask(get_or_error, queue) == "Corrupt"
    assert peer.ask(get_or_error, queue) == [1, 1]
    del tensor
    assert storages() == before
    queue.close()


_EVERY_METHOD = """
import tenon, tenon.multiprocessing as mp

def add(queue):
    for tensor in queue.get():
        tensor[0] += 1

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = mp.get_context(method)
        queue = context.Queue()
        strategies = sorted(mp.get_all_sharing_strategies())
        tensors = [tenon.zeros(3, "int32", strategy=name) for name in strategies]
        process = context.Process(target=add, args=(queue,))
        process.start()
        queue.put(tensors)
        process.join()
        print(method, process.exitcode, *(tensor[0] for tensor in tensors))
    with mp.Manager() as manager:
        print("manager", *manager.list([1]))
"""


def test_a_long_temporary_folder_harms_no_start_method(tmp_path):
    folder = tmp_path / ("a" * 120) / ("b" * 120)
    folder.mkdir(parents=True)
    script = tmp_path / "script.py"
    script.write_text(_EVERY_METHOD)
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    lines = [*(f"{method} 0 1 1 1" for method in METHODS), "manager 1"]
    assert (done.returncode, done.stdout.splitlines()) == (0, lines), done.stderr


def test_a_runtime_folder_whose_path_is_too_long_is_named(tmp_path):
    folder = tmp_path / ("c" * 120)
    done = subprocess.run(
        [sys.executable, "-c", "import tenon; tenon.zeros(3, 'int32')"],
        env={**os.environ, "TENON_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 1 and str(folder) in done.stderr


# ---- what messages cost


def put_arrays(queue, count, strategy):
    _core.set_strategy(strategy)
    for i in range(count):
        queue.put(np.full(100, i))


def anonymous_kib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1])


def test_a_consumer_of_many_messages_does_not_grow(strategy):
    before = storages()
    count = 100000 if strategy == "arena" else 3000
    queue = FORK.SimpleQueue()
    process = FORK.Process(target=put_arrays, args=(queue, count, strategy))
    process.start()
    for i in range(count):
        assert queue.get()[99] == i
        if i == count // 10:
            begun = anonymous_kib()
    assert anonymous_kib() - begun < 2048
    process.join(WITHIN_S)
    assert process.exitcode == 0 and storages() == before
    queue.close()


def rounds(queue, count):
    array = np.zeros(100)
    for _ in range(count):
        queue.put(array)
        queue.get()


def test_messages_take_no_page_faults_once_all_is_warm():
    queue = mp.SimpleQueue()
    rounds(queue, 3000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    rounds(queue, 20000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 200
    queue.close()


_EXIT_GROUP = {"x86_64": 231, "aarch64": 94}.get(platform.machine())
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl()


class _Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step))]


def forbid_system_calls():
    """From now on every one but the last kills this process; False if that cannot be had."""
    load, if_equal, end = 0x20, 0x15, 0x06
    steps = (_Step * 4)(
        (load, 0, 0, 0),  # the number of the call
        (if_equal, 0, 1, _EXIT_GROUP),
        (end, 0, 0, 0x7FFF0000),  # allowed
        (end, 0, 0, 0x80000000),  # the process ends
    )
    prctl = ctypes.CDLL(None).prctl
    program = _Program(len(steps), steps)
    return prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program)) == 0


CANNOT_BE_FORBIDDEN = 77


def do_rounds_without_system_calls():
    queue = mp.SimpleQueue()
    rounds(queue, 3000)
    if not forbid_system_calls():
        os._exit(CANNOT_BE_FORBIDDEN)
    rounds(queue, 5000)
    os._exit(0)


@pytest.mark.skipif(_EXIT_GROUP is None, reason="the number of exit_group() is not known here")
def test_messages_take_no_system_call_once_all_is_warm():
    process = FORK.Process(target=do_rounds_without_system_calls)
    process.start()
    process.join(WITHIN_S)
    if process.exitcode == CANNOT_BE_FORBIDDEN:
        pytest.skip("seccomp is not to be had here")
    assert process.exitcode == 0
    tenon.domain().reap()


# ---- round trips

ANY = settings(max_examples=40, suppress_health_check=list(HealthCheck))
DTYPES = "bool int8 uint8 int16 uint16 int32 int64 uint64 float16 float32 float64 complex64 complex128".split()
MORE_DTYPES = [*DTYPES, "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex32"]
SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def views(draw, array):
    """A view with other axes, other steps, backward ones too, or one element many times."""
    index = []
    for size in array.shape:
        start = draw(st.integers(0, max(size - 1, 0)))
        index.append(slice(start, None, draw(st.sampled_from([1, 2, -1, -2]))))
    view = array[(*index, ...)].transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()):
        view = np.broadcast_to(view, (3, *view.shape))
    if draw(st.booleans()):
        view = np.lib.stride_tricks.as_strided(view, view.shape, view.strides, writeable=False)
    return view


def steps(array):
    """Its strides, but for axes along which there is no step."""
    return [stride for size, stride in zip(array.shape, array.strides) if size > 1]


@ANY
@given(shape=SHAPES, dtype=st.sampled_from(DTYPES), data=st.data())
def test_any_view_of_an_array_arrives_at_its_place_in_nested_objects(strategy, shape, dtype, data):
    array = np.asarray(tenon.zeros(shape, dtype, strategy=strategy))
    array.reshape(-1).view(np.uint8)[...] = 1
    sent = [data.draw(views(array)) for _ in range(3)]
    value = {"views": sent[:2], "more": (sent[2], "text", None)}
    queue = mp.SimpleQueue()
    queue.put(value)
    got = queue.get()
    queue.close()
    assert list(got) == ["views", "more"] and got["more"][1:] == ("text", None)
    for view, arrived in zip(sent, [*got["views"], got["more"][0]]):
        assert (arrived.dtype, arrived.shape) == (view.dtype, view.shape)
        assert arrived.tobytes() == view.tobytes()
        if view.size:
            assert (arrived.ctypes.data, steps(arrived)) == (view.ctypes.data, steps(view))
            assert arrived.flags.writeable <= view.flags.writeable


def tell_and_return(tensor):
    known = tensor.dtype, tensor.shape, tensor.strides, tensor.byte_offset, tensor.storage_bytes
    return (*known, tensor.tobytes(), tensor.requires_grad, tensor.name), tensor


@settings(ANY, max_examples=20)
@given(
    shape=SHAPES,
    dtype=st.sampled_from(MORE_DTYPES),
    requires_grad=st.booleans(),
    name=st.one_of(st.none(), st.text("abcxyz", min_size=1, max_size=20)),
    data=st.data(),
)
def test_any_tensor_with_its_attributes_is_the_same_there_and_back(
    peer, strategy, shape, dtype, requires_grad, name, data
):
    storage = tenon.zeros(shape, dtype)
    if storage.size:
        storage.view((storage.nbytes,), "uint8").copy_from(np.arange(storage.nbytes, dtype=np.uint8) % 2)
    axes = data.draw(st.permutations(range(len(shape))))
    index = tuple(slice(data.draw(st.integers(0, max(size - 1, 0))), None) for size in shape)
    tensor = (storage[index] if index else storage).transpose(*axes) if shape else storage
    tensor.requires_grad, tensor.name = requires_grad and "float" in dtype, name
    told, back = peer.ask(tell_and_return, tensor)
    assert told == tell_and_return(tensor)[0] == tell_and_return(back)[0]
    assert not tensor.size or back.address == tensor.address
    assert back.strategy == strategy
