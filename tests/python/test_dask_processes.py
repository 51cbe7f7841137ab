# SPDX-License-Identifier: Apache-2.0
"""tenon.dask.get_processes: graphs of Dask in worker processes, to which arrays go by reference."""

import contextlib
import functools
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest
from chosen_dask import dask, workers_of_module  # noqa: I001: before what imports Dask
import numpy as np
import tenon
import tenon.dask
from dask.diagnostics import Profiler
from dask.utils_test import GetFunctionTestMixin, inc
from tenon import _dask_processes
from tenon.multiprocessing.pool import WorkerDied

get = functools.partial(tenon.dask.get_processes, num_workers=2)
WAIT_S = 60
LARGE = 1 << 16  # elements


@pytest.fixture(autouse=True, scope="module")
def workers():
    with workers_of_module():
        yield


class TestAsDask(GetFunctionTestMixin):
    get = staticmethod(get)


def test_tasks_run_in_other_processes():
    graph = {"a": (os.getpid,), "b": (os.getpid,)}
    assert os.getpid() not in get(graph, ["a", "b"])


def test_wide_graph():
    """Each task takes some 200 us: a million would take minutes."""
    count = 100_000 if os.environ.get("TN_TEST_FULL") else 1_000
    graph = {("x", i): (abs, -i) for i in range(count)}
    graph["sum"] = (sum, list(graph))
    assert get(graph, "sum", optimize_graph=False) == sum(range(count))


def test_array_is_the_same_memory_for_all_tasks():
    def write(array):
        array[:] = os.getpid()
        return True

    def read(array, after):
        return array[0], array[-1], os.getpid()

    graph = {"made": (np.zeros, LARGE), "wrote": (write, "made")}
    graph.update({f"read{i}": (read, "made", "wrote") for i in range(3)})
    for first, last, _ in get(graph, ["read0", "read1", "read2"], optimize_graph=False):
        assert first == last != 0


def test_array_that_was_received_is_sent_without_a_copy():
    first = get({"x": (np.ones, 1 << 22)}, "x")

    def address(array):
        array[0] = 5
        return array.nbytes

    assert get({"x": first, "y": (address, "x")}, "y") == first.nbytes
    assert first[0] == 5  # the task wrote into the memory of this process's array


def test_array_that_a_task_makes_is_sent_without_a_copy():
    def make(after):
        array = np.full(LARGE, 3.0) + 1
        return array, array.ctypes.data

    def compare(made):
        array, place = made
        return array[0], array.ctypes.data == place

    graph = {"first": (np.ones, 1), "made": (make, "first"), "compared": (compare, "made")}
    assert get(graph, "compared", num_workers=1, optimize_graph=False, share_arrays=True) == (4.0, True)
    assert get(graph, "compared", num_workers=1, optimize_graph=False) == (4.0, False)


@pytest.mark.parametrize("share_arrays", [False, True])
def test_small_view_keeps_no_large_array(share_arrays):
    def head(i):
        return np.full(1 << 20, float(i))[: 1 << 14]  # 128 KiB of 8 MiB

    def middle(array):
        return array[100:1000]

    domain = tenon.domain()
    before = domain.quota_bytes
    domain.set_quota(128 << 20)
    try:
        graph = {f"head{i}": (head, i) for i in range(100)}
        graph.update({f"large{i}": (np.full, 1 << 20, float(i)) for i in range(20)})
        graph.update({f"middle{i}": (middle, f"large{i}") for i in range(20)})
        keys = [f"head{i}" for i in range(100)] + [f"middle{i}" for i in range(20)]
        results = get(graph, keys, initializer=int, optimize_graph=False, share_arrays=share_arrays)
    finally:
        domain.set_quota(before)
    assert [array[0] for array in results] == [*range(100), *range(20)]


def test_result_that_has_no_room_is_a_memory_error_of_its_task():
    domain = tenon.domain()
    before = domain.quota_bytes
    domain.set_quota(32 << 20)
    try:
        with pytest.raises(MemoryError) as caught:
            get({"small": (np.ones, 10), "large": (np.ones, 1 << 23)}, ["small", "large"], initializer=int)
    finally:
        domain.set_quota(before)
    assert "'large'" in "".join(caught.value.__notes__)


