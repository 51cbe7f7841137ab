# SPDX-License-Identifier: Apache-2.0
"""Calls that can run in several ways: tenon.resources(otherwise=)."""

import functools
import os
import threading

import pytest
from chosen_dask import dask, workers_of_module  # noqa: I001: before what imports Dask
import tenon
import tenon.dask

WAIT_S = 60
ONE_CARD = {"CPU": 2, "GPU": (5,)}


@tenon.resources(GPU=1, CPU=0, otherwise={"CPU": 1})
def where(*inputs):
    return tenon.resource_id("GPU", None)


@pytest.fixture(scope="module", autouse=True)
def workers():
    with workers_of_module():
        yield


everywhere = pytest.mark.parametrize(
    "get",
    [tenon.dask.get, functools.partial(tenon.dask.get, callbacks=[(None,) * 5]), tenon.dask.get_processes],
    ids=["in C", "by Dask", "processes"],
)


@everywhere
def test_call_has_what_is_free(get):
    with tenon.set_options(resources=ONE_CARD):
        assert get({"x": (where,)}, "x") == 5


@everywhere
def test_call_runs_otherwise_on_a_machine_without_the_resource(get):
    with tenon.set_options(resources={"CPU": 2}):
        assert get({"x": (where,)}, "x") is None


@everywhere
def test_call_that_can_run_in_no_way_is_refused(get):
    @tenon.resources(GPU=2, otherwise=[{"GPU": 3}, {"MEM": 1}])
    def never():
        pass

    with tenon.set_options(resources=ONE_CARD):
        with pytest.raises(ValueError, match="a task requests MEM=1, and the scheduler has only"):
            get({"x": (never,)}, "x")


def test_two_calls_at_a_time_run_in_two_ways():
    both = threading.Barrier(2)

    @tenon.resources(GPU=1, CPU=0, otherwise={"CPU": 1})
    def meet():
        both.wait(WAIT_S)
        return tenon.resource_id("GPU", None)

    with tenon.set_options(resources=ONE_CARD):
        assert set(tenon.dask.get({"x": (meet,), "y": (meet,)}, ["x", "y"])) == {5, None}
    with tenon.Executor(ONE_CARD) as executor:
        assert {future.result(WAIT_S) for future in [executor.submit(meet), executor.submit(meet)]} == {5, None}


def test_faster_way_is_chosen_when_both_are_known():
    slow, began = threading.Event(), []

    @tenon.resources(CPU=1, otherwise={"CPU": 0, "GPU": 1})
    def work(number):
        card = tenon.resource_id("GPU", None)
        began.append(card)
        if card is None:
            slow.wait(0.05)

    with tenon.set_options(resources=ONE_CARD):
        graph = {f"work{i}": (work, i) for i in range(60)}
        tenon.dask.get(graph, list(graph))
    assert began.count(5) > began.count(None) > 0


@pytest.mark.parametrize("options", [{}, {"callbacks": [(None,) * 5]}], ids=["in C", "by Dask"])
def test_call_whose_memory_runs_out_runs_otherwise(options):
    seen = []

    @tenon.resources(GPU=1, CPU=0, otherwise={"CPU": 2})
    def run_out():
        seen.append(tenon.resource_id("GPU", None))
        if seen[-1] is not None:
            raise MemoryError
        return "done"

    with tenon.set_options(resources=ONE_CARD):
        assert tenon.dask.get({"x": (run_out,)}, "x", **options) == "done"
    assert seen == [5, 5, None]


def test_calls_in_one_task_have_ways_that_suit_all():
    @tenon.resources(MEM=1)
    def outer(function):
        return function(), tenon.resource_id("GPU", None)

    with tenon.set_options(resources={"CPU": 2, "MEM": 1}), tenon.trace(os.devnull) as made:
        assert tenon.dask.get({"x": (outer, where)}, "x") == (None, None)
    assert max(amount for _, amount in made.occupancy()["MEM"]) == 1
    with tenon.set_options(resources={**ONE_CARD, "MEM": 1}):
        assert tenon.dask.get({"x": (outer, where)}, "x") == (5, 5)


