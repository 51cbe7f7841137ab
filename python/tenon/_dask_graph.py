# SPDX-License-Identifier: Apache-2.0
"""Dask's graphs of all versions, as Scheduler.run() of the C extension reads them.

A graph is a dict. Scheduler.run() reads simple calls itself, and calls convert() for the rest, which gives objects
with `dependencies` and `func` that are called with the values of their dependencies: of Dask's class GraphNode, or
before Dask had that, of Node.
"""

import contextlib

from dask import core

from . import _core

try:
    from dask import _task_spec as spec
except ImportError:
    spec = None


class Node:
    """A part of a graph that is called with a dict of its inputs."""

    __slots__ = ("dependencies", "func", "key", "work")

    def __init__(self, key, work, dependencies, func):
        self.key = key
        self.work = work
        self.dependencies = dependencies
        self.func = func

    def __call__(self, values):
        return core._execute_task(self.work, values)


class Data(Node):
    """A part of a graph that is there already."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


if spec is not None:
    node_type, data_type = spec.GraphNode, spec.DataNode
else:
    node_type, data_type = Node, Data


def as_dict(graph):
    """The graph of what get() was given, which nobody else changes meanwhile."""
    if not isinstance(graph, dict) and hasattr(graph, "__dask_graph__"):
        graph = graph.__dask_graph__()
    return graph if type(graph) is dict else dict(graph)


def take_result(key, graph, cache):
    """A result that a cache has, as a value of a graph: no task, and no key of the graph."""
    value = cache[key]
    if spec is not None:
        return spec.DataNode(key, value)
    if not core.istask(value) and type(value) is not list and not (core.ishashable(value) and value in graph):
        return value
    del cache[key]  # a task puts it there again, which that Dask does not expect of what is there
    return (core.literal(value),)


def with_results(graph, cache):
    """The graph with the results that a cache has, in place of the tasks that would make them. Dask runs these tasks."""
    if not cache:
        return graph
    return {**graph, **{key: take_result(key, graph, cache) for key in graph if key in cache}}


@contextlib.contextmanager
def naming_circles(graph, keys):
    """A block in which tasks that wait for each other in a circle are one error, which names them."""
    try:
        yield
    except (KeyError, RuntimeError, ValueError) as error:  # an Invalid of tenon is a ValueError
        texts = "in a circle", "Cycle detected", "no accessible jobs"
        if not isinstance(error, KeyError) and not any(text in str(error) for text in texts):
            raise
        circle = core.getcycle(graph, list(core.flatten([keys])))
        if not circle:
            raise
        names = " -> ".join(map(repr, circle))
        raise _core.Invalid(f"tasks wait for each other in a circle: {names}") from None


def converter(graph):
    """The function convert(key, value) of a graph."""
    if spec is None:

        def convert(key, value):
            if not core.istask(value) and type(value) is not list and not core.ishashable(value):
                return Data(value)
            dependencies = core.get_dependencies(graph, task=value)
            if not core.istask(value) and type(value) is not list and not dependencies:
                return Data(value)
            func = value[0] if core.istask(value) else type(value)
            return Node(key, value, dependencies, func)

    else:

        def convert(key, value):
            node = spec.convert_legacy_task(key, value, graph)
            if isinstance(node, spec.Alias) and node.target == key:
                raise KeyError(key)
            return node if isinstance(node, spec.GraphNode) else spec.DataNode(key, node)

    return convert
