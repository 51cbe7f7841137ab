# SPDX-License-Identifier: Apache-2.0
"""Pools whose tasks survive the death of a worker.

A pool behaves as the standard library's, with these differences. If a worker dies, another worker
gets its task; a task that has killed three workers fails with WorkerDied. If workers die before they
take a task, all jobs fail with WorkerDied, and no more workers are started. If a task or a result
cannot be pickled or unpickled, the result raises that exception.

A task is leased to its worker until the result is in the queue of results. A worker that dies after
that, and before it acknowledges the task, leaves a result and a task that runs again. The pool drops
the second result.
"""

import os
import queue
import threading

from .. import _cpython
from .._cpython import CLOSE, INIT, RUN
from .._cpython import pool as _standard
from . import _pipe, _pool_worker
from ._pool_engine import Engine, WorkerDied  # noqa: F401

__all__ = ["Pool", "ThreadPool"]

# Users find the class here.
WorkerDied.__module__ = __name__
ThreadPool = _standard.ThreadPool


class _Notifier:
    """A pipe that wakes the thread for the workers. put() makes it look like a queue."""

    def __init__(self):
        self.reader, self._writer = _pipe.make()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        _cpython.Finalize(self, _cpython.close_fds, (self.reader, self._writer))

    def put(self, unused):
        try:
            os.write(self._writer, b"1")
        except BlockingIOError:
            pass  # the thread has not read the last wake-up yet

    def clear(self):
        try:
            while os.read(self.reader, 4096):
                pass
        except BlockingIOError:
            pass


def _thread(target):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


class Pool(_standard.Pool):
    """multiprocessing.Pool."""

    def __init__(
        self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None
    ):
        from .context import _default_context

        self._pool = []
        self._state = INIT
        self._ctx = context or _default_context.get_context()
        if processes is None:
            processes = getattr(os, "process_cpu_count", os.cpu_count)() or 1
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and (
            not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0
        ):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._processes = processes
        self._taskqueue = queue.SimpleQueue()
        self._change_notifier = _Notifier()
        self._cache = _cpython.PoolCache(notifier=self._change_notifier)
        self._engine = self._start(initializer, initargs, maxtasksperchild)
        threads = self._worker_handler, self._task_handler, self._result_handler
        self._terminate = _cpython.Finalize(self, self._engine.terminate, threads, exitpriority=15)
        self._state = RUN

    def _start(self, initializer, initargs, most_tasks):
        make, context, wraps = self.Process, self._ctx, self._wrap_exception

        def start_worker(engine, cells):
            given = initializer, initargs, most_tasks, wraps
            arguments = engine.tasks, engine.results, cells, *given
            worker = make(context, target=_pool_worker.work, args=arguments)
            worker.name = worker.name.replace("Process", "PoolWorker")
            worker.daemon = True
            worker.start()
            return worker

        engine = Engine(
            self._processes,
            start_worker,
            self._pool,
            self._taskqueue,
            self._cache,
            self._change_notifier,
        )
        try:
            engine.repopulate()
        except BaseException:
            for worker in self._pool:
                worker.terminate()
            for worker in self._pool:
                worker.join()
            raise
        self._worker_handler = _thread(engine.watch_workers)
        self._task_handler = _thread(engine.put_tasks)
        self._result_handler = _thread(engine.take_results)
        return engine

    def _repopulate_pool(self):
        self._engine.repopulate()

    def _map_async(self, func, iterable, mapper, chunksize=None, *callbacks, **more):
        # Divide by the wanted number of workers; there may be none at the moment.
        if not hasattr(iterable, "__len__"):
            iterable = list(iterable)
        if chunksize is None:
            chunksize = -(-len(iterable) // (self._processes * 4))
        return super()._map_async(func, iterable, mapper, chunksize, *callbacks, **more)

    def _check_running(self):
        super()._check_running()
        if self._engine.broken is not None:
            raise self._engine.broken

    def close(self):
        if self._state == RUN:
            self._state = CLOSE
            self._engine.state = CLOSE
            self._change_notifier.put(None)


def __getattr__(name):
    """The other names of the standard library's module."""
    return getattr(_standard, name)
