# SPDX-License-Identifier: Apache-2.0
"""Runs in which Dask goes through the graph, and a scheduler chooses among the tasks that are ready."""

from dask.order import order

from . import _dask_requests, _executor, _resources

PRIORITIES = 1 << 16  # that a scheduler tells apart


def function_of(value):
    """The function that a task calls; None: it is none."""
    if type(value) is tuple and value and callable(value[0]):
        return value[0]
    return _dask_requests.read_call(value).func


def as_it_is(value):
    """What a task calls that only puts values together."""
    return value


def has_requests(graph):
    return _resources.Request.known and any(
        _resources.request_of(function_of(value)) is not None for value in graph.values()
    )


class Handover:
    """Takes tasks from dask.local.get_async(), as an executor does, when they are ready."""

    def __init__(self, scheduler, graph):
        self.scheduler = scheduler
        self._graph = graph
        self._calls = _executor.Calls(scheduler)
        self._priorities = {}
        self._max_workers = int(scheduler.core.resources()["CPU"][0]) or 1
        if has_requests(graph):
            for value in graph.values():  # an error now, not when the task would begin
                scheduler.find_kind(function_of(value) or as_it_is)
            # Tasks wait for various resources, so the scheduler gets all that are ready, with their places in Dask's
            # order. Else Dask keeps those for which there is no CPU.
            places = order(graph)
            step = max(1, -(-len(places) // PRIORITIES))
            self._priorities = {key: PRIORITIES // 2 - 1 - place // step for key, place in places.items()}
            self._max_workers = max(self._max_workers, len(graph))

    def submit(self, execute, tasks):
        key = tasks[0][0]
        function = function_of(self._graph[key]) or as_it_is
        kind = self.scheduler.find_kind(function)
        request = _resources.request_of(function)
        return self._calls.begin(
            kind, self.call, (key, request, execute, tasks), priority=self._priorities.get(key, 0)
        )

    def call(self, key, request, execute, tasks):
        """Run the tasks. In a thread of the scheduler that has what they request."""
        return execute(tasks)

    def cancel(self):
        self._calls.cancel()
