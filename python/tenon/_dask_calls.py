# SPDX-License-Identifier: Apache-2.0
"""Runs in which Dask goes through the graph, and a scheduler chooses among the tasks that are ready."""

import functools
import os
import sys

from dask.core import get_dependencies
from dask.order import order

from . import _calls, _dask_requests, _resources, _schedulers

PRIORITIES = 1 << 16  # that a scheduler tells apart
AHEAD = 32  # tasks that a scheduler gets beside those for which there are CPUs: others may secede


def function_of(value):
    """The function that a task calls; None: it is none."""
    if type(value) is tuple and value and callable(value[0]):
        return value[0]
    return _dask_requests.read_call(value).func


def as_it_is(value):
    """What a task calls that only puts values together."""
    return value


def has_requests(graph):
    """Whether a task requests an amount of a resource."""
    return _resources.Request.known and any(
        any(_resources.ways_of(_resources.request_of(function_of(value)) or {}))
        for value in graph.values()
    )


def run_noting(execute, tasks):
    """Run tasks as Dask does. Returns their results, and whether the memory of one of them ran out."""
    errors = []

    def note(pack_exception, error, dumps):
        errors.append(error)
        return pack_exception(error, dumps)

    # The last part of a task is the function that packs what the task raises.
    pid = os.getpid()
    results = execute([(*task[:-1], functools.partial(note, task[-1])) for task in tasks])
    if os.getpid() != pid:
        _resources.leave_forked(errors.pop() if errors else None)
    return results, bool(errors) and _schedulers.has_run_out(errors.pop())


class CallsOfTasks(_calls.Calls):
    """Calls whose results are lists: the key, what packs the value, and whether the task has failed."""

    def bytes_of(self, results):
        total = 0
        for _, packed, has_failed in results:
            value, more = packed[:2] if type(packed) is tuple and len(packed) in (2, 3) else (packed, None)
            if isinstance(value, bytes):
                total += len(value)
                if isinstance(more, list):  # arrays of bytes, which _dask_processes.dumps() left out
                    total += sum(map(super().bytes_of, more))
            elif not has_failed:
                total += super().bytes_of(value)
        return total


class Handover:
    """Takes tasks from dask.local.get_async(), as an executor does, when they are ready."""

    _is_ahead = False  # whether more tasks are taken than there are CPUs for, if none has a request

    def __init__(self, scheduler, graph):
        self.scheduler = scheduler
        self._graph = graph
        self._priorities = {}
        self._numbers = None  # of the calls, by key, if affinity needs them
        self._places = {}  # of the calls, by key, if a trace needs them
        self._max_workers = int(scheduler.core.resources()["CPU"][0]) or 1
        limit = _calls.BATCH
        has_more = has_requests(graph)
        if has_more:
            # An error now, not when the task would begin.
            kinds = {scheduler.find_kind(function_of(value) or as_it_is) for value in graph.values()}
            if kinds & scheduler.kinds_with_affinity:
                self._numbers, limit = {}, sys.maxsize
        if has_more or self._is_ahead and len(graph) > self._max_workers:
            # Tasks wait for various resources, so the scheduler gets all that are ready, with their places in Dask's
            # order. Else Dask keeps those for which there is no CPU, but for some.
            places = order(graph)
            step = max(1, -(-len(places) // PRIORITIES))
            self._priorities = {key: PRIORITIES // 2 - 1 - place // step for key, place in places.items()}
            self._max_workers = max(self._max_workers, len(graph)) if has_more else self._max_workers + AHEAD
        self._calls = CallsOfTasks(scheduler, is_repeatable=True, limit=limit)

    def submit(self, execute, tasks):
        key = tasks[0][0]
        function = function_of(self._graph[key]) or as_it_is
        kind = self.scheduler.find_kind(function)
        run = functools.partial(self.call, key, _resources.request_of(function), execute, tasks)
        inputs = ()
        if kind in self.scheduler.kinds_with_affinity:
            keys = get_dependencies(self._graph, key)
            inputs = tuple(self._numbers[each] for each in keys if each in self._numbers)
        future, number = self._calls.give(kind, run, self._priorities.get(key, 0), inputs)
        if self._numbers is not None:
            self._numbers[key] = number
        if self.scheduler.arrows is not None:
            keys = get_dependencies(self._graph, key)
            self._calls.draw(future._place, [self._places[each] for each in keys if each in self._places])
            self._places[key] = future._place
        return future

    def call(self, key, request, execute, tasks):
        """Run the tasks. In a thread of the scheduler that has what they request."""
        results, has_run_out = run_noting(execute, tasks)
        if has_run_out:
            raise _calls.RanOut(results)
        return results

    def cancel(self):
        self._calls.cancel()