def test_task_that_forks_has_its_arrays_for_itself():
    def fork(_):
        array = np.zeros(LARGE)
        for _ in range(3):
            child = os.fork()
            if child == 0:
                array += 1
                os._exit(0)
            os.waitpid(child, 0)
        return float(array.max())

    assert get({"first": (np.ones, 1), "x": (fork, "first")}, "x", optimize_graph=False) == 0


def test_task_may_fill_an_array_again_that_it_has_returned():
    def fill(i):
        import builtins

        if not hasattr(builtins, "array_of_task"):
            builtins.array_of_task = np.empty(LARGE)
        builtins.array_of_task[:] = i
        return builtins.array_of_task

    graph = {f"filled{i}": (fill, i) for i in range(6)}
    graph.update({f"max{i}": (np.max, f"filled{i}") for i in range(6)})
    assert get(graph, [f"max{i}" for i in range(6)], num_workers=1, optimize_graph=False) == (0, 1, 2, 3, 4, 5)


def test_arrays_beyond_the_part_of_a_worker_are_copied():
    def fill(_):
        kept = [np.ones(1 << 20, "uint8") for _ in range(64)]
        return sum(tenon.domain().find(array.ctypes.data, 1) is not None for array in kept)

    domain = tenon.domain()
    before = domain.quota_bytes
    domain.set_quota(64 << 20)
    try:
        graph = {"first": (np.ones, 1), "filled": (fill, "first")}
        filled = get(graph, "filled", num_workers=1, initializer=int, optimize_graph=False, share_arrays=True)
    finally:
        domain.set_quota(before)
    assert 0 < filled <= 32


def test_attributes_and_kinds_of_arrays_arrive():
    graph = {
        "fortran": (functools.partial(np.ones, (300, 400), order="F"),),
        "view": (lambda array: array[::2, 5:], "fortran"),
        "dict": (lambda array: {"a": array, "b": [array, "text"]}, "view"),
        "record": (lambda: np.zeros(5000, dtype=[("x", "f4"), ("y", "i8")]),),
        "text": (lambda: np.array(["a", "bc"] * 5000),),
        "object": (lambda: np.array([{}, None] * 5000, dtype=object),),
    }
    keys = ["fortran", "view", "dict", "record", "text", "object"]
    fortran, view, several, record, text, objects = get(graph, keys, optimize_graph=False)
    assert fortran.flags.f_contiguous and fortran.shape == (300, 400)
    assert view.shape == (150, 395) and (view == 1).all()
    assert (several["b"][0] == several["a"]).all() and several["b"][1] == "text"
    assert record.dtype.names == ("x", "y") and text[1] == "bc" and objects[1] is None


@tenon.resources(GPU=1, CPU=0)
def where(*values):
    return tenon.resource_id("GPU")


def test_task_in_a_worker_has_the_slots_that_it_requests():
    with tenon.set_options(resources={"GPU": ((4, 5), (6, 7))}):
        assert get({"x": (where,), "y": (where, "x")}, ["x", "y"]) in [(i, j) for i in range(4, 8) for j in range(4, 8)]
        wide = tenon.resources(GPU=2)(lambda: tenon.resource_id("GPU"))
        assert get({"x": (wide,)}, "x") in [(4, 5), (6, 7)]
        with pytest.raises(tenon.Invalid, match="GPU"):
            get({"x": (lambda: tenon.resource_id("GPU"),)}, "x")
        with pytest.raises(ValueError, match="GPU=5"):
            get({"x": (tenon.resources(GPU=5)(lambda: 1),)}, "x")


@tenon.resources(GPU=1, CPU=0)
def make_beside(size, own, other):
    tenon.Event(own).set()
    assert tenon.Event(other).wait(WAIT_S)  # so that both tasks have a slot
    return np.full(size, tenon.resource_id("GPU"))


@tenon.resources(GPU=1, CPU=0, affinity=["GPU"])
def use_largest(one, other):
    return int(max(one, other, key=len)[0]), tenon.resource_id("GPU")


