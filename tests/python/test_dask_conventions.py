# SPDX-License-Identifier: Apache-2.0
"""What Dask's callers expect of a scheduler: arguments, callbacks, calls within tasks, values that stand for others."""

import concurrent.futures
import functools
import io
import multiprocessing.pool
import os
import pickle
import select
import threading
import time

import pytest
from chosen_dask import dask, workers_of_module  # noqa: I001: before what imports Dask
import tenon
import tenon.dask
from dask.callbacks import Callback
from dask.diagnostics import CacheProfiler, Profiler, ProgressBar, ResourceProfiler
from dask.utils_test import add, inc
from tenon import _dask_processes

spec = _dask_processes._dask_graph.spec
WAIT_S = 60


def get_by_dask(*args, **options):
    """Threads, where Dask goes through the graph."""
    return tenon.dask.get(*args, **{**options, "callbacks": options.get("callbacks") or [(None,) * 5]})


get_processes = functools.partial(tenon.dask.get_processes, num_workers=2, optimize_graph=False)
every_get = pytest.mark.parametrize("get", [tenon.dask.get, get_by_dask, get_processes], ids=["in C", "by Dask", "processes"])
both_gets = pytest.mark.parametrize("get", [tenon.dask.get, get_processes], ids=["threads", "processes"])


@pytest.fixture(autouse=True, scope="module")
def workers():
    with workers_of_module(resources={"CPU": 2}):
        yield


GRAPH = {"x": 1, "y": (inc, "x"), "z": (add, "y", 10)}


def fail(value):
    raise LookupError(f"of {value}")


# ---- arguments


@every_get
def test_arguments_that_nobody_knows_are_accepted(get):
    assert get(GRAPH, ["y", "z"], foo=1, start_callback=print, end_callback=None) == (2, 12)


@every_get
def test_arguments_that_are_none_are_as_if_left_out(get):
    names = "get_id pack_exception raise_exception dumps loads func_dumps func_loads callbacks cache chunksize pool"
    options = dict.fromkeys([*names.split(), "rerun_exceptions_locally"])
    assert get(GRAPH, "z", **options) == 12
    with pytest.raises(LookupError):
        get({"x": (fail, 1)}, "x", **options)


def who():
    return "worker", os.getpid()


@both_gets
def test_worker_is_what_get_id_says(get):
    seen = {}

    def note(key, value, dsk, state, worker):
        seen[key] = worker

    assert get(GRAPH, "z", get_id=who, callbacks=[(None, None, None, note, None)]) == 12
    assert seen.keys() == {"y", "z"} and {name for name, _ in seen.values()} == {"worker"}
    assert all((pid == os.getpid()) == (get is tenon.dask.get) for _, pid in seen.values())


@both_gets
def test_raise_exception_decides_what_is_raised(get):
    calls = []

    def raise_mine(error, trace=None):
        calls.append((type(error), error.args, trace is not None, threading.current_thread()))
        raise KeyError("mine") from error

    with pytest.raises(KeyError, match="mine"):
        get({"x": (fail, 1)}, "x", raise_exception=raise_mine)
    assert calls == [(LookupError, ("of 1",), True, threading.current_thread())]


def pack_as_text(error, dumps):
    return dumps((RuntimeError(f"packed: {error}"), None))


@both_gets
def test_pack_exception_decides_what_is_handed_back(get):
    with pytest.raises(RuntimeError, match="packed: of 1"):
        get({"x": (fail, 1)}, "x", pack_exception=pack_as_text)


dumped = []  # in the process that does it


def dump_mine(value):
    dumped.append(value)
    return [b"mine", pickle.dumps(value)]


def load_mine(value):
    assert value[0] == b"mine"
    return pickle.loads(value[1])


def dumps_here(_):
    return len(dumped)


