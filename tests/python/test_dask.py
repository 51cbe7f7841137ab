# SPDX-License-Identifier: Apache-2.0
"""tenon.dask: graphs of Dask in the scheduler, as Dask's own scheduler of threads runs them."""

import collections
import contextvars
import functools
import os
import subprocess
import sys
import threading
import time
import unittest.mock

import pytest
from chosen_dask import dask  # noqa: I001: before what imports Dask
import dask.local
import tenon
import tenon.dask
from dask.callbacks import Callback
from dask.diagnostics import Profiler, ProgressBar
from dask.utils_test import GetFunctionTestMixin, inc

get = tenon.dask.get
WAIT_S = 60


@pytest.fixture(autouse=True)
def two_slots():
    with tenon.set_options(resources={"CPU": 2, "GPU": (0, 1)}):
        yield


class TestAsDask(GetFunctionTestMixin):
    get = staticmethod(tenon.dask.get)


# ---- what tasks request


@tenon.resources(GPU=1, CPU=0)
def where(*values):
    """The slot of the call."""
    return tenon.resource_id("GPU")


def has_slot(*values):
    """Whether the call has a slot."""
    try:
        tenon.resource_id("GPU")
    except tenon.Invalid:
        return False
    return True


@tenon.resources(GPU=1, CPU=0)
def has_slot_of_its_own(*values):
    return has_slot()


def both(one, other):
    return one, other


def test_decorator_sets_one_attribute_and_nothing_else():
    def plain(value):
        return value

    before = dict(vars(plain))
    decorated = tenon.resources(GPU=1, affinity=["GPU"])(plain)
    assert decorated is plain
    assert {name for name in vars(plain) if name not in before} == {"__tenon_resources__"}
    assert plain.__tenon_resources__ == {"GPU": 1, "affinity": ("GPU",)}


@pytest.mark.parametrize("options", [{}, {"callbacks": [(None,) * 5]}])
def test_task_has_the_slot_that_its_function_requests(options):
    assert get({"x": (where,), "y": (has_slot, "x")}, ["x", "y"], **options) in [(0, False), (1, False)]


def test_nested_call_that_requests_more_is_a_task_of_its_own():
    graph = {"x": 1, "y": (both, (has_slot_of_its_own, (has_slot, "x")), (has_slot, "x"))}
    assert get(graph, "y") == (True, False)
    graph = {"x": 1, "y": (has_slot_of_its_own, [(inc, "x"), (has_slot, "x")]), "z": (tuple, [(has_slot, "x"), "y"])}
    assert get(graph, "z") == (False, True)
    inner = []
    graph = {"x": 1, "y": (has_slot_of_its_own, (inner.append, (has_slot, "x")))}
    assert get(graph, "y") is True and inner == [False]


def test_lazy_call_is_in_the_task_that_reads_it():
    assert get({"x": [1, 2], "y": (list, (map, has_slot_of_its_own, "x"))}, "y") == [True, True]
    assert get({"x": [1, 2], "y": (sum, (map, has_slot_of_its_own, "x"))}, "y") == 2


def test_function_in_a_partial_or_in_an_argument_counts():
    graph = {"x": 1, "y": (functools.partial(has_slot_of_its_own, 1), "x")}
    assert get(graph, "y") is True

    def call(function, value):
        return function(value)

    assert get({"x": 1, "y": (call, has_slot_of_its_own, "x")}, "y") is True
    assert get({"x": 1, "y": (functools.partial(call, has_slot_of_its_own), "x")}, "y") is True
    assert get({"x": 1, "y": (call, has_slot, "x")}, "y") is False


def test_subgraph_is_taken_apart_if_its_calls_differ():
    spec = pytest.importorskip("dask._task_spec")
    ref = spec.TaskRef

    def nodes(*functions):
        chain = [spec.Task(i, function, ref(i - 1 if i > 0 else "x")) for i, function in enumerate(functions)]
        return {"x": 1, "y": spec.Task.fuse(*chain, key="y")}

    assert get(nodes(inc, has_slot_of_its_own), "y") is True
    assert get(nodes(has_slot_of_its_own, has_slot), "y") is False
    assert get(nodes(has_slot_of_its_own, has_slot_of_its_own), "y") is True
    assert get(nodes(inc, inc, inc), "y") == 4
    seen = []
    get(nodes(inc, has_slot_of_its_own, inc), "y", callbacks=[(None, None, lambda *task: seen.append(task[0]), None, None)])
    assert len(seen) == 3
    del seen[:]
    get(nodes(where, where, where), "y", callbacks=[(None, None, lambda *task: seen.append(task[0]), None, None)])
    assert len(seen) == 1