def test_task_has_the_slot_that_made_its_largest_input():
    with tenon.set_options(resources={"GPU": (4, 5)}):
        for sizes in [(LARGE, 10), (10, LARGE)] * 4:
            events = tenon.Event("one"), tenon.Event("other")
            one, other = (event.name for event in events)
            graph = {"a": (make_beside, sizes[0], one, other), "b": (make_beside, sizes[1], other, one)}
            made, used = get({**graph, "c": (use_largest, "a", "b")}, "c", optimize_graph=False)
            assert made == used
            for event in events:
                event.clear()


@tenon.resources(CPU=0)
def wait_without_cpu(name):
    tenon.secede()  # it has no CPU to give back
    return tenon.Event(name).wait(WAIT_S)


def set_event(name):
    tenon.Event(name).set()


def test_tasks_without_cpu_do_not_take_the_workers_of_others():
    event = tenon.Event("go")
    graph = {f"wait{i}": (wait_without_cpu, event.name) for i in range(4)}
    graph["work"] = (set_event, event.name)
    assert get(graph, list(graph))[:4] == (True,) * 4


def secede_beside(own, others, times=1, die_once=None):
    """Give the CPU back, and wait until other tasks have done so, which need it."""
    for _ in range(times):
        tenon.secede()
    if die_once is not None and not os.path.exists(die_once):
        with open(die_once, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    tenon.Event(own).set()
    return all(tenon.Event(other).wait(WAIT_S) for other in others), os.getpid()


def graph_of_tasks_that_secede(count, **options):
    events = [tenon.Event(f"secede{i}") for i in range(count)]
    names = [event.name for event in events]
    for event in events:
        event.clear()
    graph = {("task", name): (functools.partial(secede_beside, name, names),) for name in names}
    graph["task", names[0]] = (functools.partial(secede_beside, names[0], names, **options),)
    return events, graph


@pytest.mark.parametrize("count", [2, 5])
def test_tasks_that_secede_wait_for_each_other_with_one_cpu(count):
    events, graph = graph_of_tasks_that_secede(count)
    results = get(graph, list(graph), num_workers=1, initializer=os.getpid)  # so that no later test has these workers
    assert [has_met for has_met, _ in results] == [True] * count
    assert len({pid for _, pid in results}) == count and len(events) == count


def work_shortly(number):
    time.sleep(0.01)  # so that two tasks would be seen to run at the same time
    return number


@pytest.mark.parametrize("options", [{"times": 3}, {"die_once": "died"}], ids=["thrice", "killed"])
def test_cpu_of_a_task_that_secedes_is_given_back_once(tmp_path, options):
    options = {name: str(tmp_path / value) if name == "die_once" else value for name, value in options.items()}
    events, graph = graph_of_tasks_that_secede(2, **options)
    graph.update({f"work{i}": (work_shortly, i) for i in range(20)})
    with tenon.trace(tmp_path / "trace.json") as made:
        results = get(graph, list(graph), num_workers=1, initializer=os.getpid)  # so that no later test has these workers
    assert [has_met for has_met, _ in results[:2]] == [True, True] and results[2:] == tuple(range(20))
    amounts = [amount for _, amount in made.occupancy()["CPU"]]
    assert max(amounts) == 1 and amounts[-1] == 0 and len(events) == 2


def test_workers_are_as_many_as_the_options_say():
    graph = {f"x{i}": (os.getpid,) for i in range(30)}
    with tenon.set_options(resources={"CPU": 3}):
        assert len(set(tenon.dask.get_processes(graph, list(graph)))) <= 3
        assert ("CPU", 3) in {(name, total) for name, (total, _) in tenon._schedulers.scheduler().core.resources().items()}


def test_error_is_raised_here_with_its_traceback():
    with pytest.raises(ZeroDivisionError) as caught:
        get({"x": (divmod, 1, 0)}, "x")
    # With tblib installed, Dask sends the traceback itself, and else its text.
    assert "execute_task" in "".join(traceback.format_exception(caught.type, caught.value, caught.tb))
    assert get({"x": 1, "y": (inc, "x")}, "y") == 2


class Began:
    """Dask's callbacks that count the tasks."""

    def __init__(self):
        self.count = 0
        self.callbacks = [(None, None, self.add, None, None)]

    def add(self, *args):
        self.count += 1


def chain(name, length):
    return {(name, i): (inc, (name, i - 1) if i else 0) for i in range(length)}


@pytest.mark.parametrize("length, most", [(20, 2), (50, 2), (51, 4), (500, 20)])
def test_long_chain_is_fused_into_pieces(length, most):
    began = Began()
    assert get(chain("x", length), ("x", length - 1), callbacks=began.callbacks) == length
    assert began.count <= most


def test_tasks_beside_a_long_chain_are_fused():
    graph = {**chain("long", 200), "sum": (sum, [("long", 199), *(("short", i, 9) for i in range(20))])}
    for i in range(20):
        graph.update({("short", i, j): (inc, ("short", i, j - 1) if j else i) for j in range(10)})
    began = Began()
    assert get(graph, "sum", callbacks=began.callbacks) == 200 + sum(range(20)) + 20 * 10
    assert began.count <= 10 + 2 * 20 + 1


def test_chain_of_deep_tasks_is_cut_where_it_must_be():
    graph = {"x0": (inc, 0), **{f"x{i}": (inc, (sum, [(sum, [f"x{i - 1}"])])) for i in range(1, 100)}}
    began = Began()
    assert get(graph, "x99", callbacks=began.callbacks) == 100
    assert began.count <= 2 * (5 * 100 / 45 + 1)  # each piece has a name, too


def test_task_that_is_deep_itself_runs():
    deep = 0
    for _ in range(60):
        deep = (inc, deep)
    assert get({"x": deep, "y": (inc, "x"), "z": (inc, "y")}, "z") == 62


@pytest.mark.parametrize("graph", [{"x": (threading.Lock,)}, {"x": (lambda: (i for i in range(3)),)}])
def test_result_that_cannot_be_pickled(graph):
    with pytest.raises(TypeError, match="the result of the task 'x' cannot be pickled: cannot pickle"):
        get(graph, "x")
    assert get({"x": 1, "y": (inc, "x")}, "y") == 2


def test_argument_that_cannot_be_pickled():
    with pytest.raises(TypeError, match="the task 'x', or an argument of it, cannot be pickled: cannot pickle"):
        get({"x": (inc, threading.Lock()), "y": (inc, 1)}, ["x", "y"])
    assert get({"x": 1, "y": (inc, "x")}, "y") == 2


def test_trace_has_an_arrow_for_each_input(tmp_path):
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (inc, "b"), "d": (max, "b", "a")}
    with tenon.trace(tmp_path / "trace.json"):
        assert get(graph, ["c", "d"], optimize_graph=False) == (4, 3)
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    kinds = [event["ph"] for event in events]
    assert [kinds.count(kind) for kind in "Xsf"] == [4, 4, 4]


