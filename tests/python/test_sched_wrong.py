# SPDX-License-Identifier: Apache-2.0
"""Graphs, requests and options that are wrong: the error comes at once, and the scheduler goes on."""

import concurrent.futures
import operator
import os
import sys
import threading

import pytest
from chosen_dask import dask, workers_of_module  # noqa: I001: before what imports Dask
import tenon
import tenon.dask
from tenon._dask_graph import spec as nodes

WAIT_S = 60
MACHINE = {"CPU": 2, "GPU": ((0, 1), (2, 3)), "MEM": 4}


@pytest.fixture(autouse=True, scope="module")
def workers():
    with workers_of_module():
        yield


def inc(value):
    return value + 1


@tenon.resources(GPU=4)
def inc_alone(value):
    return value + 1


def get_by_dask(graph, keys):
    return tenon.dask.get(graph, keys, callbacks=[(None,) * 5])


@pytest.fixture(params=[tenon.dask.get, get_by_dask, tenon.dask.get_processes], ids=["in C", "by Dask", "in processes"])
def get(request):
    """Each way to run a graph, which works after the test."""
    with tenon.set_options(resources=MACHINE):
        yield request.param
        assert request.param({"x": 1, "y": (inc, "x"), "z": (inc_alone, "y")}, "z") == 3


# ---- graphs


@tenon.resources(GPU=1)
def kernel(*values):
    return 1


@pytest.mark.parametrize("function", [operator.add, kernel], ids=["plain", "with a request"])
def test_circle_is_named(get, function):
    graph = {"w": 1, "x": (function, "y", "w"), "y": (inc, "x"), "z": (inc, "y")}
    with pytest.raises(ValueError, match="circle: ('x' -> 'y' -> 'x'|'y' -> 'x' -> 'y')$"):
        get(graph, ["w", "z"])
    with pytest.raises(ValueError, match="circle: 'x' -> 'x'$"):
        get({"x": (function, "x", 1)}, "x")


def test_error_of_a_task_that_speaks_of_circles_is_raised_as_it_is(get):
    def fail():
        raise RuntimeError("Cycle detected in a circle")

    with pytest.raises(RuntimeError, match="^Cycle detected in a circle") as raised:
        get({"x": (fail,)}, "x")
    assert not isinstance(raised.value, ValueError)


def test_key_that_the_graph_does_not_have(get):
    for keys in "y", ["x", ["y"]]:
        with pytest.raises(KeyError, match="y"):
            get({"x": 1}, keys)


def test_input_that_the_graph_does_not_have(get):
    spec = pytest.importorskip("dask._task_spec")
    graph = {"x": spec.Task("x", inc, spec.TaskRef("lost")), "y": spec.Task("y", inc, spec.TaskRef("x"))}
    with pytest.raises(ValueError, match="lost.*x"):
        get(graph, "y")


@pytest.mark.parametrize("run", [tenon.dask.get, get_by_dask], ids=["in C", "by Dask"])
def test_chain_of_10000_tasks(run):
    """That of workers is test_get_stack_limit() in test_dask_processes.py."""
    graph = {"x0": 0, **{f"x{i}": (inc, f"x{i - 1}") for i in range(1, 10001)}}
    with tenon.set_options(resources=MACHINE):
        assert run(graph, "x10000") == 10000


def test_graph_of_a_million_tasks():
    """With an old Dask fewer, since the test takes long and no code of Dask has a part in it."""
    count = 1_000_000 if nodes is not None else 100_000
    with tenon.set_options(resources=MACHINE):
        graph = {("x", i): (abs, -i) for i in range(count)}
        graph["sum"] = (sum, list(graph))
        assert tenon.dask.get(graph, "sum") == sum(range(count))


def test_wide_graph_that_dask_hands_over():
    """Each task takes some 50 us: a million would take a minute."""
    count = 100_000 if os.environ.get("TN_TEST_FULL") else 5_000
    graph = {("x", i): (abs, -i) for i in range(count)}
    graph["sum"] = (sum, list(graph))
    with tenon.set_options(resources=MACHINE):
        assert get_by_dask(graph, "sum") == sum(range(count))


# ---- requests


