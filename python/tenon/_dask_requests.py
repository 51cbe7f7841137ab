# SPDX-License-Identifier: Apache-2.0
"""What the tasks of Dask's graphs request, also those that Dask has fused with others.

A scheduler reads the request of a task from the function that the task calls. Dask puts several calls into one task:
calls nested in the arguments of another, and graphs within a call. ask() gives a graph in which each task has one
request: calls that request something else than the call around them become tasks of their own.
"""

import copy
import functools
import inspect
import itertools

import dask
from dask import core, optimization

from ._dask_graph import spec
from ._resources import ATTRIBUTE, MOST_WAYS, Request, attribute_of, read_request, request_of, ways_of

# Their calls only put values together, so they run where the call around them runs.
CONTAINERS = (list, tuple, dict, set, frozenset, slice)


class Asking:
    """A function that gives back its argument, for a task that requests what the functions in it request."""

    def __init__(self, request, name):
        self.__name__ = name
        setattr(self, ATTRIBUTE, request)

    def __call__(self, value):
        return value

    def __reduce__(self):
        return Asking, (getattr(self, ATTRIBUTE), self.__name__)


def merge(one, other):
    """The request for calls in one task: of each resource the larger amount. None: nothing was said of resources."""
    if one is None or other is None or one == other:
        return other if one is None else one
    ways = []
    for its, others in itertools.product(ways_of(one), ways_of(other)):
        way = {}
        for name in {**its, **others}:
            least = 1 if name == "CPU" else 0
            way[name] = max(its.get(name, least), others.get(name, least))
        if way not in ways:
            ways.append(way)
    both = Request(ways[0])
    if len(ways) > 1:
        both["otherwise"] = tuple(ways[1:MOST_WAYS])
    both["affinity"] = tuple(dict.fromkeys(one.get("affinity", ()) + other.get("affinity", ())))
    if one.get("writes_inputs") or other.get("writes_inputs"):
        both["writes_inputs"] = True
    return both


def is_lazy(func):
    """Whether a call of this function only begins when its result is read."""
    while isinstance(func, functools.partial):
        func = func.func
    return hasattr(func, "__next__") if isinstance(func, type) else inspect.isgeneratorfunction(func)


def passed_request(value):
    """What the functions request that are a value, or are in it, as arguments of a call are."""
    request = None
    if isinstance(value, (list, tuple)):
        for item in value:
            request = merge(request, passed_request(item))
    elif isinstance(value, dict):
        request = passed_request(list(value.values()))
    elif isinstance(value, functools.partial):
        request = merge(request_of(value), passed_request([value.args, value.keywords]))
    elif callable(value):
        request = request_of(value)
    return request


class Call:
    """A call as it is in a graph: what it calls, and its arguments. None in `func`: it is no call."""

    func = None
    children = ()
    inner = None  # of a graph in a call: (graph, key of the result, keys of the arguments)


if spec is not None:

    def read_call(value):
        call = Call()
        if not isinstance(value, spec.Task):
            return call
        if isinstance(value, spec.NestedContainer):
            call.func, call.children = value.klass, value.args
        elif value.has_subgraph():
            call.func, call.inner, call.children = value.func, value.args[:3], value.args[3:]
        else:
            call.func, call.children = value.func, [*value.args, *value.kwargs.values()]
        return call

    def with_children(value, children):
        if isinstance(value, spec.Dict):
            return spec.Dict(children)
        if isinstance(value, spec.NestedContainer):
            return type(value)(*children)
        if value.has_subgraph():
            children = [*value.args[:3], *children]
        count = len(value.args)
        return spec.Task(value.key, value.func, *children[:count], **dict(zip(value.kwargs, children[count:])))

    def is_part(value):
        return isinstance(value, spec.Task)

    def refer(key):
        return spec.TaskRef(key)

    def rename(value, names, key):
        """The value of a graph with other names for its inputs, and for its own key."""
        if not isinstance(value, spec.GraphNode):
            return spec.DataNode(key, value)
        value = value.substitute(names, key=key)
        if value.key != key:  # substitute() may have left it as it was
            value = copy.copy(value)
            value.key = key
        return value

    def key_of(value):
        """The key that an argument of a call refers to. None: it is a value or a call itself."""
        return value.key if isinstance(value, spec.TaskRef) else None

    def wrap(key, asking, value):
        return spec.Task(key, asking, value)

    def read_value(key, value, graph):
        """The value of a graph as a node; simple calls that request nothing stay as they are."""
        if isinstance(value, spec.GraphNode) or passed_request(value) is None:
            return value
        return spec.convert_legacy_task(key, value, graph)

else:

    def read_call(value):
        call = Call()
        if core.istask(value):
            call.func, call.children = value[0], list(value[1:])
            if isinstance(call.func, optimization.SubgraphCallable):
                call.inner = (call.func.dsk, call.func.outkey, call.func.inkeys)
        elif type(value) is list:
            call.func, call.children = list, value
        return call

    def with_children(value, children):
        return (value[0], *children) if core.istask(value) else children

    def is_part(value):
        return core.istask(value) or type(value) is list

    def refer(key):
        return key

    def rename(value, names, key):
        if core.istask(value):
            return (value[0], *(rename(item, names, None) for item in value[1:]))
        if type(value) is list:
            return [rename(item, names, None) for item in value]
        try:
            return names.get(value, value)
        except TypeError:
            return value

    def key_of(value):
        return value if core.ishashable(value) and not is_part(value) else None

    def wrap(key, asking, value):
        return (asking, value)

    def read_value(key, value, graph):
        return value