def test_trace_counts_the_bytes_of_shared_results(tmp_path):
    graph = {"made": (np.zeros, LARGE), "sum": (np.sum, "made")}
    with tenon.trace(tmp_path / "trace.json") as made:
        assert get(graph, "sum", optimize_graph=False) == 0
    (_, first), (_, last) = made.bytes()["held"]
    assert LARGE * 8 <= first < LARGE * 8 + 1000 and last == 0  # with what is pickled


class Odd:
    """Something that is pickled, and cannot be unpickled."""

    def __init__(self, function, *args):
        self.how = function, args

    def __reduce__(self):
        return self.how


class TwoPartsError(Exception):
    def __init__(self, one, other):
        super().__init__(one)


def fail_in_two_parts():
    raise TwoPartsError(1, 2)


def fail_with_a_lock():
    raise TypeError(threading.Lock())


@pytest.mark.parametrize(
    "graph, kind, match",
    [
        ({"x": (Odd, divmod, 1, 0)}, ZeroDivisionError, "the result of the task 'x' cannot be unpickled: "),
        ({"x": (type, Odd(divmod, 1, 0))}, ZeroDivisionError, "the task 'x', or an argument of it, cannot be unpickled: "),
        ({"x": (fail_in_two_parts,)}, TypeError, "the exception of the task 'x' cannot be unpickled: "),
        ({"x": (fail_with_a_lock,)}, TypeError, "the exception of the task 'x' cannot be pickled: "),
    ],
)
def test_what_cannot_be_unpickled_is_named_by_its_task(graph, kind, match):
    with pytest.raises(kind, match=match):
        get(graph, "x")
    assert get({"x": 1, "y": (inc, "x")}, "y") == 2


