# SPDX-License-Identifier: Apache-2.0
"""tenon.dask.get: tasks whose memory runs out."""

import threading
import traceback
import weakref

import pytest
from chosen_dask import dask  # noqa: F401, I001: before what imports Dask
import tenon
import tenon.dask

WAIT_S = 60


class OutOfMemoryError(RuntimeError):
    """As PyTorch has it."""


class XlaRuntimeError(RuntimeError):
    """As JAX has it."""


class Array:
    """Something large that a call holds."""


class Task:
    """A call whose memory runs out `failures` times, with an error of its own each time."""

    def __init__(self, failures=1, error=MemoryError, **request):
        self.failures = failures
        self.error = error
        self.runs = []
        self.held = None
        if request:
            tenon.resources(**request)(self)

    def __call__(self, *inputs):
        slot = None
        if "GPU" in getattr(self, "__tenon_resources__", {}):
            slot = tenon.resource_id("GPU")
        self.runs.append((slot, self.held is None or self.held() is None))
        array = Array()
        self.held = weakref.ref(array)
        if len(self.runs) <= self.failures:
            raise self.error(f"run {len(self.runs)}")
        return len(self.runs)


@pytest.fixture(autouse=True)
def two_cards():
    with tenon.set_options(resources={"CPU": 2, "GPU": ((0, 1), (2, 3)), "MEM": 4}):
        yield


def test_task_whose_memory_ran_out_runs_again():
    task = Task()
    assert tenon.dask.get({"x": (task,), "y": (sum, ["x", "x"])}, "y") == 4
    assert len(task.runs) == 2


def test_what_the_failed_run_held_is_free_when_it_runs_again():
    task = Task()
    tenon.dask.get({"x": (task,)}, "x")
    assert task.runs[1][1]


def test_second_run_has_the_number_of_slots_that_was_requested():
    task = Task(GPU=1, CPU=0)
    tenon.dask.get({"x": (task,)}, "x")
    assert [type(slot) for slot, _ in task.runs] == [int, int]


def test_second_run_is_alone_with_what_it_requests():
    running, most, begun, gate = [], [], threading.Semaphore(0), threading.Event()

    @tenon.resources(MEM=1, CPU=0)
    def beside(number):
        running.append(number)
        begun.release()
        gate.wait(WAIT_S)
        running.remove(number)
        return number

    @tenon.resources(MEM=1, CPU=0)
    def hungry():
        most.append(len(running))
        if len(most) == 1:
            assert all(begun.acquire(timeout=WAIT_S) for _ in range(3))
            threading.Timer(0.05, gate.set).start()  # if it ran again at once, it would not be alone
            raise MemoryError
        return "done"

    graph = {"x": (hungry,), **{f"n{n}": (beside, n) for n in range(3)}}
    assert tenon.dask.get(graph, list(graph)) == ("done", 0, 1, 2)
    assert most[1] == 0


def test_error_of_the_last_run_is_raised_with_its_lines():
    task = Task(failures=9)
    ended = []
    with pytest.raises(MemoryError, match="run 2") as raised:
        tenon.dask.get({"x": (task,), "y": (ended.append, "x")}, "y")
    assert len(task.runs) == 2
    assert ended == []
    assert "__call__" in "".join(traceback.format_tb(raised.value.__traceback__))
    assert tenon.dask.get({"x": (abs, -1)}, "x") == 1


def test_tasks_that_have_not_begun_do_not_begin_after_the_last_run():
    task, begun, gate = Task(failures=9, MEM=4, CPU=0), [], threading.Event()

    @tenon.resources(MEM=4, CPU=0)
    def later(number):
        begun.append(number)
        gate.wait(WAIT_S)

    graph = {"x": (task,), **{f"n{n}": (later, n) for n in range(1000)}}
    with pytest.raises(MemoryError):
        tenon.dask.get(graph, list(graph))
    gate.set()
    assert len(begun) <= 1


@pytest.mark.parametrize(
    "error, runs",
    [
        (tenon.NoMemory, 2),
        (OutOfMemoryError, 2),
        (lambda text: XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), 2),
        (lambda text: XlaRuntimeError("INTERNAL: something else"), 1),
        (ValueError, 1),
        (KeyboardInterrupt, 1),
    ],
)
def test_errors_that_say_that_memory_ran_out(error, runs):
    task = Task(failures=9, error=error)
    with pytest.raises(BaseException):
        tenon.dask.get({"x": (task,)}, "x")
    assert len(task.runs) == runs


def test_an_executor_does_not_call_a_function_twice():
    task = Task()
    with tenon.Executor({"CPU": 1}) as executor:
        with pytest.raises(MemoryError):
            executor.submit(task).result(WAIT_S)
    assert len(task.runs) == 1
