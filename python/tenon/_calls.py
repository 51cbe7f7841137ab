# SPDX-License-Identifier: Apache-2.0
"""Calls that a scheduler of this process got one by one, each with its future."""

import concurrent.futures
import contextvars
import functools
import os
import threading

from . import _core, _resources, _schedulers

BATCH = 4096  # calls after which there is a new batch, since the scheduler keeps what it knows of all calls of one
LARGEST = (1 << 64) - 1  # bytes, which the scheduler takes
LONGEST = 4 * BATCH  # of a batch with calls that go on where others of it ended


class RanOut(Exception):
    """Raised by a call whose memory ran out, and which tells of that by its result."""

    def __init__(self, result):
        super().__init__(result)
        self.result = result


class Call(concurrent.futures.Future):
    """The future of a call."""

    def __init__(self):
        super().__init__()
        self._calls = None  # that have it
        self._place = None  # (batch, number), when the scheduler has it
        self._bytes = 0  # of its result, if that is an array
        self._ran_out = None  # what its last run raised, if its memory ran out

    def _end(self, error):
        """Have the outcome of a call that raised."""
        if isinstance(error, RanOut):
            self.set_result(error.result)
        else:
            self.set_exception(error)


class Calls:
    """The calls that were given to a scheduler and have not ended.

    Parameters
    ----------
    is_repeatable : bool
        Whether a call whose memory ran out is called again, alone.
    limit : int
        How many calls are in a batch.
    """

    def __init__(self, scheduler, is_repeatable=False, limit=BATCH):
        self.scheduler = scheduler
        self._is_repeatable = is_repeatable
        self._is_cancelled = False
        self._limit = limit
        self._batch = None
        self._futures = set()
        self._lock = threading.Lock()

    def begin(self, kind, function, args=(), keywords=None, after=()):
        """Call a function when the resources of its kind are free and other calls have ended. Returns a future."""
        future = self._make()
        run = functools.partial(function, *args, **(keywords or {}))
        context = contextvars.copy_context()

        def submit():
            batch, inputs = self._batch_after(after if kind in self.scheduler.kinds_with_affinity else ())
            self._submit(future, (batch, kind, 0, inputs), context, run)
            self.draw(future._place, [each._place for each in after if each._place is not None])

        if all(each.done() for each in after):
            submit()
        else:
            _Countdown(self, future, submit, after)
        return future

    def give(self, kind, run, priority, inputs=()):
        """The same for a call that reads what calls with these numbers have made. Returns its number too.

        The numbers are those of the only batch.
        """
        future = self._make()
        batch, _ = self._batch_after(())
        self._submit(future, (batch, kind, priority, inputs), contextvars.copy_context(), run)
        return future, future._place[1]

    def draw(self, place, inputs):
        """Note for a trace that the call at a place (batch, number) waited for those at others."""
        arrows = self.scheduler.arrows
        if arrows is not None:
            to = (place[0].number, place[1])
            arrows.extend(((batch.number, number), to) for batch, number in inputs)

    def cancel(self):
        """Cancel what has not begun. What has begun does not begin again."""
        self._is_cancelled = True
        with self._lock:
            futures = list(self._futures)
        for future in futures:
            future.cancel()

    def forget(self, future):
        with self._lock:
            self._futures.discard(future)

    def _make(self):
        future = Call()
        future._calls = self
        with self._lock:
            self._futures.add(future)
        return future

    def _batch_after(self, after):
        """The batch for a call, and the numbers of the calls in it that the scheduler is told of."""
        # One that was cancelled may wait for its resources still.
        inputs = [each for each in after if each._place is not None and not each.cancelled()]
        if inputs:
            batch = max(inputs, key=lambda each: each._bytes)._place[0]
            if batch.count < LONGEST:
                return batch, tuple(each._place[1] for each in inputs if each._place[0] is batch)
        with self._lock:
            if self._batch is None or self._batch.count >= self._limit:
                self._batch = self.scheduler.core.batch()
            return self._batch, ()

    def _submit(self, future, what, context, run):
        batch, kind, priority, inputs = what
        call = functools.partial(self._call, future, context, run)
        try:
            future._place = batch, batch.submit(kind, call, priority, inputs)
        except BaseException:
            self.forget(future)
            raise

    def _call(self, future, context, run, is_last):
        """Call it. In a thread of the scheduler. Returns whether to call it again, unless this is the last time."""
        if future._ran_out is None:
            self.forget(future)
            if not future.set_running_or_notify_cancel():
                return False
        elif self._is_cancelled:
            future._end(future._ran_out)
            return False
        pid = os.getpid()
        try:
            result = context.copy().run(run)
            if os.getpid() != pid:
                _resources.leave_forked(None)
        except BaseException as error:
            if os.getpid() != pid:
                _resources.leave_forked(error)
            if not is_last and self._has_run_out(error):
                future._ran_out = error.with_traceback(None)  # which has this frame
                return True
            future._end(error)
            future = None  # the error has this frame, in its traceback
            return False
        if self.scheduler.kinds_with_affinity or self.scheduler.arrows is not None:
            future._bytes = self.bytes_of(result)
            _core.set_bytes(min(future._bytes, LARGEST))
        future.set_result(result)
        return False

    def _has_run_out(self, error):
        return isinstance(error, RanOut) or (self._is_repeatable and _schedulers.has_run_out(error))

    def bytes_of(self, result):
        """How large a result is, as far as arrays tell."""
        return max(_resources.attribute_of(result, "nbytes", int) or 0, 0)


class _Countdown:
    """Submits a call when the last call that it waits for has ended."""

    def __init__(self, calls, future, submit, after):
        self._calls, self._future, self._submit = calls, future, submit
        self._left = len(after)
        self._lock = threading.Lock()
        for each in after:
            each.add_done_callback(self._arrive)

    def _arrive(self, _):
        with self._lock:
            self._left -= 1
            if self._left > 0:
                return
        submit, self._submit = self._submit, None  # the futures keep this object
        try:
            submit()
        except BaseException as error:
            if self._future.set_running_or_notify_cancel():
                self._future.set_exception(error)