@pytest.mark.parametrize(
    "amounts, what",
    [
        ({"NPU": 1}, "NPU=1.*only CPU=2"),
        ({"GPU": 5}, "GPU=5.*GPU=4 slots"),
        ({"CPU": 3}, "CPU=3.*CPU=2"),
        ({"MEM": 4.5}, "MEM=4.5.*MEM=4"),
        ({"GPU": 1.5}, "whole slots, or a part of one"),
        ({"MEM": 1e30}, "an amount is"),
        ({"MEM": 1, "affinity": ["MEM"]}, "affinity.*no slots"),
    ],
)
def test_request_that_this_machine_cannot_meet(get, amounts, what):
    ran = []
    graph = {"first": (ran.append, 1), "x": (tenon.resources(**amounts)(lambda _: 1), "first")}
    with pytest.raises(ValueError, match=what):
        get(graph, "x")
    assert ran == []
    with tenon.Executor(MACHINE) as executor:
        with pytest.raises(ValueError, match=what):
            executor.submit(print, resources=amounts)
        assert executor.submit(inc, 1).result(WAIT_S) == 2


WRONG = [
    ({"GPU": -1}, ValueError, "GPU is -1"),
    ({"CPU": float("nan")}, ValueError, "CPU is nan"),
    ({"MEM": float("inf")}, ValueError, "MEM is inf"),
    ({"MEM": 0.00001}, ValueError, "four decimals"),
    ({"GPU": "1"}, TypeError, "not a number"),
    ({"GPU": None}, TypeError, "not a number"),
    ({"GPU": True}, TypeError, "not a number"),
]


@pytest.mark.parametrize(
    "amounts, error, what",
    [*WRONG, ({"affinity": ["GPU"]}, ValueError, "not requested"), ({"GPU": 0, "affinity": ["GPU"]}, ValueError, "not requested")],
)
def test_request_that_is_malformed(amounts, error, what):
    with pytest.raises(error, match=what):
        tenon.resources(**amounts)
    with tenon.Executor(MACHINE) as executor:
        with pytest.raises(error, match=what):
            executor.submit(print, resources=amounts)
    with dask.annotate(resources=amounts):
        value = dask.delayed(inc)(1)
    with tenon.set_options(resources=MACHINE):
        with pytest.raises(error, match=what):
            value.compute(scheduler=tenon.dask.get, optimize_graph=False)
        assert dask.delayed(inc)(1).compute(scheduler=tenon.dask.get) == 2


# ---- options


@pytest.mark.parametrize(
    "machine, error, what",
    [
        *WRONG,
        ({"GPU": ((0, 1), (1, 2))}, ValueError, "named twice"),
        ({"GPU": (((0, 1), (2,)), ((3, 0),))}, ValueError, "named twice"),
        ({"GPU": (0, -1)}, ValueError, "at least 0"),
        ({"GPU": (0, 1.5)}, TypeError, "not an int"),
        ({"GPU": (0, None)}, TypeError, "not an int"),
        ({"GPU": ()}, ValueError, "no slot"),
        ({"GPU": ((0,), ())}, ValueError, "no slot"),
        ({"CPU": (0, 1)}, ValueError, "CPU is a number"),
        ({"a b": 1}, ValueError, "NAME=VALUE"),
        ({5: 1}, TypeError, "name of a resource"),
        ("GPU=1", TypeError, "not a dict"),
    ],
)
def test_resources_that_are_malformed(machine, error, what):
    with tenon.set_options(resources=MACHINE):
        with pytest.raises(error, match=what):
            tenon.set_options(resources=machine)
        with pytest.raises(error, match=what):
            tenon.Executor(machine)
        assert tenon.dask.get({"x": (inc_alone, 1)}, "x") == 2


# ---- tasks


def test_task_that_ends_its_process_by_an_exception(get):
    with pytest.raises((SystemExit, Exception), match="3") as raised:  # in another process, Dask's class of that name
        get({"x": (sys.exit, 3)}, "x")
    assert "SystemExit" in {each.__name__ for each in type(raised.value).__mro__}


def test_call_that_ends_its_process_by_an_exception():
    with tenon.Executor(MACHINE) as executor:
        assert isinstance(executor.submit(sys.exit, 3).exception(WAIT_S), SystemExit)
        assert executor.submit(inc, 1).result(WAIT_S) == 2


def test_call_that_does_not_end_holds_up_what_needs_its_resources():
    go_on = threading.Event()
    with tenon.Executor({"CPU": 1, "GPU": (0, 1)}) as executor:
        hanging = executor.submit(go_on.wait, WAIT_S, resources={"GPU": 1, "CPU": 0})
        wide = executor.submit(inc, 1, resources={"GPU": 2})
        with pytest.raises(concurrent.futures.TimeoutError):
            wide.result(0.01)
        assert executor.submit(inc, 1).result(WAIT_S) == 2
        go_on.set()
        assert hanging.result(WAIT_S) and wide.result(WAIT_S) == 2
