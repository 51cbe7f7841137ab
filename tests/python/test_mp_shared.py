# SPDX-License-Identifier: Apache-2.0
"""Values, arrays, pipes and managers of tenon.multiprocessing."""

import ctypes
import subprocess
import sys

import pytest
import tenon
import tenon.multiprocessing as mp

WAIT_S = 60

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing"])


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_double), ("y", ctypes.c_int)]


def count_up(value, array, raw, point, times):
    for _ in range(times):
        with value.get_lock():
            value.value += 1
    array[1] = 9
    raw[2] = 8
    point.y += 1


def append(shared):
    shared["list"] = shared.get("list", 0) + 1


def send_tensor(pipe):
    pipe.send(tenon.full(3, 4, "int32"))
    pipe.recv()


def test_values_and_arrays_are_shared(context):
    value, array = context.Value("i", 5), context.Array("d", [0.0, 1.0])
    raw, point = context.RawArray("h", 3), context.Value(Point, 1.5, 2, lock=False)
    arguments = value, array, raw, point, 200
    processes = [context.Process(target=count_up, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(WAIT_S)
        assert process.exitcode == 0
    assert value.value == 405
    assert array[:] == [0.0, 9.0]
    assert list(raw) == [0, 0, 8]
    assert point.x == 1.5 and point.y >= 3


def test_lock_of_a_value_may_be_chosen():
    lock = mp.Lock()
    assert mp.Value("i", lock=lock).get_lock() is lock
    assert not hasattr(mp.Array("i", 3, lock=False), "get_lock")
    with pytest.raises(AttributeError, match="acquire"):
        mp.Value("i", lock=3)


def test_array_of_characters_has_a_value():
    array = mp.Array("c", b"hello")
    array.value = b"hi"
    assert array.value == b"hi" and array.raw == b"hi\0lo"
    assert list(mp.RawArray("i", 0)) == []


def test_tensor_goes_through_a_pipe(context):
    ours, theirs = context.Pipe()
    process = context.Process(target=send_tensor, args=(theirs,))
    process.start()
    assert ours.recv().tolist() == [4, 4, 4]
    ours.send("got it")
    process.join(WAIT_S)
    assert process.exitcode == 0


def test_manager_serves_processes(quick):
    with quick.Manager() as manager:
        shared = manager.dict()
        process = quick.Process(target=append, args=(shared,))
        process.start()
        process.join(WAIT_S)
        assert dict(shared) == {"list": 1}


def test_thousands_of_objects_are_no_problem():
    values = [mp.Value("i", i) for i in range(3000)]
    conditions = [mp.Condition() for _ in range(1000)]
    with conditions[-1]:
        conditions[-1].notify_all()
    assert sum(value.value for value in values) == sum(range(3000))


_MANAGERS = """
import sys, tenon.multiprocessing as mp
from tenon.multiprocessing.managers import BaseManager, SharedMemoryManager, SyncManager

if __name__ == "__main__":
    mp.set_start_method(sys.argv[1])
    for manager in (BaseManager(), SharedMemoryManager(), SyncManager()):
        with manager:
            assert manager._ctx.get_start_method() == sys.argv[1]
            assert type(manager._process).__module__ == "tenon.multiprocessing.process"
    with mp.Manager() as manager:
        assert type(manager._process).__name__.startswith(sys.argv[2])
        assert list(manager.list([1, 2])) == [1, 2]
"""


@pytest.mark.parametrize(
    "method, kind",
    [("fork", "Fork"), ("spawn", "Spawn"), ("forkserver", "ForkServer")],
)
def test_managers_start_as_the_start_method_says(method, kind, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(_MANAGERS)
    subprocess.run([sys.executable, program, method, kind], check=True)
