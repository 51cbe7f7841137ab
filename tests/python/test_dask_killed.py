# SPDX-License-Identifier: Apache-2.0
"""A worker of get_processes is killed at each kill point on the way of a task that takes and returns an array."""

import collections
import functools
import gc
import os

import pytest
from chosen_dask import workers_of_module  # noqa: I001: before what imports Dask
import numpy as np
import tenon
import tenon.dask
from tenon import _dask_processes, _domain
from tenon.multiprocessing.pool import WorkerDied

LARGE = 1 << 16  # elements
BEGIN = "-- begins"  # a line of the list of points: the worker waits for its first task

# The points that a worker passes from then to the end of its last task. A point that is not named here is found by
# test_each_point_on_the_way_has_a_test.
POINTS = """
    pop_taken adopt_recorded lease_pinned lease_recorded
    alloc_frontier_moved alloc_taken quota_asked alloc_end_raised alloc_committed alloc_recorded
    lend_incremented records_added push_claimed lend_moved push_lent push_full push_tail_passed
    release_announced release_unrecorded ref_decremented ack_emptied take_apart_unrecorded ref_freed
""".split()
# Passed only while others sleep at the same queue. queue_wake_test kills there.
SOMETIMES = {"queue_looking", "wait_called"}
# One point of each step: receiving, making, sending, acknowledging.
EACH_STEP = "lease_recorded", "alloc_recorded", "push_lent", "push_full"
# Passed only by a process that needs memory which no block of the size had before: these have sizes of their own.
OF_NEW_MEMORY = "alloc_frontier_moved", "quota_asked", "alloc_end_raised", "alloc_committed"


@pytest.fixture(autouse=True, scope="module")
def workers():
    tenon.domain()  # so that it is not a worker that starts tenond
    with workers_of_module():
        yield


def note(path, text):
    with open(path, "a") as file:
        print(text, file=file)


def begin(listed, pids):
    note(listed, BEGIN)
    note(pids, os.getpid())


def add_one(array):
    return array + 1


def run(folder, variables, size=LARGE, are_all_armed=False):
    """Run a chain of three tasks in a pool of one worker, and return the result and the workers that were started.

    The environment variables are for the first worker, or for all.
    """
    take_pool = _dask_processes.take_pool

    def take_armed(*args):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return take_pool(*args)  # this starts the first worker

    pids = folder / "pids"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items() if are_all_armed else ():
            patch.setenv(name, value)
        patch.setattr(_dask_processes, "take_pool", take_armed)
        initializer = functools.partial(begin, str(folder / "points"), str(pids))
        graph = {"x": np.zeros(size), "y": (add_one, "x"), "z": (add_one, "y"), "end": (add_one, "z")}
        try:
            result = tenon.dask.get_processes(graph, "end", num_workers=1, optimize_graph=False, initializer=initializer)
        except WorkerDied as error:
            result = error
    return result, [int(pid) for pid in pids.read_text().split()]


@pytest.fixture(scope="module")
def passed(tmp_path_factory):
    """How often a worker passes each point before it waits for its first task, and from there on.

    It may be ended before it acknowledges its last task, so that two of the three are complete.
    """
    folder = tmp_path_factory.mktemp("passed")
    run(folder, {"TENON_KILL_LIST": str(folder / "points")})
    lines = (folder / "points").read_text().splitlines()
    begins = lines.index(BEGIN)
    if begins == 0:
        pytest.skip("a build without kill points")
    ends = max(at for at, line in enumerate(lines) if line == "ack_emptied")
    return collections.Counter(lines[:begins]), collections.Counter(lines[begins + 1 : ends + 1])


@pytest.fixture
def nothing_is_left():
    """The domain has as much in the end as before, and its recount finds nothing."""
    gc.collect()
    before = tenon.inspect().live_bytes
    yield
    gc.collect()
    domain = _domain.default()
    domain.reap()
    assert domain.audit() == []
    assert tenon.inspect().live_bytes <= before


def armed(passed, point):
    """The variable of a worker that dies when it passes the point in its first task."""
    assert passed[1][point] > 0, "no worker passes it"
    return {"TENON_KILL_POINT": f"{point}:{passed[0][point] + 1}"}


def test_each_point_on_the_way_has_a_test(passed):
    assert sum(passed[1].values()) > 40
    assert set(passed[1]) - SOMETIMES == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_graph_has_its_result_when_a_worker_is_killed_at(point, passed, tmp_path, nothing_is_left):
    size = LARGE << (OF_NEW_MEMORY.index(point) + 1) if point in OF_NEW_MEMORY else LARGE
    result, workers = run(tmp_path, armed(passed, point), size)
    assert result.shape == (size,) and (result == 3).all()
    assert len(workers) == 2


@pytest.mark.parametrize("point", EACH_STEP)
def test_graph_ends_when_all_workers_are_killed_at(point, passed, tmp_path, nothing_is_left):
    result, workers = run(tmp_path, armed(passed, point), are_all_armed=True)
    assert len(workers) > 3
    if point in ("lease_recorded", "push_full"):  # with no task, or with one whose result is there
        assert result.task is None and "died before they could take a task" in str(result)
    else:
        assert result.task in ("y", "z", "end") and len(result.pids) == 3 and set(result.pids) <= set(workers)
        assert f"the task {result.task!r} has ended its workers: processes " in str(result)