def test_subgraph_of_old_dask_is_taken_apart():
    optimization = pytest.importorskip("dask.optimization")
    if not hasattr(optimization, "SubgraphCallable"):
        pytest.skip("this Dask has no SubgraphCallable")
    inside = {"a": (has_slot, "in"), "b": (has_slot_of_its_own, "a"), "c": (both, "a", "b")}
    graph = {"x": 1, "y": (optimization.SubgraphCallable(inside, "c", ["in"]), "x")}
    assert get(graph, "y") == (False, True)
    inside = {"a": (has_slot_of_its_own, "in"), "b": (has_slot_of_its_own, "a")}
    graph = {"x": 1, "y": (optimization.SubgraphCallable(inside, "b", ["in"]), "x")}
    assert get(graph, "y") is True
    graph = {"x": 1, "y": (inc, (optimization.SubgraphCallable(inside, "b", ["in"]), (has_slot, "x")))}
    assert get(graph, "y") == 2


def test_fused_array_graph_is_taken_apart():
    np = pytest.importorskip("numpy")
    da = pytest.importorskip("dask.array")

    def on_cpu(block):
        assert not has_slot()
        return block + 1

    @tenon.resources(GPU=1, CPU=0)
    def on_gpu(block):
        assert has_slot()
        return block * 2

    source = da.from_array(np.arange(100), chunks=10)
    array = source
    for function in on_cpu, on_gpu, on_cpu:
        array = array.map_blocks(function, dtype=source.dtype, meta=source._meta)
    expected = (np.arange(100) + 1) * 2 + 1
    assert (array.compute(scheduler=get) == expected).all()
    with ProgressBar(out=open(os.devnull, "w")):
        assert (array.compute(scheduler=get) == expected).all()


def test_annotated_key_requests_what_the_annotation_says():
    with dask.annotate(resources={"GPU": 1}):
        value = dask.delayed(has_slot)(1)
    assert dask.delayed(both)(value, dask.delayed(has_slot)(2)).compute(scheduler=get, optimize_graph=False) == (
        True,
        False,
    )


def test_request_that_cannot_be_met_names_it():
    @tenon.resources(GPU=3)
    def wide():
        raise AssertionError

    with pytest.raises(ValueError, match="GPU=3.*GPU=2 slots"):
        get({"x": (wide,)}, "x")
    ran = []
    with pytest.raises(ValueError, match="GPU=3.*GPU=2 slots"):
        get({"a": (ran.append, 1), "x": (wide,)}, ["a", "x"], callbacks=[(None,) * 5])
    assert ran == []
    with pytest.raises(ValueError, match="NPU"):
        get({"x": (tenon.resources(NPU=1)(lambda: 1),)}, "x")
    assert get({"x": (where,)}, "x") in (0, 1)


@pytest.mark.parametrize(
    "amounts, error",
    [
        ({"GPU": -1}, ValueError),
        ({"GPU": float("nan")}, ValueError),
        ({"GPU": "1"}, TypeError),
        ({"GPU": True}, TypeError),
        ({"MEM": 0.00001}, ValueError),
        ({"affinity": ["GPU"]}, ValueError),
        ({"affinity": [1], "GPU": 1}, TypeError),
    ],
)
def test_wrong_amount_is_an_error_of_the_decorator(amounts, error):
    with pytest.raises(error):
        tenon.resources(**amounts)


def test_callable_that_answers_every_name_or_none():
    class Raising:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __call__(self):
            return 5

    assert get({"x": (unittest.mock.Mock(return_value=4),), "y": (Raising(),)}, ["x", "y"]) == (4, 5)
    graph = {"x": (unittest.mock.Mock(return_value=4),), "y": (Raising(),), "z": (where,)}
    assert get(graph, ["x", "y"]) == (4, 5)


