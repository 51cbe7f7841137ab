# SPDX-License-Identifier: Apache-2.0
"""Tasks of tenon.dask.get and calls of tenon.Executor whose memory runs out."""

import concurrent.futures
import contextvars
import sys
import threading
import time
import traceback
import weakref
from types import SimpleNamespace

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


in_c_and_by_dask = pytest.mark.parametrize("options", [{}, {"callbacks": [(None,) * 5]}], ids=["in C", "by Dask"])


@in_c_and_by_dask
def test_task_whose_memory_ran_out_runs_again(options):
    task = Task()
    assert tenon.dask.get({"x": (task,), "y": (sum, ["x", "x"])}, "y", **options) == 4
    assert len(task.runs) == 2


@in_c_and_by_dask
def test_what_the_failed_run_held_is_free_when_it_runs_again(options):
    task = Task()
    tenon.dask.get({"x": (task,)}, "x", **options)
    assert task.runs[1][1]


@in_c_and_by_dask
def test_second_run_has_the_number_of_slots_that_was_requested(options):
    task = Task(GPU=1, CPU=0)
    tenon.dask.get({"x": (task,)}, "x", **options)
    assert [type(slot) for slot, _ in task.runs] == [int, int]


@in_c_and_by_dask
def test_second_run_is_alone_with_what_it_requests(options):
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
    assert tenon.dask.get(graph, list(graph), **options) == ("done", 0, 1, 2)
    assert most[1] == 0


@in_c_and_by_dask
def test_error_of_the_last_run_is_raised_with_its_lines(options):
    task = Task(failures=9)
    ended = []
    with pytest.raises(MemoryError, match="run 2") as raised:
        tenon.dask.get({"x": (task,), "y": (ended.append, "x")}, "y", **options)
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


@in_c_and_by_dask
@pytest.mark.parametrize(
    "error, runs",
    [
        (tenon.NoMemory, 2),
        (OutOfMemoryError, 2),
        (lambda text: RuntimeError("CUDA out of memory: tenon has no 64 bytes on cuda:0"), 2),
        (lambda text: RuntimeError("CUDA error"), 1),
        (lambda text: XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), 2),
        (lambda text: XlaRuntimeError("INTERNAL: something else"), 1),
        (ValueError, 1),
        (KeyboardInterrupt, 1),
    ],
)
def test_errors_that_say_that_memory_ran_out(error, runs, options):
    task = Task(failures=9, error=error)
    with pytest.raises(BaseException):
        tenon.dask.get({"x": (task,)}, "x", **options)
    assert len(task.runs) == runs


def test_memory_that_runs_out_does_not_start_cuda(monkeypatch):
    """Once PyTorch has asked for devices, its children by fork cannot have any."""
    asked, emptied = [], []
    cuda = SimpleNamespace(is_initialized=lambda: False, is_available=lambda: asked.append(1), empty_cache=emptied.append)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with pytest.raises(MemoryError):
        tenon.dask.get({"x": (Task(failures=9),)}, "x")
    assert asked == [] and emptied == []


def test_task_does_not_run_again_when_its_run_has_failed_meanwhile():
    """It would run again when the gate opens: until then another task has a part of what it requests."""
    gate, began = threading.Event(), threading.Event()
    hungry = Task(MEM=1, CPU=0)

    @tenon.resources(MEM=1, CPU=0)
    def beside():
        began.set()
        gate.wait(WAIT_S)

    def fail():
        while not hungry.runs:
            began.wait(0.001)
        raise LookupError

    graph = {"beside": (beside,), "hungry": (hungry,), "fail": (fail,)}
    with pytest.raises(LookupError):
        tenon.dask.get(graph, list(graph), callbacks=[(None,) * 5])
    gate.set()
    assert tenon.dask.get({"x": (Task(failures=0, MEM=4, CPU=0),)}, "x") == 1  # after what was to run again
    assert len(hungry.runs) == 1


def test_task_runs_again_with_a_pack_exception_of_the_caller():
    task = Task()

    def pack(error, dumps):
        return error, None

    assert tenon.dask.get({"x": (task,)}, "x", pack_exception=pack) == 2
    assert len(task.runs) == 2


def make_writer(runs, failures=1):
    def write(values):
        values[0] += 1
        runs.append(1)
        if len(runs) <= failures:
            raise MemoryError(f"run {len(runs)}")
        return values

    return write


WRITES = tenon.resources(writes_inputs=True)


@in_c_and_by_dask
@pytest.mark.parametrize(
    "make",
    [
        lambda write: {"a": (list, [0]), "x": (WRITES(write), "a")},
        lambda write: {"a": (list, [0]), "x": (sum, (WRITES(write), "a"))},
        lambda write: {"a": (list, [0]), "x": (list, [(WRITES(write), "a")])},
        lambda write: {"a": (list, [0]), "x": (next, (map, WRITES(write), ["a"]))},
        lambda write: {"a": (list, [0]), "x": (tenon.resources(GPU=1, CPU=0, writes_inputs=True)(write), "a")},
    ],
    ids=["plain", "fused", "in a list", "handed on", "with a slot"],
)
def test_task_that_writes_its_inputs_does_not_run_again(make, options):
    runs = []
    with pytest.raises(MemoryError, match="run 1") as raised:
        tenon.dask.get(make(make_writer(runs)), "x", **options)
    assert len(runs) == 1
    assert "write" in "".join(traceback.format_tb(raised.value.__traceback__))


