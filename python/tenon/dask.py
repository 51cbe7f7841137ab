# SPDX-License-Identifier: Apache-2.0
"""A scheduler for Dask that knows resources: CPUs and what else tasks need.

    import dask
    import tenon.dask

    dask.config.set(scheduler=tenon.dask.get)

Tasks run in threads of this process. A task needs one CPU, unless its function was decorated with tenon.resources().
"""

import dask as _dask
from dask import local as _local
from dask.core import flatten as _flatten

from . import _dask_graph, _resources

__all__ = ["get"]


def get(dsk, keys, cache=None, num_workers=None, pool=None, callbacks=None, rerun_exceptions_locally=None, **kwargs):
    """Run the tasks of a graph that the keys need, and return the values of the keys.

    Parameters
    ----------
    dsk : mapping
        A graph of Dask: a dict, a HighLevelGraph, or an expression. It is not changed.
    keys : key, or nested lists of keys
        What is asked for.
    num_workers : int, optional
        How many CPUs the tasks have; else as `num_workers` of dask.config, or as tenon.set_options() says.
    cache, pool, callbacks, rerun_exceptions_locally, get_id
        As dask.threaded.get takes them. With any of them, and with callbacks that are active, each task is handed to
        the scheduler on its own, in Dask's order and at Dask's speed.

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
    if num_workers is None:
        num_workers = _dask.config.get("num_workers", None)
    if pool is None:
        pool = _dask.config.get("pool", None)
    if rerun_exceptions_locally is None:
        rerun_exceptions_locally = _dask.config.get("rerun_exceptions_locally", False)
    if cache is None:
        cache = _dask.config.get("cache", None)
    graph = _dask_graph.as_dict(dsk)
    scheduler = _resources.scheduler(num_workers)
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
