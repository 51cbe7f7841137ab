# SPDX-License-Identifier: Apache-2.0
"""spawn() and start_processes(), as torch.multiprocessing has them; PyTorch is not needed."""

import faulthandler
import os
import pickle
import select
import signal
import sys

import pytest

import tenon.multiprocessing as mp

METHODS = ["fork", "spawn", "forkserver"]
WITHIN_S = 60

mp.set_forkserver_preload(["pytest", "tenon.multiprocessing"])


def start(method, function, arguments=(), count=2, **options):
    return mp.start_processes(function, arguments, count, start_method=method, **options)


def succeed(index, queue):
    queue.put((index, os.getpid()))


def raise_if(index, who):
    if index == who or who is None:
        raise ValueError(f"bad luck of {index}")
    signal.pause()  # until the others are ended


def abort(index):
    faulthandler.disable()  # it would tell at length where
    if index == 0:
        os.kill(os.getpid(), signal.SIGABRT)
    signal.pause()


def kill(index):
    os.kill(os.getpid(), signal.SIGTERM)


def leave(index, code):
    if index == 0:
        sys.exit(code)
    signal.pause()


def first_succeed_then_raise(index, event):
    if index == 0:
        return
    assert event.wait(WITHIN_S)
    raise ValueError("the second failed later")


def have_a_child(index, queue, method):
    process = mp.get_context(method).Process(target=signal.pause)
    process.start()
    queue.put(process.pid)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", METHODS)
def test_all_succeed_and_the_first_argument_is_the_index(method):
    queue = mp.get_context(method).SimpleQueue()
    assert start(method, succeed, (queue,)) is None
    assert sorted(queue.get()[0] for _ in range(2)) == [0, 1]


@pytest.mark.parametrize("method", METHODS)
def test_without_join_the_context_may_be_joined_repeatedly(method):
    queue = mp.get_context(method).SimpleQueue()
    context = start(method, succeed, (queue,), join=False)
    assert len(context.pids()) == 2
    while not context.join(timeout=WITHIN_S):
        pass
    assert context.join(timeout=0) is True
    assert sorted(queue.get() for _ in range(2)) == sorted(enumerate(context.pids()))


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_has_its_traceback_and_ends_the_others(method):
    with pytest.raises(
        mp.ProcessRaisedException, match="(?s)Process 1 terminated with the following error:.*raise_if.*bad luck of 1"
    ) as caught:
        start(method, raise_if, (1,))
    assert caught.value.error_index == 1


@pytest.mark.parametrize("method", METHODS)
def test_of_several_exceptions_one_is_raised(method):
    with pytest.raises(mp.ProcessRaisedException, match="bad luck of [01]"):
        start(method, raise_if, (None,))


@pytest.mark.parametrize("method", METHODS)
def test_a_signal_is_reported_by_its_name(method):
    with pytest.raises(mp.ProcessExitedException, match="process . terminated with signal SIGABRT") as caught:
        start(method, abort)
    assert (caught.value.signal_name, caught.value.error_index) == ("SIGABRT", 0)
    with pytest.raises(mp.ProcessExitedException, match="SIGTERM"):
        start(method, kill, count=1)


@pytest.mark.parametrize("method", METHODS)
def test_an_exit_code_is_reported(method):
    with pytest.raises(mp.ProcessExitedException, match="process . terminated with exit code 123") as caught:
        start(method, leave, (123,))
    assert (caught.value.exit_code, caught.value.signal_name) == (123, None)


@pytest.mark.parametrize("method", METHODS)
def test_a_late_exception_is_seen_after_another_succeeded(method):
    event = mp.get_context(method).Event()
    context = start(method, first_succeed_then_raise, (event,), join=False)
    context.processes[0].join(WITHIN_S)
    assert context.join(timeout=0) is False
    event.set()
    with pytest.raises(mp.ProcessRaisedException, match="failed later") as caught:
        while not context.join(timeout=WITHIN_S):
            pass
    assert caught.value.error_index == 1


def test_spawn_is_start_processes_with_that_method():
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(succeed, (queue,), nprocs=1)
    assert queue.get()[0] == 0


def test_the_exceptions_survive_a_pickle():
    for error in (
        mp.ProcessRaisedException("text", 1, 2),
        mp.ProcessExitedException("text", 1, 2, 3, "SIGTERM"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("method", METHODS)
def test_a_grandchild_ends_when_its_parent_is_killed(method):
    queue = mp.get_context(method).SimpleQueue()
    with pytest.raises(mp.ProcessExitedException, match="SIGKILL"):
        start(method, have_a_child, (queue, method), count=1)
    pid = queue.get()
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = select.select([watched], [], [], WITHIN_S)[0]
    os.close(watched)
    assert ended


def test_a_thread_has_the_name_that_it_was_given():
    before = mp.get_thread_name()
    mp.set_thread_name("a name of its own")
    try:
        assert mp.get_thread_name() == "a name of its o"
    finally:
        mp.set_thread_name(before)