@both_gets
@pytest.mark.parametrize("names", [("dumps", "loads"), ("func_dumps", "func_loads")])
def test_dumps_and_loads_are_called_for_tasks_and_results(get, names):
    if get is tenon.dask.get and names[0] == "func_dumps":
        pytest.skip("dask.threaded.get has no such argument")
    del dumped[:]
    options = dict(zip(names, (dump_mine, load_mine)))
    assert get(GRAPH, "z", **options) == 12
    own = 4 if get is tenon.dask.get else 2  # two tasks, and in threads their results, too
    assert len(dumped) == own
    assert get({"x": (dumps_here, 1), "y": (dumps_here, "x")}, "y", num_workers=1, **options) >= 1
    if get is not tenon.dask.get:  # in threads, Dask hands loads() an exception that dumps() did not have
        with pytest.raises(LookupError, match="of 1"):
            get({"x": (fail, 1)}, "x", **options)


def test_dumps_and_loads_of_the_configuration():
    del dumped[:]
    with dask.config.set(func_dumps=dump_mine, func_loads=load_mine):
        assert get_processes(GRAPH, "z") == 12
    assert len(dumped) == 2


def fail_with_pid(path):
    with open(path, "a") as file:
        print(os.getpid(), file=file)
    raise LookupError("mine")


@every_get
@pytest.mark.parametrize("is_configured", [False, True])
def test_failed_task_is_called_again_by_the_caller(get, is_configured, tmp_path):
    path = str(tmp_path / "pids")
    with dask.config.set(rerun_exceptions_locally=is_configured), pytest.raises(LookupError, match="mine"):
        get({"x": (fail_with_pid, path)}, "x", **({} if is_configured else {"rerun_exceptions_locally": True}))
    first, second = map(int, open(path).read().split())
    assert second == os.getpid() and (first == second) == (get is not get_processes)
    with dask.config.set(rerun_exceptions_locally=True), pytest.raises(LookupError, match="mine"):
        get({"x": (fail_with_pid, path)}, "x", rerun_exceptions_locally=False)
    assert len(open(path).read().split()) == 3


@every_get
def test_key_that_the_cache_has_is_done(get):
    cache = {"y": 40}
    graph = {"x": 1, "y": (fail, "x"), "z": (add, "y", 2), "w": (inc, "z")}
    assert get(graph, "w", cache=cache) == 43
    assert cache["w"] == 43 and "z" not in cache  # only what was asked for is kept
    cache = {"y": 41}
    with dask.config.set(cache=cache):
        assert get(graph, ["z", "y"]) == (43, 41)
    assert cache["z"] == 43


@every_get
@pytest.mark.parametrize("value", ["x", (fail, "x"), ["x", 2], {"x"}], ids=["key", "task", "list", "set"])
def test_what_a_cache_has_is_no_part_of_the_graph(get, value):
    assert get({**GRAPH, "w": (type, "y")}, ["w", "y"], cache={"y": value}) == (type(value), value)


def meet(barrier):
    barrier.wait(WAIT_S)
    return threading.get_ident()


@pytest.mark.parametrize("make", [concurrent.futures.ThreadPoolExecutor, multiprocessing.pool.ThreadPool])
def test_pool_has_as_many_tasks_at_a_time_as_threads(make):
    barrier, number = threading.Barrier(3), len(os.sched_getaffinity(0)) + 4
    graph = {("x", i): (meet, barrier) for i in range(3 * number)}
    with make(3) as pool:
        assert len(set(tenon.dask.get(graph, list(graph), pool=pool, num_workers=1))) == 3
        with dask.config.set(pool=pool):
            assert len(set(tenon.dask.get(graph, list(graph)))) == 3


@pytest.mark.parametrize("make", [concurrent.futures.ThreadPoolExecutor, multiprocessing.pool.ThreadPool])
def test_pool_says_how_many_processes_there_are(make):
    graph = {("x", i): (os.getpid,) for i in range(12)}
    with make(1) as pool:
        assert len({os.getpid(), *tenon.dask.get_processes(graph, list(graph), pool=pool)}) == 2
        with dask.config.set(pool=pool):
            assert len(set(tenon.dask.get_processes(graph, list(graph)))) == 1


def meet_other(own, other):
    tenon.Event(own).set()
    return tenon.Event(other).wait(WAIT_S)