@pytest.mark.parametrize("number, error", [(True, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)])
def test_wrong_number_of_workers_is_an_error(number, error):
    with pytest.raises(error):
        get({"x": (inc, 1)}, "x", num_workers=number)


def test_annotated_affinity_may_be_one_name():
    with dask.annotate(resources={"GPU": 1, "CPU": 0, "affinity": "GPU"}):
        value = dask.delayed(tenon.resource_id)("GPU")
    assert value.compute(scheduler=get, optimize_graph=False) in (0, 1)
    with dask.annotate(resources={"CPU": 1, "affinity": "GPU"}):
        value = dask.delayed(tenon.resource_id)("GPU")
    with pytest.raises(ValueError, match="affinity"):
        value.compute(scheduler=get, optimize_graph=False)


def test_slots_have_one_task_at_a_time_and_cpus_go_on():
    lock, now, most = threading.Lock(), collections.Counter(), collections.Counter()
    pairs = {"CPU": threading.Barrier(2), "GPU": threading.Barrier(2)}

    def count(name):
        with lock:
            now[name] += 1
            most[name] = max(most[name], now[name])
        if name in pairs:
            pairs[name].wait(WAIT_S)  # another task must run at the same time
        with lock:
            now[name] -= 1

    @tenon.resources(GPU=1, CPU=0)
    def kernel(_):
        count("GPU")
        count(("slot", tenon.resource_id("GPU")))

    graph = {("c", i): (count, "CPU") for i in range(40)}
    graph.update({("g", i): (kernel, ("c", i)) for i in range(40)})
    get(graph, [("g", i) for i in range(40)])
    assert most["CPU"] == 2 and most["GPU"] == 2 and most["slot", 0] == most["slot", 1] == 1


in_c_and_by_dask = pytest.mark.parametrize("options", [{}, {"callbacks": [(None,) * 5]}], ids=["in C", "by Dask"])


@in_c_and_by_dask
def test_affinity_keeps_a_chain_on_one_slot(options):
    @tenon.resources(GPU=1, CPU=0, affinity=["GPU"])
    def follow(chain):
        time.sleep(0.001)
        return [*chain, tenon.resource_id("GPU")]

    graph = {(0, chain): (list, []) for chain in range(2)}
    graph.update({(i, chain): (follow, (i - 1, chain)) for i in range(1, 30) for chain in range(2)})
    for slots in get(graph, [(29, 0), (29, 1)], **options):
        assert sum(one != next_one for one, next_one in zip(slots, slots[1:])) <= 2


@in_c_and_by_dask
def test_largest_input_decides_on_the_slot(options):
    np = pytest.importorskip("numpy")
    barrier = threading.Barrier(2, timeout=WAIT_S)

    @tenon.resources(GPU=1, CPU=0)
    def make(size):
        barrier.wait()  # so that each is on a slot of its own
        return np.full(size, tenon.resource_id("GPU"))

    @tenon.resources(GPU=1, CPU=0, affinity=["GPU"])
    def use(one, other):
        return max(one, other, key=len)[0], tenon.resource_id("GPU")

    for _ in range(10):
        for sizes in (10, 1000), (1000, 10):
            graph = {"a": (make, sizes[0]), "b": (make, sizes[1]), "c": (use, "a", "b")}
            made, used = get(graph, "c", **options)
            assert made == used


def test_several_slots_are_a_tuple_ascending():
    wide = tenon.resources(GPU=2, CPU=0)(lambda: tenon.resource_id("GPU"))
    with tenon.set_options(resources={"GPU": ((3, 2), (1, 0))}):
        assert get({"x": (wide,)}, "x") in [(2, 3), (0, 1)]


def test_part_of_a_slot_is_one_number():
    part = tenon.resources(GPU=0.5, CPU=0)(lambda: tenon.resource_id("GPU"))
    assert get({"x": (part,)}, "x") in (0, 1)


def test_sum_has_no_number():
    part = tenon.resources(MEM=0.5)(lambda: tenon.resource_id("MEM"))
    with tenon.set_options(resources={"MEM": 16}):
        with pytest.raises(tenon.Invalid, match="MEM"):
            get({"x": (part,)}, "x")


