# SPDX-License-Identifier: Apache-2.0
"""The workers of a pool: each does one task after the other, and pushes its result."""

import os
import struct
import time

from .. import _core
from .._cpython import ExceptionWithTraceback, MaybeEncodingError, helper_reraises

ATTEMPTS = 3
# Ahead of a task: job, index, bytes of the name of its function.
TASK = struct.Struct("<qqq")
# Ahead of a result: job, index, pid, attempt, whether it was given up. Without a job, it is an
# error: that of a task that could not be had any more.
RESULT = struct.Struct("<qqqqq")
# Of each worker: the task it is at (job, index), and whether it has left in good order.
JOB, INDEX, LEFT, CELLS = range(4)
NONE = -1

_ENDED = _core.Closed, _core.PeerDied  # the pool, or its process
# What may pass: a process at its limit of descriptors, a table that is full, a silent tenond.
_PASSING = _core.Full, _core.SystemFailed, _core.ManagerFailed, _core.NoMemory, _core.Denied
# What a message is dropped for: what its tensors lie in was removed, or replaced.
LOST = _core.NotFound, _core.Corrupt, _core.VersionMismatch
# How long a worker tries. A pop that lasts longer has waited for a task: it waits at most 6 s for
# tenond, the slowest of what it may need.
_PATIENCE_S = 10
_MANY_BYTES = 1 << 20  # of a message that may be too large
_LOOK_S = 1  # between two looks for whether it is
_MOST_SHOWN = 1000  # characters of a result that cannot be sent
_NAP_S = 0.05


def work(tasks, results, cells, initializer, initargs, most_tasks, wraps):
    if initializer is not None:
        initializer(*initargs)
    done = 0
    while most_tasks is None or done < most_tasks:
        try:
            message = _pop(tasks, results)
            _do(message, results, cells, wraps)
        except _ENDED:
            break
        del message
        done += 1
    cells[LEFT] = 1


def _pop(tasks, results):
    """Pop a task. What it lacks may pass, or another worker may have it: so try again, for a while."""
    until_s = None
    while True:
        begun_s = time.monotonic()
        try:
            return tasks.pop()
        except (*_PASSING, *LOST) as error:
            now_s = time.monotonic()
            if until_s is None or now_s - begun_s > _PATIENCE_S:
                until_s = now_s + _PATIENCE_S
            if isinstance(error, LOST):
                data, tensors = _core.dumps(error, results.domain)
                results.push(RESULT.pack(NONE, 0, os.getpid(), 0, False) + data, tensors)
            if now_s >= until_s:
                raise
            time.sleep(_NAP_S)


def _do(message, results, cells, wraps):
    job, index, name_bytes = TASK.unpack_from(message.data)
    cells[INDEX] = index
    cells[JOB] = job
    body = TASK.size + name_bytes
    given_up = message.attempt >= ATTEMPTS
    if given_up:
        result = message.data[TASK.size : body].decode()
    else:
        result = _result_of(memoryview(message.data)[body:], message.tensors, wraps)
    head = RESULT.pack(job, index, os.getpid(), message.attempt, given_up)
    _push(results, head, result)
    message.ack()
    cells[JOB] = NONE


def push(queue, data, tensors):
    """Push. A message that its domain's quota, which may change, cannot hold is refused."""
    while True:
        try:
            queue.push(data, tensors, _LOOK_S if len(data) > _MANY_BYTES else None)
            return
        except _core.TimedOut:
            quota_bytes = queue.domain.quota_bytes
            if len(data) > quota_bytes:
                text = f"{len(data)} bytes are more than the domain's quota of {quota_bytes}"
                raise _core.NoMemory(text) from None


def _push(results, head, result):
    """Push a result, or why it cannot be pushed."""
    is_pickled = False
    try:
        data, tensors = _core.dumps(result, results.domain)
        is_pickled = True
        push(results, head + data, tensors)
    except Exception as error:
        if is_pickled and isinstance(error, _ENDED):
            raise
        failure = False, _encoding_error(error, result[1])
        data, tensors = _core.dumps(failure, results.domain)
        results.push(head + data, tensors)


def _encoding_error(error, value):
    """As of the standard library, but short: the value may be too large to be sent."""
    try:
        shown = repr(value)
    except Exception:
        shown = object.__repr__(value)
    failure = MaybeEncodingError(error, None)
    failure.value = shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + "..."
    failure.args = failure.exc, failure.value
    return failure


def _result_of(body, tensors, wraps):
    func = None
    try:
        func, args, keywords = _core.loads(body, tensors)
        return True, func(*args, **keywords)
    except Exception as error:
        if wraps and func is not helper_reraises:
            error = ExceptionWithTraceback(error, error.__traceback__)
        return False, error
