# SPDX-License-Identifier: Apache-2.0
"""Processes of tenon.multiprocessing: how they begin, fail, and end with their parent."""

import gc
import os
import pickle
import select
import signal
import subprocess
import sys

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp

WAIT_S = 60

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing"])


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def method(request):
    return request.param


@pytest.fixture
def context(method):
    return mp.get_context(method)


def start(context, target, *arguments):
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def raise_value_error(messages):
    sys.stderr = open(messages, "w")  # a fork server's is the one that it began with
    raise ValueError("of a child")


def exit_with(code):
    sys.exit(code)


def change(array, tensor, done):
    array[0] = 1
    tensor[0] = 2
    done.put((mp.get_start_method(), tenon.domain().name, array.tolist(), tensor.tolist()))


def wait(pipe, ready, never):
    ready.release()
    never.wait()


def start_and_wait(method, pipe, ready, never, detached):
    child = mp.get_context(method).Process(target=wait, args=(pipe, ready, never))
    child.detached = detached
    child.start()
    wait(pipe, ready, never)


def start_and_be_killed(pipe):
    """The child goes on once its parent has ended, and been forgotten by the domain."""
    parent = os.getpid()

    def wait_for_the_end():
        select.select([os.pidfd_open(parent)], [], [])
        tenon.domain().reap()

    os.register_at_fork(after_in_child=wait_for_the_end)
    mp.get_context("fork").Process(target=signal.pause).start()
    os.kill(parent, signal.SIGKILL)


class Named(mp.get_context("spawn").Process):
    def __init__(self, answers):
        super().__init__(target=self.answer, args=(answers,))
        self.number = 5

    def answer(self, answers):
        answers.put((self.number, self.name))


def succeed(index, numbers):
    numbers.put(index)


def fail_at_one(index):
    if index == 1:
        raise ArithmeticError(f"of {index}")


def exit_at_zero(index, code):
    if index == 0:
        os._exit(code)


def kill_at_zero(index, number):
    if index == 0:
        os.kill(os.getpid(), number)


def test_exit_codes_are_the_standard_librarys(context, tmp_path):
    messages = tmp_path / "messages"
    for target, arguments, code in (
        (exit_with, (0,), 0),
        (exit_with, (7,), 7),
        (exit_with, (None,), 0),
        (raise_value_error, (messages,), 1),
    ):
        process = start(context, target, *arguments)
        process.join(WAIT_S)
        assert process.exitcode == code
    assert "ValueError: of a child" in messages.read_text()


def test_arguments_are_shared_memory(context):
    shared, done = tenon.zeros(3, "int64"), context.Queue()
    private, tensor = np.zeros(3), tenon.zeros(3, "int64")
    process = start(context, change, np.asarray(shared), tensor, done)
    method, domain, array, values = done.get(timeout=WAIT_S)
    process.join(WAIT_S)
    assert (method, domain) == (context.get_start_method(), tenon.domain().name)
    assert shared.tolist() == array == [1, 0, 0] and tensor.tolist() == values == [2, 0, 0]
    process = start(context, change, private, tensor, done)
    assert done.get(timeout=WAIT_S)[2] == [1, 0, 0]
    process.join(WAIT_S)


def test_process_of_a_class_may_be_its_own_target():
    answers = mp.get_context("spawn").Queue()
    process = Named(answers)
    process.start()
    assert answers.get(timeout=WAIT_S) == (5, process.name)
    process.join(WAIT_S)
    assert process.exitcode == 0


def test_children_end_when_their_parent_is_killed(context, method):
    ready, never = context.Semaphore(0), context.Event()
    reader, writer = context.Pipe(duplex=False)
    parent = start(context, start_and_wait, method, writer, ready, never, False)
    writer.close()
    for _ in range(2):
        assert ready.acquire(timeout=WAIT_S)
    os.kill(parent.pid, signal.SIGKILL)
    parent.join(WAIT_S)
    assert parent.exitcode == -signal.SIGKILL
    assert reader.poll(WAIT_S)  # the end of the pipe: both have ended
    with pytest.raises(EOFError):
        reader.recv()


def test_child_ends_whose_parent_was_killed_before_it_looked(fork):
    reader, writer = fork.Pipe(duplex=False)
    parent = start(fork, start_and_be_killed, writer)
    writer.close()
    assert reader.poll(WAIT_S)  # the end of the pipe, although nobody waited for the parent
    with pytest.raises(EOFError):
        reader.recv()
    parent.join(WAIT_S)
    assert parent.exitcode == -signal.SIGKILL


def test_detached_child_outlives_its_parent(quick):
    ready, never = quick.Semaphore(0), quick.Event()
    reader, writer = quick.Pipe(duplex=False)
    parent = start(quick, start_and_wait, quick.get_start_method(), writer, ready, never, True)
    writer.close()
    for _ in range(2):
        assert ready.acquire(timeout=WAIT_S)
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()  # not by its sentinel, which a forked child of it has open
    assert not reader.poll(0.2)
    never.set()
    assert reader.poll(WAIT_S)