def test_secede_gives_the_cpu_back():
    begun = threading.Event()

    def wait():
        tenon.secede()
        return begun.wait(WAIT_S)

    graph = {"x": (wait,), "y": (wait,), "z": (begun.set,)}
    assert get(graph, ["x", "y", "z"]) == (True, True, None)


# ---- conventions of Dask


def test_callbacks_see_each_task_and_finish_comes_also_after_an_error():
    seen = []

    class Watch(Callback):
        def _start(self, dsk):
            seen.append(("start", set(dsk)))

        def _start_state(self, dsk, state):
            seen.append(("state", set(state["ready"])))

        def _pretask(self, key, dsk, state):
            seen.append(("before", key))

        def _posttask(self, key, value, dsk, state, worker):
            seen.append(("after", key, value, worker))

        def _finish(self, dsk, state, errored):
            seen.append(("finish", errored))

    with Watch():
        assert get({"x": 1, "y": (inc, "x"), "z": (inc, "y")}, "z") == 3
    assert [event[0] for event in seen] == ["start", "state", *["before", "after"] * 2, "finish"]
    assert seen[3][:3] == ("after", "y", 2) and isinstance(seen[3][3], int) and seen[-1] == ("finish", False)
    del seen[:]
    with Watch(), pytest.raises(ZeroDivisionError):
        get({"x": 0, "y": (lambda x: 1 // x, "x")}, "y")
    assert seen[-1] == ("finish", True)


def test_callbacks_of_the_run_are_not_those_of_runs_within_its_tasks():
    seen = []

    class Watch(Callback):
        def _pretask(self, key, dsk, state):
            seen.append(key)

    def inner():
        return get({"in": (inc, 1)}, "in")

    with Watch():
        assert get({"out": (inner,)}, "out") == 2
    assert seen == ["out"]


def test_interrupt_or_failing_start_is_told_to_callbacks():
    seen = []

    class Watch(Callback):
        def __init__(self, name, error=None):
            super().__init__()
            self.name, self.error = name, error

        def _start(self, dsk):
            if self.error is not None:
                raise self.error

        def _finish(self, dsk, state, errored):
            seen.append((self.name, errored))

    def interrupt():
        raise KeyboardInterrupt

    with Watch("watch"), pytest.raises(KeyboardInterrupt):
        get({"x": (interrupt,)}, "x")
    assert seen == [("watch", True)]
    del seen[:]
    both = [watch._callback for watch in (Watch("first"), Watch("last", RuntimeError("mine")))]
    with pytest.raises(RuntimeError, match="mine"):
        get({"x": 1}, "x", callbacks=both)
    assert seen == [("first", True)]


def test_cache_pool_and_errors_here_by_configuration():
    from concurrent.futures import ThreadPoolExecutor

    cache, calls = {}, []

    def fail():
        calls.append(threading.current_thread() is threading.main_thread())
        raise KeyError("mine")

    with dask.config.set(cache=cache):
        assert get({"x": 1, "y": (inc, "x")}, "y") == 2
    assert cache["y"] == 2
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as pool, dask.config.set(pool=pool):
        assert get({"x": (lambda: threading.current_thread().name,)}, "x").startswith("mine")
    with dask.config.set(rerun_exceptions_locally=True), pytest.raises(KeyError):
        get({"x": (fail,)}, "x")
    assert calls == [False, True]


def test_each_way_to_name_a_scheduler(monkeypatch):
    class Collection:
        """As dask.typing.DaskCollection has it."""

        __dask_scheduler__ = staticmethod(get)

        @staticmethod
        def __dask_optimize__(dsk, keys):
            return dsk

        def __dask_graph__(self):
            return {"x": (where,)}

        def __dask_keys__(self):
            return ["x"]

        def __dask_postcompute__(self):
            return lambda results: results[0], ()

        def __dask_tokenize__(self):
            return "x"

    slot = dask.delayed(where)()
    assert dask.compute(Collection())[0] in (0, 1)
    assert slot.compute(scheduler=get) in (0, 1)
    with dask.config.set(scheduler=get):
        assert slot.compute() in (0, 1) and slot.persist().compute() in (0, 1)
    monkeypatch.setitem(dask.base.named_schedulers, "tenon", get)
    assert slot.compute(scheduler="tenon") in (0, 1)


def test_executor_as_the_scheduler_of_dask():
    names = [dask.delayed(lambda i: (i, threading.current_thread().name))(i) for i in range(50)]
    with tenon.Executor({"CPU": 2}) as executor:
        results = dask.compute(*names, scheduler=executor)
    assert [i for i, _ in results] == list(range(50))
    assert threading.main_thread().name not in {name for _, name in results}


def test_cache_profiler_sees_what_is_kept():
    from dask.diagnostics import CacheProfiler

    with CacheProfiler() as profiler:
        assert get({"x": 1, "y": (inc, "x"), "z": (inc, "y")}, "z") == 3
    assert {row.key for row in profiler.results} == {"y", "z"}


def test_named_tuples_and_other_nodes_of_dask():
    spec = pytest.importorskip("dask._task_spec")
    pair = collections.namedtuple("pair", "one other")
    ref = spec.TaskRef
    graph = {
        "x": spec.DataNode("x", 1),
        "alias": spec.Alias("alias", "x"),
        "pair": spec.Task("pair", pair, ref("x"), 2),
        "list": spec.Task("list", as_it_is, spec.List(ref("x"), ref("pair"))),
        "dict": spec.Task("dict", as_it_is, spec.Dict({"a": ref("alias")})),
        "unused": spec.Task("unused", divmod, 1, 0),
    }
    assert get(graph, ["alias", "pair", "list", "dict"]) == (1, pair(1, 2), [1, pair(1, 2)], {"a": 1})


def as_it_is(value):
    return value


def test_profiler_has_a_row_for_each_task():
    with Profiler() as profiler:
        get({"x": 1, "y": (where, "x"), "z": (inc, "y")}, "z")
    assert {row.key for row in profiler.results} == {"y", "z"}


def test_cache_has_the_results_and_is_read():
    cache = {}
    assert get({"x": 1, "y": (inc, "x")}, "y", cache=cache) == 2
    assert cache["y"] == 2


def test_error_is_the_one_that_was_raised_with_its_traceback():
    error = RuntimeError("mine")

    def fail(value):
        raise error

    for options in {}, {"callbacks": [(None,) * 5]}:
        with pytest.raises(RuntimeError) as caught:
            get({"x": 1, "y": (fail, "x"), "z": (inc, "y")}, "z", **options)
        assert caught.value is error and any(entry.name == "fail" for entry in caught.traceback)


def test_failed_task_is_called_again_here_if_asked():
    calls = []

    def fail():
        calls.append(threading.get_ident())
        raise KeyError("mine")

    with pytest.raises(KeyError):
        get({"x": (fail,)}, "x", rerun_exceptions_locally=True)
    assert len(calls) == 2 and calls[0] != calls[1] == threading.get_ident()


def test_unknown_key_circle_and_missing_input():
    with pytest.raises(KeyError):
        get({"x": 1}, "y")
    with pytest.raises(ValueError, match="circle: .*'[xy]' -> '[xy]'"):
        get({"w": 1, "x": (inc, "y"), "y": (both, "x", "w")}, ["w", "x"])
    assert get({"x": (inc, 1)}, "x") == 2


def test_graph_is_not_changed():
    graph = {"x": 1, "y": (has_slot_of_its_own, (has_slot, "x"))}
    before = dict(graph)
    get(graph, "y")
    assert graph == before


def test_chain_of_10000_tasks_and_a_graph_of_100000():
    graph = {"x0": 0, **{f"x{i}": (inc, f"x{i - 1}") for i in range(1, 10001)}}
    assert get(graph, "x10000") == 10000
    graph = {("x", i): (inc, i) for i in range(100000)}
    graph["sum"] = (sum, list(graph))
    assert get(graph, "sum") == sum(range(1, 100001))


def test_result_is_freed_when_the_last_task_has_read_it():
    import weakref

    class Value:
        pass

    alive, most = weakref.WeakSet(), []

    def make(_):
        value = Value()
        alive.add(value)
        return value

    def read(value):
        most.append(len(alive))

    graph = {}
    for i in range(200):
        graph["make", i] = (make, i)
        graph["read", i] = (read, ("make", i))
    get(graph, [("read", i) for i in range(200)], num_workers=2)
    assert max(most) <= 8


def test_pool_of_the_caller_is_used():
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing.pool import ThreadPool

    def thread(_):
        return threading.current_thread().name

    graph = {f"x{i}": (thread, i) for i in range(10)}
    with ThreadPoolExecutor(3, thread_name_prefix="mine") as pool:
        names = get(graph, list(graph), pool=pool)
        assert all(name.startswith("mine") for name in names) and len(set(names)) <= 3
        assert get({"x": (where,)}, "x", pool=pool) in (0, 1)
    with ThreadPool(2) as pool:
        assert len(set(get(graph, list(graph), pool=pool))) <= 2


def test_context_variables_of_the_caller_are_seen():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    graph = {"x": (variable.get,)}
    assert get(graph, "x") == 7


def test_get_within_a_task_and_from_20_threads():
    def inner(i):
        return get({"x": i, "y": (inc, "x")}, "y")

    assert get({"x": (inner, 1), "y": (inner, "x")}, "y") == 3
    results = {}

    def run(i):
        results[i] = get({"x": (inner, i)}, "x")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert results == {i: i + 1 for i in range(20)}


def test_few_threads_are_started_for_short_tasks():
    before = set(os.listdir("/proc/self/task"))
    with tenon.set_options(resources={"CPU": 3}):
        graph = {f"x{i}": (sum, [1] * 100) for i in range(20000)}
        get(graph, list(graph))
        assert len(set(os.listdir("/proc/self/task")) - before) <= 2 * 3 + 1


def run_program(text, **options):
    return subprocess.run([sys.executable, "-c", PREFIX + text], capture_output=True, text=True, timeout=WAIT_S, **options)


PREFIX = """
import os, sys
if "TENON_TEST_DASK" in os.environ: sys.path.insert(0, os.environ["TENON_TEST_DASK"])
import dask, signal, threading, time, tenon, tenon.dask
from operator import add
"""


def test_program_ends_after_a_run_and_with_one_under_way():
    done = run_program("print(tenon.dask.get({'x': (add, 1, 2)}, 'x'))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
    done = run_program(
        """
begun, ending = threading.Event(), threading.Event()
def work(): begun.set(); ending.wait(); print("done")
threading._register_atexit(ending.set)
threading.Thread(target=tenon.dask.get, args=({"x": (work,)}, "x"), daemon=True).start()
begun.wait()
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_ctrl_c_ends_a_run_while_a_task_hangs():
    done = run_program(
        """
go_on = threading.Event()
def hang(): os.kill(os.getpid(), signal.SIGINT); return go_on.wait(50)
try:
    tenon.dask.get({"x": (hang,), "y": (add, "x", 1)}, "y")
except KeyboardInterrupt:
    print(not go_on.is_set())
go_on.set()
print(tenon.dask.get({"x": (add, 1, 2)}, "x"))
"""
    )
    assert (done.stdout, done.returncode) == ("True\n3\n", 0), done.stderr


def test_forked_child_runs_graphs_of_its_own():
    done = run_program(
        """
print(tenon.dask.get({"x": (add, 1, 2)}, "x"), flush=True)
pid = os.fork()
if pid == 0:
    print(tenon.dask.get({"x": (add, 3, 4)}, "x"), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(tenon.dask.get({"x": (add, 5, 6)}, "x"))
"""
    )
    assert (done.stdout, done.returncode) == ("3\n7\n11\n", 0), done.stderr


@pytest.mark.parametrize(
    "run",
    [
        "tenon.dask.get({'x': (task,), 'y': (abs, -1)}, ['x', 'y'])",
        "tenon.dask.get({'x': (task,), 'y': (abs, -1)}, ['x', 'y'], callbacks=[(None,) * 5])",
        "(executor.submit(task).result(), executor.submit(abs, -1).result())",
    ],
    ids=["in C", "by Dask", "executor"],
)
@pytest.mark.parametrize(
    "end, code, error",
    [("sys.exit(3)", 3, ""), ("sys.exit('why')", 1, "why"), ("return 5", 0, ""), ("raise KeyError('mine')", 1, "mine")],
)
def test_forked_child_ends_when_it_leaves_its_task(run, end, code, error):
    done = run_program(
        f"""
executor = tenon.Executor({{"CPU": 1}})
def task():
    pid = os.fork()
    if pid == 0:
        print("child", flush=True)
        {end}
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print({run})
"""
    )
    assert (done.stdout, done.returncode) == (f"child\n({code}, 1)\n", 0), done.stderr
    assert error in done.stderr and bool(error) == bool(done.stderr)


def test_environment_variable_says_what_there_is():
    done = run_program(
        """
kernel = tenon.resources(GPU=2, CPU=0)(lambda: tenon.resource_id("GPU"))
print(tenon.dask.get({"x": (kernel,)}, "x"))
""",
        env=dict(os.environ, TENON_RESOURCES="GPU=((4,5),(6,7))"),
    )
    assert done.stdout in ("(4, 5)\n", "(6, 7)\n"), done.stderr


def test_options_are_set_back_and_wrong_ones_change_nothing():
    with tenon.set_options(resources={"GPU": (7,)}):
        assert get({"x": (where,)}, "x") == 7
        for wrong in {"resources": {"GPU": (1, 1)}}, {"resources": {"GPU": "x"}}, {"skips": -1}, {"nothing": 1}:
            with pytest.raises((TypeError, ValueError, OverflowError)):
                tenon.set_options(**wrong)
        for wrong in 5, "GPU=1", ["GPU"]:
            with pytest.raises(TypeError, match="not a dict"):
                tenon.set_options(resources=wrong)
        assert get({"x": (where,)}, "x") == 7
    assert get({"x": (where,)}, "x") in (0, 1)


def test_options_of_blocks_that_overlap_in_threads():
    def cpus():
        return tenon._schedulers.scheduler().core.resources()["CPU"][0]

    inside, leave = threading.Event(), threading.Event()

    def other():
        with tenon.set_options(resources={"CPU": 5}):
            inside.set()
            assert leave.wait(WAIT_S)

    before = cpus()
    thread = threading.Thread(target=other)
    with tenon.set_options(resources={"CPU": 3}):
        thread.start()
        assert inside.wait(WAIT_S)
        assert cpus() == 5
    assert cpus() == 5  # the other block is open
    leave.set()
    thread.join(WAIT_S)
    assert cpus() == before
    with tenon.set_options(resources={"CPU": 3}):
        with tenon.set_options(skips=2):
            assert cpus() == 3
        tenon.set_options(resources={"CPU": 4})
        assert cpus() == 4
    assert cpus() == before


def test_options_that_change_during_a_run_are_for_the_next():
    begun, go_on = threading.Event(), threading.Event()

    def task():
        begun.set()
        assert go_on.wait(WAIT_S)

    results = []
    graph = {"x": (task,), "y": (where, "x")}
    thread = threading.Thread(target=lambda: results.append(get(graph, "y")))
    thread.start()
    assert begun.wait(WAIT_S)
    with tenon.set_options(resources={"CPU": 1}):
        with pytest.raises(ValueError, match="GPU"):
            get(graph, "y")
        go_on.set()
        thread.join(WAIT_S)
    assert results in ([0], [1])


def test_tasks_run_in_no_thread_of_the_caller():
    def task(_):
        import asyncio

        async def answer():
            return threading.get_ident()

        return asyncio.run(answer())

    async def main():
        return get({f"x{i}": (task, i) for i in range(8)}, [f"x{i}" for i in range(8)])

    import asyncio

    assert threading.get_ident() not in asyncio.run(main())


def test_lock_that_the_caller_has_is_not_taken_in_its_thread():
    lock = threading.Lock()

    def take(_):
        with lock:
            return True

    with tenon.set_options(resources={"CPU": 4}):
        for _ in range(20):
            results = []
            other = threading.Thread(target=lambda: results.append(get({"a": (take, 1), "b": (take, 2)}, ["a", "b"])))
            with lock:
                other.start()
                get({f"x{i}": (time.sleep, 0.001) for i in range(8)}, [f"x{i}" for i in range(8)])
            other.join(WAIT_S)
            assert results == [(True, True)]