@every_get
def test_tasks_are_handed_over_one_by_one_whatever_chunksize_says(get):
    """Dask would hand over both tasks to one worker, where the first one waits for the second."""
    for options, configured in ({"chunksize": 2}, {}), ({}, {"chunksize": 2}), ({"chunksize": -1}, {}):
        events = [tenon.Event(name) for name in ("chunk.one", "chunk.other")]
        names = [event.name for event in events]
        with dask.config.set(configured):
            graph = {"x": (meet_other, *names), "y": (meet_other, *reversed(names))}
            assert get(graph, ["x", "y"], **options) == (True, True)
        for event in events:
            event.clear()


def worker_of(value):
    return os.getpid(), threading.get_ident()


@both_gets
def test_number_of_workers_may_be_configured(get):
    graph = {("x", i): (worker_of, i) for i in range(20)}
    get = getattr(get, "func", get)  # which names no number
    with dask.config.set(num_workers=1):
        assert len(set(get(graph, list(graph), callbacks=[(None,) * 5]))) == 1


@every_get
def test_keys_may_be_tuples_and_nested_lists(get):
    graph = {("x", 0): 1, ("x", 1): (inc, ("x", 0)), "s": (sum, [("x", 0), ("x", 1)])}
    assert get(graph, ("x", 1)) == 2
    assert get(graph, [[("x", 0), ["s"]], ("x", 1), []]) == ((1, (3,)), 2, ())
    assert get(graph, []) == ()
    for keys in "gone", ["s", "gone"], ("x", 2), [["gone"]]:
        with pytest.raises(KeyError):
            get(graph, keys)


# ---- what stands for other values


class Future:
    """As another scheduler's future: Dask reads its key."""

    __dask_future__ = True

    def __init__(self, key):
        self.key = key


needs_nodes = pytest.mark.skipif(spec is None, reason="this Dask has no nodes")
futures = pytest.mark.parametrize("future", [Future, spec.TaskRef] if spec is not None else [])


@needs_nodes
@futures
@every_get
def test_future_in_a_graph_is_the_result_of_its_key(get, future):
    y = future("y")
    graph = {"y": (inc, 0), "a": (inc, y), "b": y, "c": (sum, [y, 4]), "d": [y, 5], "e": (inc, (inc, y)), "f": (sum, ["a", y])}
    assert get(graph, ["a", "b", "c", "d", "e", "f"]) == (2, 1, 5, [1, 5], 3, 3)
    assert get(graph, "f") == 3


@needs_nodes
@futures
@pytest.mark.parametrize("optimize_graph", [False, True])
def test_future_is_read_in_fused_tasks(future, optimize_graph):
    graph = {"y": (inc, 0), "a": (inc, future("y")), "b": (inc, "a"), "c": (add, "b", future("y"))}
    assert get_processes(graph, "c", optimize_graph=optimize_graph) == 4


@needs_nodes
@every_get
def test_missing_input_is_named(get):
    for value in (inc, spec.TaskRef("gone")), spec.Task("x", inc, spec.TaskRef("gone")), spec.TaskRef("gone"):
        with pytest.raises(ValueError, match="Missing dependency '?gone"):
            get({"x": value}, "x")
    assert get(GRAPH, "z") == 12


@every_get
def test_only_what_the_keys_need_is_run(get):
    assert get({**GRAPH, "w": (fail, "x"), "v": (inc, "w")}, "z") == 12


# ---- callbacks


@every_get
def test_state_of_callbacks_has_all_that_dask_names(get):
    names = "cache dependencies dependents waiting waiting_data ready running finished released"
    seen = {}

    def look(key, dsk, state):
        seen[key] = {name: set(state[name]) for name in names.split()}
        if spec is not None:
            assert dsk["x"]() == 1

    assert get(GRAPH, "z", callbacks=[(None, None, look, None, None)]) == 12
    assert seen["y"]["running"] == {"y"} and seen["y"]["waiting"] == {"z"}
    assert seen["z"]["finished"] == {"y"} and seen["z"]["released"] == {"x"} and set(seen["z"]["cache"]) == {"y"}


