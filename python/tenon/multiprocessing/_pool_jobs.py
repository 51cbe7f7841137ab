# SPDX-License-Identifier: Apache-2.0
"""Delivering results and errors to the jobs of a pool, one after the other."""

import collections
import contextlib
import functools
import sys
import traceback

from .. import _cpython


class Jobs:
    """The jobs that wait for results, by number.

    `lock` is an RLock, which is never held during a delivery. Once `is_over()` returns true, no job
    gets anything.
    """

    def __init__(self, cache, lock, is_over):
        self._cache = cache
        self._lock = lock
        self._is_over = is_over
        self._due = collections.deque()  # the deliveries that are due, in order
        self._is_delivering = False

    def set_length(self, set_length, count):
        """Deliver the number of results, by a method of the job's iterator."""
        self._deliver_in_order(functools.partial(self._set_length, set_length, count))

    def fail(self, job, error):
        """Deliver an error that ends the job, however many results it waits for."""
        self._deliver_in_order(functools.partial(self._fail, job, error))

    def tell(self, job, index, outcome):
        """Deliver one result of a job."""
        self._deliver_in_order(functools.partial(self._tell, job, index, outcome))

    def _deliver_in_order(self, act):
        """Run `act` after all earlier ones, in this thread or in the thread that runs those.

        No thread waits for another: a callback may take long, or end the pool, and a result may hold
        the last reference to the pool, which then ends.
        """
        self._due.append(act)
        del act
        while True:
            with self._lock:
                if self._is_delivering or not self._due or self._is_over():
                    return
                self._is_delivering = True
            try:
                self._due.popleft()()
            finally:
                self._is_delivering = False

    def _fail(self, job, error):
        if _cpython.fail_result(self._cache.get(job), error):
            self._forget(job)
        else:
            self._tell(job, 0, (False, error))

    def _set_length(self, set_length, count):
        if _cpython.job_of(set_length) in self._cache:  # a failed job has its length already
            set_length(count)

    def _tell(self, job, index, outcome):
        result = self._cache.get(job)
        if result is None:
            return
        try:
            _cpython.set_outcome(result, index, outcome)
        except BaseException:  # of a callback: the thread goes on, whatever it raised
            traceback.print_exc(file=sys.stderr)
            self._forget(job)
            _cpython.wake_waiters(result)

    def _forget(self, job):
        with contextlib.suppress(KeyError):
            del self._cache[job]  # `del` wakes the thread that waits for the last job; pop() would not
