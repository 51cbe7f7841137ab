# SPDX-License-Identifier: Apache-2.0
"""A scheduler for Dask that knows resources: CPUs and what else tasks need.

    import dask
    import tenon.dask

    dask.config.set(scheduler=tenon.dask.get)

Tasks run in threads of this process. A task needs one CPU, unless its function was decorated with tenon.resources(),
or its key was annotated with dask.annotate(resources=...).
"""

import sys as _sys
import threading as _threading

import dask as _dask
from dask import local as _local
from dask.callbacks import Callback as _Callback
from dask.core import flatten as _flatten
from dask.order import order as _order

from . import _dask_graph, _dask_requests, _executor, _resources

__all__ = ["get"]

# Arguments for which each task is handed over on its own, by Dask.
_OBSERVING = ("get_id", "pack_exception", "raise_exception", "dumps", "loads")
_PRIORITIES = 1 << 16


def get(dsk, keys, cache=None, num_workers=None, pool=None, **kwargs):
    """Run the tasks of a graph that the keys need, and return the values of the keys.

    Parameters
    ----------
    dsk : mapping
        A graph of Dask: a dict, a HighLevelGraph, or an expression. It is not changed.
    keys : key, or nested lists of keys
        What is asked for.
    num_workers : int, optional
        How many CPUs the tasks have; else as `num_workers` of dask.config, or as tenon.set_options() says.
    pool : concurrent.futures.Executor or multiprocessing.pool.Pool, optional
        As dask.threaded.get takes it: tasks run in its threads, if none of them requests resources. Else only its
        number of threads counts, as `num_workers`.
    cache, callbacks, rerun_exceptions_locally, get_id, pack_exception, raise_exception, dumps, loads
        As dask.threaded.get takes them. With any of them, and with callbacks that are active, Dask hands over each
        task on its own, which takes some 50 microseconds.

    Returns
    -------
    The value of the key; or tuples of values, nested as the lists of keys are.

    Raises
    ------
    KeyError
        The graph does not have one of the keys.
    ValueError
        Tasks wait for each other in a circle, an input of a task is missing, or a task needs more than there is.
    BaseException
        What the first task that failed has raised.
    """
    setting = _dask.config.get
    annotations = _dask_requests.annotations_of(dsk)
    graph = _dask_requests.ask(_dask_graph.as_dict(dsk), annotations)
    num_workers = num_workers or setting("num_workers", None)
    pool = pool or setting("pool", None)
    options = {name: kwargs[name] for name in _OBSERVING if kwargs.get(name) is not None}
    options["cache"] = cache if cache is not None else setting("cache", None)
    options["callbacks"] = kwargs.get("callbacks")
    rerun = kwargs.get("rerun_exceptions_locally")
    options["rerun_exceptions_locally"] = setting("rerun_exceptions_locally", False) if rerun is None else rerun
    if pool is not None:
        if not hasattr(pool, "submit"):
            pool = _local.MultiprocessingPoolExecutor(pool)
        if not _requests(graph):
            return _observe(pool.submit, pool._max_workers, graph, keys, options)
        num_workers = pool._max_workers
    scheduler = _resources.scheduler(num_workers)
    if any(value is not None and value is not False for value in options.values()) or _Callback.active:
        return _hand_over(scheduler, graph, keys, options)
    return _run(scheduler, graph, keys)


def _run(scheduler, graph, keys):
    """Run a graph without Dask."""
    flat = list(_flatten([keys]))
    if len(flat) > 1:
        flat = list(dict.fromkeys(flat))
    values = scheduler.core.run(
        graph,
        flat,
        _dask_graph.node_type,
        _dask_graph.data_type,
        _dask_graph.converter(graph),
        scheduler.find_kind,
    )
    return _local.nested_get(keys, dict(zip(flat, values)))


def _requests(graph):
    return _resources.Request.known and any(
        _resources.request_of(_dask_requests.read_call(value).func) is not None for value in graph.values()
    )


def _observe(submit, size, graph, keys, options):
    """Have Dask go through the graph."""
    options.setdefault("get_id", _threading.get_ident)
    options.setdefault("pack_exception", lambda error, dumps: (error, _sys.exc_info()[2]))
    return _local.get_async(submit, size, graph, keys, chunksize=1, **options)


def _hand_over(scheduler, graph, keys, options):
    """Have Dask go through the graph, and the scheduler choose among the tasks that are ready."""
    calls = _executor.Calls(scheduler)
    size = int(scheduler.core.resources()["CPU"][0]) or 1
    priorities = {}
    if _requests(graph):  # Dask's order among all that is ready, since some of it waits for other resources
        places = _order(graph)
        step = max(1, -(-len(places) // _PRIORITIES))
        priorities = {key: _PRIORITIES // 2 - 1 - place // step for key, place in places.items()}
        size = max(size, len(graph))

    def submit(execute, tasks):
        key = tasks[0][0]
        function = _dask_requests.read_call(graph[key]).func or execute
        return calls.begin(scheduler.find_kind(function), execute, (tasks,), priority=priorities.get(key, 0))

    try:
        return _observe(submit, size, graph, keys, options)
    finally:
        calls.cancel()