@in_c_and_by_dask
def test_annotation_says_that_a_task_writes_its_inputs(options):
    runs = []
    with dask.annotate(resources={"writes_inputs": True}):
        task = dask.delayed(make_writer(runs))([0])
    with pytest.raises(MemoryError, match="run 1"):
        task.compute(scheduler=tenon.dask.get, optimize_graph=False, **options)
    assert len(runs) == 1


@in_c_and_by_dask
def test_other_calls_of_a_task_run_again_beside_one_that_writes(options):
    runs, task = [], Task()
    graph = {"x": (WRITES(make_writer(runs, failures=0)), [(task,)])}
    assert tenon.dask.get(graph, "x", **options) == [3]
    assert len(task.runs) == 2 and len(runs) == 1


def test_task_that_only_writes_runs_in_the_pool_of_the_caller():
    with concurrent.futures.ThreadPoolExecutor(1, "of the caller") as pool:
        graph = {"x": (WRITES(lambda: threading.current_thread().name),)}
        assert tenon.dask.get(graph, "x", pool=pool).startswith("of the caller")


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_writes_inputs_is_a_bool(wrong):
    with pytest.raises(TypeError, match="writes_inputs"):
        tenon.resources(writes_inputs=wrong)


def test_task_in_a_pool_of_the_caller_does_not_run_again():
    task = Task()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with pytest.raises(MemoryError, match="run 1"):
            tenon.dask.get({"x": (task,)}, "x", pool=pool)


# ---- calls of an executor


@pytest.fixture
def repeating():
    with tenon.Executor({"CPU": 2, "GPU": ((0, 1), (2, 3)), "MEM": 4}, repeatable=True) as made:
        yield made


def test_repeatable_call_is_made_again(repeating):
    task, plain = Task(GPU=1, CPU=0), Task()
    assert repeating.submit(task).result(WAIT_S) == repeating.submit(plain).result(WAIT_S) == 2
    assert [type(slot) for slot, _ in task.runs] == [int, int] and task.runs[1][1]


def test_repeatable_call_that_fails_twice_has_its_last_error(repeating):
    task, other = Task(failures=9), Task(failures=9, error=ValueError)
    after = repeating.submit(task)
    last = repeating.submit(after.exception, after=after)
    assert str(last.result(WAIT_S)) == "run 2" and isinstance(after.exception(), MemoryError)
    assert "__call__" in "".join(traceback.format_tb(after.exception().__traceback__))
    assert isinstance(repeating.submit(other).exception(WAIT_S), ValueError) and len(other.runs) == 1


def test_repeated_call_is_alone_and_in_the_context_of_its_caller(repeating):
    variable = contextvars.ContextVar("variable", default="before")
    seen, gate, begun = [], threading.Event(), threading.Event()

    def beside():
        begun.set()
        gate.wait(WAIT_S)
        seen.append("beside")

    def hungry():
        seen.append(variable.get())
        variable.set("after")
        if len(seen) == 1:
            threading.Timer(0.05, gate.set).start()
            raise MemoryError
        return "done"

    part = {"MEM": 1, "CPU": 0}
    other = repeating.submit(beside, resources=part)
    assert begun.wait(WAIT_S)
    assert repeating.submit(hungry, resources=part).result(WAIT_S) == "done"
    assert seen == ["before", "beside", "before"] and other.done()


@pytest.mark.parametrize("request_", [None, {"writes_inputs": True}], ids=["function", "call"])
def test_repeatable_executor_does_not_repeat_what_writes(repeating, request_):
    runs = []
    write = make_writer(runs)
    future = repeating.submit(write if request_ else WRITES(write), [0], resources=request_)
    assert str(future.exception(WAIT_S)) == "run 1" and len(runs) == 1


def test_shutdown_does_not_make_calls_again_if_it_cancels():
    gate, began = threading.Event(), threading.Event()
    executor = tenon.Executor({"MEM": 2}, repeatable=True)
    task = Task(MEM=1, CPU=0)
    executor.submit(lambda: (began.set(), gate.wait(WAIT_S)), resources={"MEM": 1, "CPU": 0})
    assert began.wait(WAIT_S)
    future = executor.submit(task)
    while not task.runs or executor._calls.scheduler.core.resources()["MEM"][1] != 1:
        time.sleep(0.001)
    executor.shutdown(wait=False, cancel_futures=True)
    gate.set()
    executor.shutdown()
    assert isinstance(future.exception(), MemoryError) and len(task.runs) == 1


def test_an_executor_does_not_call_a_function_twice():
    task = Task()
    with tenon.Executor({"CPU": 1}) as executor:
        with pytest.raises(MemoryError):
            executor.submit(task).result(WAIT_S)
    assert len(task.runs) == 1
