# SPDX-License-Identifier: Apache-2.0
"""A scheduler for Dask that knows resources: CPUs and what else tasks need.

    import dask
    import tenon.dask

    dask.config.set(scheduler=tenon.dask.get)

Tasks run in threads of this process, or with get_processes in worker processes, to which arrays go by reference. A task
needs one CPU, unless its function was decorated with tenon.resources(), or its key was annotated with
dask.annotate(resources=...).
"""

import sys as _sys
import threading as _threading

import dask as _dask
from dask import local as _local
from dask import optimization as _optimization
from dask.callbacks import Callback as _Callback
from dask.core import flatten as _flatten

from . import _dask_calls, _dask_graph, _dask_requests, _schedulers

__all__ = ["get", "get_processes"]

# Arguments for which each task is handed over on its own, by Dask.
_OBSERVING = ("get_id", "pack_exception", "raise_exception", "dumps", "loads")


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
    cache : mutable mapping, optional
        Where Dask keeps results during the run, and those of the keys afterwards; else as `cache` of dask.config. A
        key that it has already is not computed.
    callbacks, rerun_exceptions_locally, get_id, pack_exception, raise_exception, dumps, loads
        As dask.threaded.get takes them. With any of them, with a cache, and with callbacks that are active, Dask hands
        over each task on its own, which takes some 50 microseconds.
    **kwargs
        `chunksize`, which has no meaning here, and all others are ignored, as dask.threaded.get ignores what it does
        not know.

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
    cache = setting("cache", None) if cache is None else cache
    graph = _dask_requests.ask(_dask_graph.with_results(_dask_graph.as_dict(dsk), cache), annotations)
    num_workers = num_workers or setting("num_workers", None)
    pool = pool or setting("pool", None)
    options = {name: kwargs[name] for name in _OBSERVING if kwargs.get(name) is not None}
    options["cache"] = cache
    options["callbacks"] = kwargs.get("callbacks")
    rerun = kwargs.get("rerun_exceptions_locally")
    options["rerun_exceptions_locally"] = setting("rerun_exceptions_locally", False) if rerun is None else rerun
    if pool is not None:
        if not hasattr(pool, "submit"):
            pool = _local.MultiprocessingPoolExecutor(pool)
        if not _dask_calls.has_requests(graph):
            return _observe(pool, graph, keys, options)
        num_workers = pool._max_workers
    scheduler = _schedulers.scheduler(num_workers)
    if any(value is not None and value is not False for value in options.values()) or _Callback.active:
        return _hand_over(scheduler, graph, keys, options)
    return _run(scheduler, graph, keys)


def _run(scheduler, graph, keys):
    """Run a graph without Dask."""
    flat = list(_flatten([keys]))
    if len(flat) > 1:
        flat = list(dict.fromkeys(flat))
    with _dask_graph.naming_circles(graph, keys):
        values = scheduler.core.run(
            graph,
            flat,
            _dask_graph.node_type,
            _dask_graph.data_type,
            _dask_graph.converter(graph),
            scheduler.find_kind,
        )
    return _local.nested_get(keys, dict(zip(flat, values)))


def _pack_exception(error, dumps):
    return error, _sys.exc_info()[2]


def _observe(executor, graph, keys, options):
    """Have Dask go through the graph."""
    if _dask_graph.spec is None:  # that Dask would also run what the keys do not need
        graph, _ = _optimization.cull(graph, keys)
    options.setdefault("get_id", _threading.get_ident)
    options.setdefault("pack_exception", _pack_exception)
    with _dask_graph.naming_circles(graph, keys):
        return _local.get_async(executor.submit, executor._max_workers, graph, keys, chunksize=1, **options)


def _hand_over(scheduler, graph, keys, options):
    """Have Dask go through the graph, and the scheduler choose among the tasks that are ready."""
    with _dask_graph.naming_circles(graph, keys):
        handover = _dask_calls.Handover(scheduler, graph)
    try:
        return _observe(handover, graph, keys, options)
    finally:
        handover.cancel()


def get_processes(dsk, keys, num_workers=None, optimize_graph=True, initializer=None, pool=None, share_arrays=False, **kwargs):
    """Run the tasks of a graph that the keys need in worker processes, and return the values of the keys.

    Arguments and results go by reference: the memory of their arrays lies in the arena of the default domain, which
    all workers and this process map. It is the same memory for all tasks that read it, so tasks must not write into
    their arguments. What else they have is pickled.

    The workers are kept for later calls, and end with this process. If a worker dies, another runs its tasks; a task
    that has ended three workers fails with tenon.multiprocessing.pool.WorkerDied, which names the task and these
    workers.

    Parameters
    ----------
    dsk, keys
        As for get().
    num_workers : int, optional
        How many CPUs there are, each a process, and one CPU if a task does not say otherwise; else as `num_workers` of
        dask.config; else as tenon.set_options() says; else the number of processors. If the graph requests resources,
        there are more processes for tasks that request less than one CPU: as many as slots, at least one, or as the
        resource THREADS says. So many of these tasks run at a time.
    optimize_graph : bool
        Whether tasks that form a chain are fused before, unless they request different resources.
    initializer : callable, optional
        What each worker calls at its beginning. The workers are not kept then.
    pool
        Only its number of processes counts, as `num_workers`.
    share_arrays : bool
        Whether arrays of NumPy that tasks make lie in shared memory from the start, as with tenon.numpy_allocator(). So
        results are not copied. It suits tasks that neither fork, since children would write into the same arrays, nor
        write later into an array that they have returned.
    cache, callbacks, rerun_exceptions_locally
        As for get().
    get_id, pack_exception, raise_exception
        As dask.local.get_async takes them. The first two are called in the workers, so pickle must know them.
    func_dumps, func_loads : callable, optional
        What takes the place of pickle for tasks and results, as for dask.multiprocessing.get; give both. Else as
        `func_dumps` and `func_loads` of dask.config. Their names in dask.local.get_async, `dumps` and `loads`, are
        taken, too.
    **kwargs
        `chunksize`, since each task goes to a worker on its own, and all others are ignored.

    Returns
    -------
    The value of the key; or tuples of values, nested as the lists of keys are.

    Raises
    ------
    KeyError, ValueError
        As for get().
    tenon.multiprocessing.pool.WorkerDied
        A task has ended three workers, or workers die before they take a task.
    BaseException
        What the first task that failed has raised; what pickle raises for a function, an argument or a result, with the
        key of the task.
    """
    from . import _dask_processes

    pool = pool or _dask.config.get("pool", None)
    if pool is not None:
        num_workers = getattr(pool, "_max_workers", None) or pool._processes
    annotations = _dask_requests.annotations_of(dsk)
    cache = kwargs.get("cache")
    cache = _dask.config.get("cache", None) if cache is None else cache
    graph = _dask_graph.with_results(_dask_graph.as_dict(dsk), cache)
    with _dask_graph.naming_circles(graph, keys):
        prepared = _dask_processes.prepare(graph, keys, optimize_graph, annotations)
        return _dask_processes.run(prepared, keys, num_workers, initializer, share_arrays, kwargs)