class Unloadable:
    """Pickles, and cannot be unpickled."""

    def __reduce__(self):
        return refuse, ()


def refuse():
    raise ZeroDivisionError("not today")


def start_detached(context, target, *arguments):
    child = context.Process(target=target, args=arguments)
    child.detached = True
    child.start()


def start_detached_and_end(method, answers):
    start_detached(mp.get_context(method), answers.put, "ran")


def test_a_detached_child_runs_though_its_process_object_is_dropped(context):
    answers = context.Queue()
    start_detached(context, answers.put, "ran")
    gc.collect()
    assert answers.get(timeout=WAIT_S) == "ran"


def test_a_detached_child_runs_though_its_parent_ends_at_once(context):
    answers = context.Queue()
    parent = start(context, start_detached_and_end, context.get_start_method(), answers)
    assert answers.get(timeout=WAIT_S) == "ran"
    parent.join(WAIT_S)
    assert parent.exitcode == 0


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_start_of_a_detached_child_that_cannot_begin_ends(method):
    start_detached(mp.get_context(method), Unloadable())


def test_main_module_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import tenon.multiprocessing as mp\n"
        "mp.set_start_method('spawn')\n"
        "mp.Process(target=print).start()\n"
    )
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=WAIT_S
    )
    assert "if __name__ == '__main__':" in result.stderr


def test_process_is_pickled_for_its_start_only():
    with pytest.raises(TypeError):
        pickle.dumps(mp.Process())
    with pytest.raises(TypeError):
        mp.Queue().put(mp.Process())


def test_spawn_runs_every_index(quick):
    method, numbers = quick.get_start_method(), quick.Queue()
    assert mp.start_processes(succeed, (numbers,), 3, start_method=method) is None
    assert sorted(numbers.get(timeout=WAIT_S) for _ in range(3)) == [0, 1, 2]


def test_spawn_gives_a_context_to_join():
    numbers = mp.get_context("spawn").Queue()
    started = mp.spawn(succeed, (numbers,), 2, join=False)
    assert isinstance(started, mp.SpawnContext) and isinstance(started, mp.ProcessContext)
    assert len(set(started.pids())) == 2
    while not started.join(timeout=1):
        pass
    assert started.join()


def test_exception_of_a_child_is_raised_with_its_traceback(method):
    with pytest.raises(mp.ProcessRaisedException, match="ArithmeticError: of 1") as raised:
        mp.start_processes(fail_at_one, nprocs=2, start_method=method)
    assert "fail_at_one" in str(raised.value)
    assert raised.value.error_index == 1 and raised.value.error_pid > 0
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.error_index) == (str(raised.value), 1)


def test_exit_code_of_a_child_is_raised():
    with pytest.raises(mp.ProcessExitedException, match="exit code 123") as raised:
        mp.start_processes(exit_at_zero, (123,), 2, start_method="fork")
    assert raised.value.exit_code == 123 and raised.value.signal_name is None


def test_signal_that_ended_a_child_is_raised_by_name():
    with pytest.raises(mp.ProcessExitedException, match="SIGTERM") as raised:
        mp.start_processes(kill_at_zero, (signal.SIGTERM,), 2, start_method="fork")
    assert raised.value.signal_name == "SIGTERM" and raised.value.error_index == 0
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.signal_name) == (str(raised.value), "SIGTERM")


FULL = """
import sys
import tenon._domain
import tenon.multiprocessing as mp

tenon._domain._MOST_PROCESSES = 3  # tenond, this process, and one child


def hold(ready, go_on):
    ready.set()
    go_on.wait()


if __name__ == "__main__":
    mp.set_start_method(sys.argv[1])
    ready, go_on = mp.Event(), mp.Event()
    first = mp.Process(target=hold, args=(ready, go_on))
    second = mp.Process(target=print, args=("ran",))
    first.start()
    ready.wait()
    second.start()
    second.join()
    go_on.set()
    first.join()
    print(first.exitcode, second.exitcode)
"""


def test_child_without_a_seat_says_so(method, tmp_path):
    script = tmp_path / "full.py"
    script.write_text(FULL)
    result = subprocess.run(
        [sys.executable, script, method], capture_output=True, text=True, timeout=WAIT_S
    )
    assert result.stdout == "0 1\n"
    assert "seat" in result.stderr and ("Forked" in result.stderr or "Full" in result.stderr)


FORKED = """
import os, sys
import tenon
import tenon.multiprocessing as mp

lock = mp.Lock()
domain = tenon.domain()
pid = os.fork()
if pid == 0:
    assert domain.has_member(domain.member)
    sys.exit(0)
assert os.waitpid(pid, 0) == (pid, 0)
domain.reap()
stat = tenon._core.inspect_domain(domain.name)["stat"]
print(stat["deaths"])
"""


def test_a_child_of_os_fork_leaves_when_it_ends_in_good_order():
    assert subprocess.check_output([sys.executable, "-c", FORKED], text=True) == "0\n"