def test_exception_with_a_text_of_its_own_has_a_note():
    with pytest.raises(KeyError) as raised:
        get({"x": (Odd, {}.__getitem__, "nowhere")}, "x")
    assert raised.value.__notes__ == ["the result of the task 'x' cannot be unpickled"]


def test_task_of_a_killed_worker_runs_again(tmp_path):
    def die_once(path, array):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return array.sum()
        os.kill(os.getpid(), signal.SIGKILL)

    graph = {"x": (np.ones, LARGE), **{f"y{i}": (die_once, str(tmp_path / str(i)), "x") for i in range(4)}}
    assert get(graph, [f"y{i}" for i in range(4)]) == (LARGE,) * 4


def run_out(path, failures):
    """Note a run in a file. The first ones have no memory."""
    with open(path, "a") as file:
        file.write(f"{tenon.resource_id('GPU')} ")
        runs = file.tell() // 2
    if runs <= failures:
        raise MemoryError(f"run {runs}")
    return runs


def test_task_whose_memory_ran_out_runs_again(tmp_path):
    task = tenon.resources(GPU=1, CPU=0)(run_out)
    path = tmp_path / "runs"
    with tenon.set_options(resources={"GPU": ((0, 1), (2, 3))}):
        assert get({"x": (task, str(path), 1)}, "x") == 2
        assert [int(slot) in range(4) for slot in path.read_text().split()] == [True, True]
        path.unlink()
        with pytest.raises(MemoryError, match="run 2"):
            get({"x": (task, str(path), 9)}, "x")
        assert len(path.read_text().split()) == 2


@pytest.mark.parametrize("optimize_graph", [True, False])
def test_task_that_writes_its_inputs_does_not_run_again(tmp_path, optimize_graph):
    @tenon.resources(writes_inputs=True)
    def write(array, path):
        array += 1
        with open(path, "a") as file:
            file.write("+")
        raise MemoryError(f"found {array[0]}")

    path = tmp_path / "runs"
    graph = {"made": (np.zeros, LARGE), "x": (write, "made", str(path)), "y": (inc, "x")}
    with pytest.raises(MemoryError, match="found 1"):
        get(graph, "y", optimize_graph=optimize_graph)
    assert path.read_text() == "+"


def test_result_of_a_dead_worker_is_still_there(tmp_path):
    def make_and_die_later(pid_file):
        with open(pid_file, "w") as file:
            file.write(str(os.getpid()))
        return np.full(LARGE, 3)

    def kill_its_maker(array, pid_file):
        with open(pid_file) as file:
            pid = int(file.read())
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return array.sum()

    path = str(tmp_path / "pid")
    graph = {"x": (make_and_die_later, path)}
    graph.update({f"y{i}": (kill_its_maker, "x", path) for i in range(4)})
    assert get(graph, [f"y{i}" for i in range(4)], optimize_graph=False) == (3 * LARGE,) * 4


def make_and_count(path):
    with open(path, "a") as file:
        file.write("x")
    return np.full(LARGE, 3)


def pid_after(made):
    return os.getpid()


def read_elsewhere(made, pid):
    assert os.getpid() != pid
    return int(made.sum())


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def test_results_of_the_only_worker_are_not_made_again_when_it_died(tmp_path):
    deaths = []

    def kill(key, pid, *_):
        if key == "pid":  # so the worker is through with the task before
            os.kill(pid, signal.SIGKILL)
            while state_of(pid) not in (None, "Z"):
                time.sleep(0.001)
            deaths.append(pid)

    path = tmp_path / "made"
    graph = {"made": (make_and_count, str(path)), "pid": (pid_after, "made"), "read": (read_elsewhere, "made", "pid")}
    callbacks = [(None, None, None, kill, None)]
    total = get(graph, "read", num_workers=1, optimize_graph=False, callbacks=callbacks)
    assert total == 3 * LARGE and len(deaths) == 1 and path.read_text() == "x"


