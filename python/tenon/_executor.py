# SPDX-License-Identifier: Apache-2.0
"""Calls in threads of this process, which begin when what they request is free."""

import concurrent.futures
import threading

from . import _calls, _resources, _schedulers

__all__ = ["Executor"]


class Executor(concurrent.futures.Executor):
    """Threads that run calls when the resources that the calls request are free.

    As concurrent.futures.ThreadPoolExecutor, but with as many calls at a time as the resources allow. It can be used in
    a `with` statement, and from asyncio with `loop.run_in_executor`.

    Parameters
    ----------
    resources : dict, optional
        What there is, as for tenon.set_options(); else what tenon.set_options() or the environment variable
        TENON_RESOURCES says.
    repeatable : bool
        Whether a call may be made twice. If so, a call that raises a MemoryError, or what other libraries raise when the
        memory of a device runs out, is made once more when no other call has a part of what it requests. Not a call of
        which tenon.resources(), or the request, says `writes_inputs`.
    """

    def __init__(self, resources=None, *, repeatable=False):
        self._calls = _calls.Calls(_schedulers.new_scheduler(resources), repeatable)
        self._max_workers = int(self._calls.scheduler.core.resources()["CPU"][0]) or 1  # as Dask asks of executors
        self._is_shut_down = False
        self._lock = threading.Lock()
        self._closing = threading.Lock()

    def submit(self, fn, /, *args, resources=None, after=(), **kwargs):
        """Call fn(*args, **kwargs) when the resources that it requests are free.

        Parameters
        ----------
        fn : callable
        resources : dict, optional
            What the call requests, such as {"GPU": 1, "CPU": 0}, with "affinity" and "writes_inputs" as for
            tenon.resources(); else what tenon.resources() says of the function; else one CPU.
        after : future of this executor, or iterable of them
            Calls that must have ended before, also if they failed or were cancelled. With affinity, the call begins on
            the slot on which the one of them ran whose result is the largest array, if that slot is soon free. Futures
            in the arguments are handed on as they are.

        Returns
        -------
        concurrent.futures.Future

        Raises
        ------
        ValueError
            The call requests more than there is, or a resource that there is not; or a future of `after` is not of this
            executor.
        TypeError
            The request is malformed, or `after` is no future.
        RuntimeError
            The executor was shut down, or the interpreter ends.
        """
        scheduler = self._calls.scheduler
        request = _resources.request_of(fn) if resources is None else _resources.read_request(resources)
        after = self._read_after(after)
        with self._lock:
            if self._is_shut_down or _schedulers.is_ending:
                why = "the executor was shut down" if self._is_shut_down else "the interpreter ends"
                raise RuntimeError(f"{why}: the executor takes no more calls")
            return self._calls.begin(scheduler.kind(_resources.name_of(fn), request), fn, args, kwargs, after)

    def _read_after(self, after):
        after = (after,) if isinstance(after, concurrent.futures.Future) else tuple(after)
        for each in after:
            if not isinstance(each, concurrent.futures.Future):
                raise TypeError(f"`after` has {each!r}, which is no future of this executor")
            if getattr(each, "_calls", None) is not self._calls:
                raise ValueError("`after` has a future that is not of this executor")
        return after

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