def own_request(value):
    """The request of a call, without those of the calls in its arguments that can be tasks of their own."""
    call = read_call(value)
    request = passed_request(call.func)
    for child in call.children:
        if not is_part(child):
            request = merge(request, passed_request(child))
        elif belongs(child):
            request = merge(request, own_request(child))
    return request


def belongs(value):
    """Whether a call is always in the task of the call around it."""
    func = read_call(value).func
    return func in CONTAINERS or is_lazy(func)


class Division:
    """The division of one value of a graph into tasks that have one request each."""

    def __init__(self, key, count=0):
        self.key = key
        self.tasks = {}  # new keys and their values
        self.count = count  # of new keys

    def new_key(self):
        self.count += 1
        return ("part", self.count, self.key)

    def put(self, key, value, request):
        """Add a task, which asks for what its outermost function does not say."""
        call = read_call(value)
        if request is not None and (call.inner is not None or request != request_of(call.func)):
            value = wrap(key, Asking(request, name_of(value)), value)
        self.tasks[key] = value

    def divide(self, key, value):
        """Add the tasks that make a value, the last of them with this key."""
        if is_part(value):
            self.put(key, *self.visit(key, value))
        else:
            self.tasks[key] = value

    def visit(self, key, value):
        """Add tasks for the calls in a call that request something else. Returns what is left, and its request."""
        call = read_call(value)
        if call.inner is not None:
            return self.visit_graph(key, value, call)
        request = own_request(value)
        return self.visit_arguments(value, request), request

    def visit_arguments(self, value, request):
        call = read_call(value)
        children = [self.visit_argument(child, request) if is_part(child) else child for child in call.children]
        if all(new is old for new, old in zip(children, call.children)):
            return value
        return with_children(value, children)

    def visit_argument(self, value, request):
        if belongs(value):
            return self.visit_arguments(value, request)
        value, asked = self.visit(None, value)
        if asked == request or not is_part(value):
            return value
        key = self.new_key()
        self.put(key, rename(value, {}, key), asked)
        return refer(key)

    def visit_graph(self, key, value, call):
        """The same for a call with a graph in it, which is taken apart if its tasks have different requests."""
        graph, result, inputs = call.inner
        names = {name: self.new_key() for name in [*graph, *inputs]}
        names.update((name, key_of(child)) for name, child in zip(inputs, call.children) if key_of(child) is not None)
        if key is not None:
            names[result] = key
        inside = Division(self.key, self.count)
        requests = []
        for name in graph:
            inner = rename(graph[name], names, names[name])
            if is_part(inner):
                inner, request = inside.visit(names[name], inner)
                requests.append(request)
                inside.put(names[name], inner, request)
            else:
                inside.tasks[names[name]] = inner
        request = requests[0] if requests else None
        if len(inside.tasks) == len(graph) and requests.count(request) == len(requests):
            return self.visit_arguments(value, request), request
        self.count = inside.count
        for name, child in zip(inputs, call.children):
            if key_of(child) is None:
                self.divide(names[name], rename(child, {}, names[name]))
        self.tasks.update(inside.tasks)
        if key is None:
            return refer(names[result]), None
        value = self.tasks.pop(key)
        return value, request_of(read_call(value).func)


def name_of(value):
    return attribute_of(read_call(value).func, "__name__", str) or "task"


def annotations_of(graph):
    """The resources of dask.annotate(), by key. What holds for all keys has the key None."""
    resources = {}
    now = dask.get_annotations() if hasattr(dask, "get_annotations") else dask.config.get("annotations", {})
    if now and "resources" in now:
        resources[None] = now["resources"]
    if hasattr(graph, "__dask_annotations__"):
        resources.update(graph.__dask_annotations__().get("resources", {}))
    for layer in getattr(graph, "layers", {}).values():
        asked = (layer.annotations or {}).get("resources")
        if asked is not None:
            resources.update((key, asked(key) if callable(asked) else asked) for key in layer.get_output_keys())
    return resources


def ask(graph, annotations):
    """A graph that makes the same values, and in which each task asks for what all its calls request."""
    if not Request.known and not annotations:
        return graph
    new = {}
    for key, value in graph.items():
        annotated = annotations.get(key, annotations.get(None))
        if annotated is None and not Request.known:
            new[key] = value
            continue
        value = read_value(key, value, graph)
        if not is_part(value):
            new[key] = value
            continue
        if annotated is None:
            division = Division(key)
            division.divide(key, value)
            new.update(division.tasks)
            continue
        annotated = read_request(annotated)
        if not annotated["affinity"]:
            del annotated["affinity"]
        request = Request({**(request_within(value) or {}), **annotated})
        new[key] = wrap(key, Asking(request, name_of(value)), value)
    return new


def request_within(value):
    """The request for all calls in a value at once."""
    call = read_call(value)
    request = passed_request([call.func, *call.children]) if call.func is not None else None
    inner = () if call.inner is None else call.inner[0].values()
    for child in itertools.chain(call.children, inner):
        if is_part(child):
            request = merge(request, request_within(child))
    return request
