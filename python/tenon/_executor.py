# SPDX-License-Identifier: Apache-2.0
"""Calls in threads of this process, which begin when what they request is free."""

import concurrent.futures
import contextvars
import functools
import threading

from . import _resources, _schedulers

__all__ = ["Executor"]


class Calls:
    """The calls that were given to a scheduler and have not ended, each with its future."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self._futures = set()
        self._lock = threading.Lock()

    def begin(self, kind, function, args=(), keywords=None, priority=0):
        """Call a function when the resources of its kind are free. Returns a future."""
        future = concurrent.futures.Future()
        run = functools.partial(contextvars.copy_context().run, function, *args, **(keywords or {}))
        call = functools.partial(self._call, future, run)
        with self._lock:
            self._futures.add(future)
        try:
            self.scheduler.core.submit(kind, call, priority)
        except BaseException:
            with self._lock:
                self._futures.discard(future)
            raise
        return future

    def _call(self, future, run):
        with self._lock:
            self._futures.discard(future)
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = run()
        except BaseException as error:
            future.set_exception(error)
            future = None  # the error has this frame, in its traceback
        else:
            future.set_result(result)

    def cancel(self):
        """Cancel what has not begun."""
        with self._lock:
            futures = list(self._futures)
        for future in futures:
            future.cancel()


class Executor(concurrent.futures.Executor):
    """Threads that run calls when the resources that the calls request are free.

    As concurrent.futures.ThreadPoolExecutor, but with as many calls at a time as the resources allow. It can be used in
    a `with` statement, and from asyncio with `loop.run_in_executor`.

    Parameters
    ----------
    resources : dict, optional
        What there is, as for tenon.set_options(); else what tenon.set_options() or the environment variable
        TENON_RESOURCES says.
    """

    def __init__(self, resources=None):
        self._calls = Calls(_schedulers.new_scheduler(resources))
        self._max_workers = int(self._calls.scheduler.core.resources()["CPU"][0]) or 1  # as Dask asks of executors
        self._is_shut_down = False
        self._lock = threading.Lock()
        self._closing = threading.Lock()

    def submit(self, fn, /, *args, resources=None, **kwargs):
        """Call fn(*args, **kwargs) when the resources that it requests are free.

        Parameters
        ----------
        fn : callable
        resources : dict, optional
            What the call requests, such as {"GPU": 1, "CPU": 0}, with resources under "affinity" as for
            tenon.resources(); else what tenon.resources() says of the function; else one CPU.

        Returns
        -------
        concurrent.futures.Future

        Raises
        ------
        ValueError
            The call requests more than there is, or a resource that there is not.
        RuntimeError
            The executor was shut down, or the interpreter ends.
        """
        scheduler = self._calls.scheduler
        request = _resources.request_of(fn) if resources is None else _resources.read_request(resources)
        with self._lock:
            if self._is_shut_down or _schedulers.is_ending:
                why = "the executor was shut down" if self._is_shut_down else "the interpreter ends"
                raise RuntimeError(f"{why}: the executor takes no more calls")
            return self._calls.begin(scheduler.kind(_resources.name_of(fn), request), fn, args, kwargs)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Take no more calls, and wait for those that were submitted.

        Parameters
        ----------
        wait : bool
            Whether to return only when all calls have ended.
        cancel_futures : bool
            Whether to cancel the calls that have not begun.
        """
        with self._lock:
            self._is_shut_down = True
        if cancel_futures:
            self._calls.cancel()
        if wait:
            with self._closing:
                _schedulers.close(self._calls.scheduler.core)