def has_begun_and_waits(path, event):
    with open(path, "w"):
        pass
    return tenon.Event(event).wait(WAIT_S)


def fork_and_leave():
    pid = os.fork()
    if pid == 0:
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.getpid()


def test_forked_child_of_a_worker_ends_when_it_leaves_its_task():
    (code, pid), other = get({"x": (fork_and_leave,), "y": (lambda before: os.getpid(), "x")}, ["x", "y"], num_workers=1)
    assert code == 3 and pid == other  # the worker goes on


def note_and_leave(path):
    with open(path, "a") as file:
        print(os.getpid(), file=file)
    os._exit(3)


def test_task_that_ends_its_workers_is_named_with_them(tmp_path):
    with pytest.raises(WorkerDied) as raised:
        get({"deadly": (note_and_leave, str(tmp_path / "pids"))}, "deadly")
    first, second, third = map(int, (tmp_path / "pids").read_text().split())
    assert raised.value.pids == (first, second, third) and raised.value.task == "deadly"
    assert str(raised.value) == f"the task 'deadly' has ended its workers: processes {first}, {second} and {third}"
    assert get({"x": 1, "y": (inc, "x")}, "y") == 2


def test_callbacks_and_profiler_see_the_tasks():
    with Profiler() as profiler:
        assert get({"x": 1, "y": (inc, "x"), "z": (inc, "y")}, "z", optimize_graph=False) == 3
    assert {row.key for row in profiler.results} == {"y", "z"}


def test_workers_are_kept_for_the_next_call():
    graph = {f"x{i}": (os.getpid,) for i in range(20)}
    assert len(set(get(graph, list(graph))) | set(get(graph, list(graph)))) <= 2


def mark():
    os.environ["TENON_TEST_MARK"] = "yes"


def read_mark():
    return os.environ.get("TENON_TEST_MARK")


def test_initializer_is_called_in_each_worker():
    graph = {"x": (read_mark,)}
    assert get(graph, "x", initializer=mark) == "yes"
    assert get(graph, "x") is None


def test_array_and_bag_collections():
    da = pytest.importorskip("dask.array")
    array = da.from_array(np.arange(1 << 18).reshape(512, 512), chunks=128)
    with dask.config.set(num_workers=2):
        assert (array.T @ array).sum().compute(scheduler=tenon.dask.get_processes) == (
            np.arange(1 << 18).reshape(512, 512).T @ np.arange(1 << 18).reshape(512, 512)
        ).sum()


PROGRAM = """
import os, signal, sys, threading, time
import dask, numpy as np, tenon, tenon.dask
def work(array, i, j):
    if i == 5 and j == 0:
        {act}
    return array + i
if __name__ == "__main__":
    with dask.config.set({{"multiprocessing.context": "spawn"}}):
        graph = {{("x", 0, j): (np.ones, 1 << 16) for j in range(4)}}
        for i in range(1, 400):
            graph.update({{("x", i, j): (work, ("x", i - 1, j), i, j) for j in range(4)}})
        print("begun", tenon.domain().name, flush=True)
        try:
            tenon.dask.get_processes(graph, [("x", 399, j) for j in range(4)], num_workers=2, optimize_graph=False)
        except KeyboardInterrupt:
            print("interrupted")
"""


def start(act, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(act=act))
    return subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_ends_a_run(tmp_path):
    process = start("os.kill(os.getppid(), signal.SIGINT)", tmp_path)
    output, errors = process.communicate(timeout=WAIT_S)
    assert (output.splitlines()[1:], process.returncode) == (["interrupted"], 0), errors