def test_request_of_one_submit():
    with tenon.Executor(ONE_CARD) as executor:
        wanted = {"TPU": 1, "otherwise": {"GPU": 1, "CPU": 0}, "affinity": ["GPU"]}
        assert executor.submit(lambda: tenon.resource_id("GPU"), resources=wanted).result(WAIT_S) == 5


def test_annotation_of_dask():
    with dask.annotate(resources={"TPU": 1, "otherwise": {"GPU": 1, "CPU": 0}}):
        value = dask.delayed(lambda: tenon.resource_id("GPU"))()
    with tenon.set_options(resources=ONE_CARD):
        assert value.compute(scheduler=tenon.dask.get, optimize_graph=False) == 5


def test_annotation_of_layers_that_dask_fuses():
    array = pytest.importorskip("dask.array")
    with tenon.set_options(resources={"CPU": 2}):
        with dask.annotate(resources={"GPU": 1, "otherwise": "CPU=2"}):
            total = (array.ones((8, 8), chunks=4) + 1).sum()
        assert total.compute(scheduler=tenon.dask.get) == 128


class Callable:
    @tenon.resources(GPU=1, CPU=0, otherwise="CPU=1")
    def __call__(self):
        return tenon.resource_id("GPU", None)


def test_request_of_an_object_whose_call_is_decorated():
    with tenon.set_options(resources=ONE_CARD):
        assert tenon.dask.get({"x": (Callable(),)}, "x") == 5


@everywhere
def test_default_is_not_for_sums(get):
    @tenon.resources(GPU=1, CPU=0)
    def ask():
        return tenon.resource_id("GPU", None)

    with tenon.set_options(resources={"CPU": 2, "GPU": 2}):
        with pytest.raises(tenon.Invalid, match="GPU is a sum"):
            get({"x": (ask,)}, "x")


def test_trace_counts_what_the_way_needs(tmp_path):
    @tenon.resources(GPU=1, CPU=0, otherwise={"CPU": 2})
    def work():
        pass

    with tenon.set_options(resources={"CPU": 2}), tenon.trace(tmp_path / "trace.json") as made:
        tenon.dask.get({"x": (work,)}, "x")
    assert max(amount for _, amount in made.occupancy()["CPU"]) == 2 and "GPU" not in made.occupancy()


@pytest.mark.parametrize("resource", ["GPU", "TPU"])
def test_default_where_there_are_no_slots(resource):
    assert tenon.resource_id(resource, "none") == "none"  # no task
    with tenon.set_options(resources=ONE_CARD):
        assert tenon.dask.get({"x": (tenon.resource_id, resource, -1)}, "x") == -1
        with pytest.raises(tenon.Invalid):
            tenon.dask.get({"x": (tenon.resource_id, resource)}, "x")


@pytest.mark.parametrize(
    "otherwise, error, match",
    [
        ("CPU", ValueError, "`otherwise` has the text 'CPU'"),
        ("CPU=1 MEM=x", ValueError, "`otherwise` has the text 'CPU=1 MEM=x'"),
        (3, TypeError, "`otherwise` is 3: it must be amounts"),
        ([1], TypeError, "`otherwise` is"),
        ([{"CPU": 1}] * 4, ValueError, "`otherwise` has 4 ways to run a call: it may have 3"),
        ({"CPU": -1}, ValueError, "the amount of the resource CPU is -1"),
        ({"CPU": 1, "affinity": ["GPU"]}, ValueError, "`otherwise` has 'affinity'"),
        ({"otherwise": {}}, ValueError, "`otherwise` has 'otherwise'"),
        ({1: 1}, TypeError, "the name of a resource is 1"),
    ],
)
def test_wrong_otherwise(otherwise, error, match):
    with pytest.raises(error, match=match):
        tenon.resources(GPU=1, otherwise=otherwise)
