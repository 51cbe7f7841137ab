# SPDX-License-Identifier: Apache-2.0
"""What a worker of a pool runs: it pops tasks, calls their functions and pushes the results."""

import os
import struct
import threading
import time

from .. import _core
from .._cpython import ExceptionWithTraceback, MaybeEncodingError, helper_reraises

ATTEMPTS = 3
# The header of a task: job, index, bytes of the name of its function.
TASK = struct.Struct("<qqq")
# The header of a result: job, index, pid, attempt, and 1 if the task was given up. With the job NONE
# the result is the error of a task that could not be received. With SECEDED there is no result yet:
# the task goes on, and needs no CPU.
RESULT = struct.Struct("<qqqqq")
SECEDED = 2
# The cells of a worker: its task (job, index), and whether it has left normally.
JOB, INDEX, LEFT, CELLS = range(4)
NONE = -1

_ENDED = _core.Closed, _core.PeerDied  # the pool or its process has ended
# Errors that may pass: a limit of descriptors, a full table, a tenond that does not answer.
_PASSING = _core.Full, _core.SystemFailed, _core.ManagerFailed, _core.NoMemory, _core.Denied
# Errors for which a queue drops a message: the file of a tensor was removed or replaced.
LOST = _core.NotFound, _core.Corrupt, _core.VersionMismatch
# How long a worker retries. A pop that lasts longer has waited for a task, since it waits at most
# 6 s for tenond, the slowest resource that it needs.
_PATIENCE_S = 10
_MANY_BYTES = 1 << 20  # a larger message may exceed the quota
_CHECK_S = 1  # between two checks whether it does
_MOST_SHOWN = 1000  # characters of a result that cannot be sent
_NAP_S = 0.05

_running = threading.local()  # the task of this thread: the queue of results, the header of its result


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
    """Pop a task. Retry for a while: a lack may pass, and another worker may get the task."""
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
    body = TASK.size + name_bytes
    given_up = message.attempt >= ATTEMPTS
    if not given_up:  # else a worker that dies here has died without a task: the pool starts only so many
        cells[INDEX] = index
        cells[JOB] = job
    if given_up:
        result = message.data[TASK.size : body].decode()
    else:
        _running.task = results, (job, index, os.getpid(), message.attempt)
        result = _result_of(memoryview(message.data)[body:], message.tensors, wraps)
        _running.task = None
    head = RESULT.pack(job, index, os.getpid(), message.attempt, given_up)
    _push(results, head, result)
    message.ack()
    cells[JOB] = NONE


def secede():
    """Tell the pool that the task of this thread needs no CPU any more. In a worker."""
    results, head = getattr(_running, "task", None) or (None, None)
    if results is not None and head[2] == os.getpid():
        results.push(RESULT.pack(*head, SECEDED))


def push(queue, data, tensors):
    """Push a message. One that is larger than the quota, which may change, raises NoMemory."""
    while True:
        try:
            queue.push(data, tensors, _CHECK_S if len(data) > _MANY_BYTES else None)
            return
        except _core.TimedOut:
            quota_bytes = queue.domain.quota_bytes
            if len(data) > quota_bytes:
                text = f"{len(data)} bytes are more than the domain's quota of {quota_bytes}"
                raise _core.NoMemory(text) from None


def _push(results, head, result):
    """Push a result, or the error that says why it cannot be pushed."""
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
    """The error of the standard library with a short text: the value may be too large to send."""
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