def test_ctrl_c_ends_tasks_that_never_end(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import os, signal, sys, threading, time, tenon, tenon.dask
def hang(path):
    open(path, "w").close()
    while True:
        time.sleep(0.001)
if __name__ == "__main__":
    paths = [sys.argv[1] + str(i) for i in range(2)]
    def interrupt():
        while not all(map(os.path.exists, paths)):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        tenon.dask.get_processes({i: (hang, path) for i, path in enumerate(paths)}, [0, 1], num_workers=2)
    except KeyboardInterrupt:
        print("interrupted")
    print(tenon.dask.get_processes({"x": (abs, -1), "y": (abs, -2)}, ["x", "y"], num_workers=2))
"""
    )
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "begun")], capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.stdout, done.returncode) == ("interrupted\n(1, 2)\n", 0), done.stderr


def test_run_of_another_thread_goes_on_in_workers_that_are_not_kept(tmp_path):
    """As after Ctrl-C: the pool ends when its last user has left it."""
    event, results = tenon.Event("leave"), []
    graph = {"x": (has_begun_and_waits, str(tmp_path / "begun"), event.name)}
    thread = threading.Thread(target=lambda: results.append(get(graph, "x")))
    thread.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.001)
    (pool,) = (pool for place, pool in _dask_processes._pools.items() if place[1] == 2)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get({"x": (os.getpid,)}, "x", callbacks=[(None, None, None, interrupt, None)])
    assert pool not in _dask_processes._pools.values()
    event.set()
    thread.join(WAIT_S)
    assert results == [True]
    assert all(worker.exitcode is not None for worker in pool._pool) and not _dask_processes._users
    assert get({"x": 1, "y": (inc, "x")}, "y") == 2


def test_workers_of_another_version_are_refused(monkeypatch, capfd):
    for place, pool in list(_dask_processes._pools.items()):
        if place[1] == 2:
            _dask_processes.forget_pool(pool)
    with monkeypatch.context() as patch:
        patch.setattr(_dask_processes, "versions", lambda: {"tenon": "0.0"})
        with pytest.raises(WorkerDied, match="stderr"):
            get({"x": 1, "y": (inc, "x")}, "y")
    assert "its parent {'tenon': '0.0'}" in capfd.readouterr().err
    assert get({"x": 1, "y": (inc, "x")}, "y") == 2


def test_nothing_is_left_after_a_kill_in_the_middle(tmp_path):
    process = start("print('in a task', flush=True)", tmp_path)
    name = process.stdout.readline().split()[1]
    assert process.stdout.readline() == "in a task\n"
    children = [int(pid) for pid in open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]
    assert len(children) >= 2
    process.kill()
    process.communicate(timeout=WAIT_S)
    until = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in children)
    while name in [domain["name"] for domain in tenon._core.inspect_domains()] and time.monotonic() < until:
        time.sleep(0.05)
    assert name not in [domain["name"] for domain in tenon._core.inspect_domains()]


@pytest.mark.parametrize("order", ["parent first", "workers first"])
def test_doctor_finds_nothing_after_all_were_killed(tmp_path, order):
    """Here the domain lives on: this process has joined it."""
    process = start("print('in a task', flush=True); signal.pause()", tmp_path)
    name = process.stdout.readline().split()[1]
    member = tenon._core.Domain.open(name)
    program = pathlib.Path(tenon.__file__).with_name("bin") / "tenon"
    if not program.exists():
        pytest.skip("the command is not built")
    assert process.stdout.readline() == "in a task\n"
    children = [int(pid) for pid in open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]
    workers = [pid for pid in children if "tenond" not in open(f"/proc/{pid}/cmdline").read()]
    assert len(workers) >= 2
    found = tenon.inspect(name)
    assert found.blocks and found.objects and found.schedulers
    ends = [os.pidfd_open(pid) for pid in workers]
    for pid in [process.pid, *workers] if order == "parent first" else [*workers, process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=WAIT_S)
    for end in ends:
        assert select.select([end], [], [], WAIT_S)[0]
        os.close(end)
    member.reap()
    done = subprocess.run([program, "doctor", name], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout) == (0, f"{name}: 0 discrepancies\n"), done.stderr
    found = tenon.inspect(name)
    assert found.blocks == found.objects == found.tickets == found.schedulers == []
    assert [seat["pid"] for seat in found.seats if not seat["is_manager"]] == [os.getpid()]
    member.close()
