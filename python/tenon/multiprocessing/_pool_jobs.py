# SPDX-License-Identifier: Apache-2.0
"""What the jobs of a pool are told: their results, in order, and what made them fail."""

import collections
import contextlib
import functools
import sys
import traceback

from .. import _cpython


class Jobs:
    """The jobs that wait for results, by number.

    lock: an RLock, which is never held while a job is told. is_over: called without arguments;
    once it returns true, no job is told any more.
    """

    def __init__(self, cache, lock, is_over):
        self._cache = cache
        self._lock = lock
        self._is_over = is_over
        self._turns = collections.deque()  # what is still to be told to jobs, in order
        self._is_telling = False

    def set_length(self, set_length, count):
        """Tell a job, by a method of its result, how many results there will be."""
        self._tell_in_turn(functools.partial(self._set_length, set_length, count))

    def fail(self, job, error):
        """End a job, however many results it waits for."""
        self._tell_in_turn(functools.partial(self._fail, job, error))

    def tell(self, job, index, outcome):
        """Give a job one of its results."""
        self._tell_in_turn(functools.partial(self._tell, job, index, outcome))

    def _tell_in_turn(self, act):
        """Run `act` after those that came before it, here or in the thread that is at them.

        Nobody waits for anybody: a callback may take long, or end the pool, and a result may hold
        the last reference of the pool, which ends then.
        """
        self._turns.append(act)
        del act
        while True:
            with self._lock:
                if self._is_telling or not self._turns or self._is_over():
                    return
                self._is_telling = True
            try:
                self._turns.popleft()()
            finally:
                self._is_telling = False

    def _fail(self, job, error):
        if _cpython.fail_result(self._cache.get(job), error):
            self._forget(job)
        else:
            self._tell(job, 0, (False, error))

    def _set_length(self, set_length, count):
        if _cpython.job_of(set_length) in self._cache:  # and has not failed, which set one
            set_length(count)

    def _tell(self, job, index, outcome):
        result = self._cache.get(job)
        if result is None:
            return
        try:
            _cpython.set_outcome(result, index, outcome)
        except BaseException:  # of a callback: this thread goes on, whatever it raised
            traceback.print_exc(file=sys.stderr)
            self._forget(job)
            _cpython.wake_waiters(result)

    def _forget(self, job):
        with contextlib.suppress(KeyError):
            del self._cache[job]  # which wakes who waits for the last one, as pop() does not