class Watch(Callback):
    def __init__(self, error=None):
        super().__init__()
        self.events, self.error = [], error

    def _start(self, dsk):
        if self.error is not None:
            raise self.error
        self.events.append("start")

    def _start_state(self, dsk, state):
        self.events.append("state")

    def _pretask(self, key, dsk, state):
        self.events.append(key)

    def _posttask(self, key, value, dsk, state, worker):
        assert threading.current_thread() is threading.main_thread()
        self.events.append((key, value))

    def _finish(self, dsk, state, errored):
        self.events.append(("finish", errored))


@both_gets
def test_callbacks_are_called_in_order_and_told_of_the_end(get):
    with Watch() as watch:
        assert get(GRAPH, "z") == 12
        assert watch.events == ["start", "state", "y", ("y", 2), "z", ("z", 12), ("finish", False)]
        del watch.events[:]
        with pytest.raises(LookupError):
            get({"x": (fail, 1)}, "x")
        assert watch.events == ["start", "state", "x", ("finish", True)]
    last = Watch(RuntimeError("mine"))
    first = Watch()
    with pytest.raises(RuntimeError, match="mine"):
        get(GRAPH, "z", callbacks=[first._callback, last._callback])
    assert first.events == ["start", ("finish", True)] and last.events == []
    assert get(GRAPH, "z") == 12


def hold(seconds, *values):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return bytes(1000)


@both_gets
def test_all_diagnostics_of_dask_at_once(get):
    pytest.importorskip("psutil")
    graph = {"a": (hold, 0.05), "b": (hold, 0.05, "a"), "c": (hold, 0.05, "b")}
    text = io.StringIO()
    with Profiler() as times, ResourceProfiler(dt=0.005) as use, CacheProfiler(metric=len) as kept:
        with ProgressBar(out=text, dt=0.01):
            assert get(graph, "c") == bytes(1000)
    assert [row.key for row in times.results] == ["a", "b", "c"]
    assert all(row.end_time - row.start_time >= 0.05 for row in times.results)
    assert [row.key for row in sorted(kept.results, key=lambda row: row.cache_time)] == ["a", "b", "c"]
    assert {row.metric for row in kept.results} == {1000}
    during = [row for row in use.results if times.results[0].start_time <= row.time <= times.results[-1].end_time]
    assert during and all(row.mem > 0 for row in during)
    assert "100% Completed" in text.getvalue()
    use.close()


# ---- calls within tasks


def run_in_threads(i):
    return tenon.dask.get({"x": i, "y": (inc, "x")}, "y")


def run_in_processes(i):
    return get_processes({"x": i, "y": (inc, "x"), "pid": (os.getpid,)}, ["y", "pid"])


@every_get
def test_tasks_run_graphs_in_threads(get):
    graph = {("x", i): (run_in_threads, i) for i in range(8)}
    assert get({**graph, "s": (sum, list(graph))}, "s") == sum(range(1, 9))


@every_get
def test_tasks_run_graphs_in_processes(get):
    results = get({"a": (run_in_processes, 1), "b": (run_in_processes, 2), "pid": (os.getpid,)}, ["a", "b", "pid"])
    (a, one), (b, other), worker = results
    assert (a, b) == (2, 3) and not {one, other} & {worker, os.getpid()}


def test_workers_of_a_worker_end_with_it():
    _, inner = get_processes({"x": (run_in_processes, 1)}, "x", num_workers=1)
    end = os.pidfd_open(inner)  # which fails if it has ended already
    (pool,) = (pool for place, pool in _dask_processes._pools.items() if place[1] == 1)
    _dask_processes.forget_pool(pool)
    assert select.select([end], [], [], WAIT_S)[0]
    os.close(end)


# ---- exceptions that cannot be pickled


def fail_around_a_lock():
    try:
        raise TypeError(threading.Lock())
    except TypeError as error:
        raise KeyError("mine") from error


def fail_after_a_lock():
    try:
        raise TypeError(threading.Lock())
    except TypeError:
        return {}["mine"]


@pytest.mark.parametrize("function", [fail_around_a_lock, fail_after_a_lock])
def test_exception_arrives_without_those_that_cannot(function):
    """Dask sends the cause and the context of an exception where tblib is installed."""
    with pytest.raises(KeyError, match="mine"):
        get_processes({"x": (function,)}, "x")
