# SPDX-License-Identifier: Apache-2.0
"""tenon.Executor: calls in threads, which begin when what they request is free."""

import asyncio
import concurrent.futures
import contextvars
import functools
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
import tenon

WAIT_S = 60


@pytest.fixture
def executor():
    with tenon.Executor({"CPU": 2, "GPU": (0, 1)}) as made:
        yield made


def test_call_has_what_it_requests(executor):
    assert executor.submit(pow, 2, exp=3).result(WAIT_S) == 8
    number = functools.partial(tenon.resource_id, "GPU")
    assert executor.submit(number, resources={"GPU": 1, "CPU": 0}).result(WAIT_S) in (0, 1)
    assert executor.submit(number, resources={"GPU": 2}).result(WAIT_S) == (0, 1)
    decorated = tenon.resources(GPU=1)(lambda: number())
    assert executor.submit(decorated).result(WAIT_S) in (0, 1)
    with pytest.raises(tenon.Invalid):
        executor.submit(number).result(WAIT_S)


@pytest.mark.parametrize(
    "resources, error", [({"GPU": 3}, ValueError), ({"NPU": 1}, ValueError), ({"GPU": -1}, ValueError), ("GPU", TypeError)]
)
def test_request_that_cannot_be_met_is_an_error_of_submit(executor, resources, error):
    with pytest.raises(error):
        executor.submit(print, resources=resources)
    assert executor.submit(abs, -1).result(WAIT_S) == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU")
def test_cpus_are_those_that_the_process_may_use():
    program = """
import os, tenon
one, *_ = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {one})
with tenon.Executor() as executor:
    executor.submit(print, "runs", resources={"CPU": 1}).result()
    try:
        executor.submit(print, resources={"CPU": 2})
    except ValueError as error:
        print(error)
"""
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S
    ).stdout.splitlines()
    assert printed[0] == "runs"
    assert "CPU" in printed[1]


def test_error_and_context_of_the_caller(executor):
    variable = contextvars.ContextVar("variable")
    variable.set(5)
    assert executor.submit(variable.get).result(WAIT_S) == 5
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result(WAIT_S)


def test_error_of_a_call_keeps_nothing_alive(executor):
    class Token:
        pass

    def fail(token):
        raise KeyError("mine")

    token, gone = Token(), threading.Event()
    alive, future = weakref.ref(token, lambda _: gone.set()), executor.submit(fail, token)
    gc.disable()
    try:
        assert isinstance(future.exception(WAIT_S), KeyError)
        del future, token
        assert gone.wait(WAIT_S) and alive() is None
    finally:
        gc.enable()


def test_unknown_resource_has_no_slots(executor):
    with pytest.raises(tenon.Invalid, match="NPU"):
        executor.submit(tenon.resource_id, "NPU", resources={"GPU": 1}).result(WAIT_S)


def test_slots_have_one_call_at_a_time(executor):
    busy = [threading.Lock(), threading.Lock()]

    def use():
        lock = busy[tenon.resource_id("GPU")]
        assert lock.acquire(blocking=False)
        time.sleep(0.001)
        lock.release()

    futures = [executor.submit(use, resources={"GPU": 1, "CPU": 0}) for _ in range(100)]
    for future in futures:
        future.result(WAIT_S)


def test_map_and_wait_and_as_completed(executor):
    assert list(executor.map(abs, [-1, -2, -3])) == [1, 2, 3]
    futures = [executor.submit(abs, -i) for i in range(100)]
    assert sorted(future.result() for future in concurrent.futures.as_completed(futures, WAIT_S)) == list(range(100))


def test_future_is_cancelled_before_it_begins(executor):
    begin = threading.Event()
    blocked = [executor.submit(begin.wait, WAIT_S) for _ in range(2)]
    late = executor.submit(abs, -1)
    assert late.cancel() and late.cancelled()
    begin.set()
    assert all(future.result(WAIT_S) for future in blocked)
    assert executor.submit(abs, -1).result(WAIT_S) == 1


def test_shutdown_waits_and_takes_no_more_calls():
    executor = tenon.Executor({"CPU": 2})
    done = []
    for i in range(10):
        executor.submit(lambda i: (time.sleep(0.01), done.append(i)), i)
    executor.shutdown()
    assert sorted(done) == list(range(10))
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(abs, 1)
    executor.shutdown()


def test_shutdown_cancels_if_asked():
    executor = tenon.Executor({"CPU": 1})
    begin = threading.Event()
    first = executor.submit(begin.wait, WAIT_S)
    while not first.running():
        time.sleep(0.001)
    later = [executor.submit(abs, i) for i in range(10)]
    executor.shutdown(wait=False, cancel_futures=True)
    begin.set()
    executor.shutdown()
    assert first.result() and all(future.cancelled() for future in later)


def test_call_submits_calls(executor):
    def outer():
        tenon.secede()
        return sum(executor.submit(abs, -i).result(WAIT_S) for i in range(10))

    assert executor.submit(outer).result(WAIT_S) == 45


# ---- calls after others


class Sized:
    """As an array: something that knows its size."""

    def __init__(self, nbytes, slot):
        self.nbytes = nbytes
        self.slot = slot


def test_call_has_the_slot_that_made_the_largest_of_those_before(executor):
    barrier = threading.Barrier(2, timeout=WAIT_S)

    def make(size):
        barrier.wait()  # so that each is on a slot of its own
        return Sized(size, tenon.resource_id("GPU"))

    near = {"GPU": 1, "CPU": 0, "affinity": ["GPU"]}
    for sizes in [(10, 1000), (1000, 10), (1, 1 << 70)] * 7:
        made = [executor.submit(make, size, resources={"GPU": 1, "CPU": 0}) for size in sizes]
        used = executor.submit(tenon.resource_id, "GPU", resources=near, after=made).result(WAIT_S)
        assert used == max((each.result() for each in made), key=lambda each: each.nbytes).slot


def test_slot_is_known_also_after_many_other_calls(executor):
    barrier = threading.Barrier(2, timeout=WAIT_S)

    def make():
        barrier.wait()
        return tenon.resource_id("GPU")

    for _ in range(4):
        made = [executor.submit(make, resources={"GPU": 1, "CPU": 0}) for _ in range(2)]
        for future in [executor.submit(abs, i) for i in range(5000)]:
            future.result(WAIT_S)
        for each in made:
            near = {"GPU": 1, "CPU": 0, "affinity": ["GPU"]}
            assert executor.submit(tenon.resource_id, "GPU", resources=near, after=each).result(WAIT_S) == each.result()


def test_call_begins_after_others_however_they_ended(executor):
    begin, order = threading.Event(), []
    first = executor.submit(lambda: (begin.wait(WAIT_S), order.append("first")))
    wrong = executor.submit(divmod, 1, 0, after=first)
    dropped = executor.submit(order.append, "dropped", after=first)
    last = executor.submit(order.append, "last", after=(each for each in [wrong, dropped, first, first]))
    assert dropped.cancel()
    assert executor.submit(abs, -1).result(WAIT_S) == 1  # what waits has no thread
    assert not last.done()
    begin.set()
    assert last.result(WAIT_S) is None and order == ["first", "last"]
    assert isinstance(wrong.exception(), ZeroDivisionError)


def test_calls_that_wait_do_not_stay_behind_after_shutdown():
    executor, begin, order = tenon.Executor({"CPU": 1}), threading.Event(), []
    last = executor.submit(begin.wait, WAIT_S)
    for i in range(100):
        last = executor.submit(order.append, i, after=last)
    threading.Timer(0.05, begin.set).start()
    executor.shutdown()
    assert order == list(range(100)) and last.done()


def test_many_calls_wait_for_one_and_one_for_many(executor):
    begin = threading.Event()
    first = executor.submit(begin.wait, WAIT_S)
    middle = [executor.submit(abs, -i, after=first) for i in range(10000)]
    last = executor.submit(lambda: sum(each.result() for each in middle), after=middle)
    begin.set()
    assert last.result(WAIT_S) == sum(range(10000))


def test_wrong_after_is_an_error(executor):
    with tenon.Executor({"CPU": 1}) as other:
        with pytest.raises(ValueError, match="not of this executor"):
            executor.submit(abs, 1, after=other.submit(abs, 1))
    with pytest.raises(ValueError, match="not of this executor"):
        executor.submit(abs, 1, after=concurrent.futures.Future())
    for wrong in [5], "x", [None]:
        with pytest.raises(TypeError, match="no future"):
            executor.submit(abs, 1, after=wrong)
    with pytest.raises(TypeError):
        executor.submit(abs, 1, after=5)
    assert executor.submit(abs, -1).result(WAIT_S) == 1


def test_call_that_waits_keeps_nothing_alive_once_it_ended(executor):
    class Token:
        pass

    token, first = Token(), executor.submit(abs, 1)
    begin = threading.Event()
    first = executor.submit(begin.wait, WAIT_S)
    alive, last = weakref.ref(token), executor.submit(lambda token: None, token, after=first)
    del token
    begin.set()
    last.result(WAIT_S)
    gc.collect()
    assert alive() is None


def test_asyncio(executor):
    @tenon.resources(GPU=1, CPU=0)
    def kernel(value):
        time.sleep(0.01)
        return value, tenon.resource_id("GPU")

    async def main():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(executor, kernel, i) for i in range(10)))

    results = asyncio.run(main())
    assert [value for value, _ in results] == list(range(10)) and {slot for _, slot in results} == {0, 1}


def test_program_ends_when_its_calls_have():
    text = "import tenon, time; tenon.Executor().submit(lambda: (time.sleep(0.2), print('done')))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_ctrl_c_ends_a_wait_and_a_shutdown_while_a_call_runs():
    text = """
import os, signal, tenon, threading, time
begun, go_on = threading.Event(), threading.Event()
def hang():
    begun.set()
    go_on.wait()
def interrupt(is_time):
    while not is_time():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
executor = tenon.Executor({"CPU": 2})
hanging = executor.submit(hang)
try:
    threading.Thread(target=interrupt, args=[begun.is_set]).start()
    hanging.result()
except KeyboardInterrupt:
    print("wait", executor.submit(abs, -1).result())
try:
    threading.Thread(target=interrupt, args=[lambda: executor._is_shut_down]).start()
    executor.shutdown()
except KeyboardInterrupt:
    print("shutdown", hanging.running())
go_on.set()
executor.shutdown()
print(hanging.done())
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.stdout, done.returncode) == ("wait 1\nshutdown True\nTrue\n", 0), done.stderr


def test_program_ends_although_a_call_submits_itself():
    text = """
import tenon, time
executor = tenon.Executor({"CPU": 1})
def again():
    time.sleep(0.01)
    try:
        executor.submit(again)
    except RuntimeError as error:
        print(error)
executor.submit(again)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.stdout, done.returncode) == ("the interpreter ends: the executor takes no more calls\n", 0), done.stderr


def test_forked_child_has_an_error(executor):
    executor.submit(abs, 1).result(WAIT_S)
    pid = os.fork()
    if pid == 0:
        try:
            executor.submit(abs, 1)
        except tenon.Forked:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_calls_begin_in_the_order_of_their_submission():
    order, begin = [], threading.Event()
    with tenon.Executor({"CPU": 1}) as executor:
        executor.submit(order.append, -1).result(WAIT_S)  # its time is known
        executor.submit(begin.wait, WAIT_S)
        for i in range(5000):
            executor.submit(order.append, i)
        begin.set()
    assert order == list(range(-1, 5000))


def test_executor_within_a_call_of_another_is_shut_down(executor):
    def outer():
        with tenon.Executor({"CPU": 2}) as inner:
            futures = [inner.submit(time.sleep, 0.05) for _ in range(4)]
        return all(future.done() for future in futures)

    assert executor.submit(outer).result(WAIT_S)


def shown():
    return [s for s in tenon.inspect().schedulers if s["name"] == "Executor" and s["pid"] == os.getpid()]


def test_domain_shows_what_calls_wait_for():
    tenon.domain()
    before = len(shown())
    gate, begun = threading.Event(), threading.Event()

    def hold():
        begun.set()
        gate.wait(WAIT_S)

    with tenon.Executor({"CPU": 1, "GPU": (0, 1)}) as made:
        calls = [made.submit(hold, resources={"GPU": 2, "CPU": 0}) for _ in range(3)]
        assert begun.wait(WAIT_S)
        assert len(shown()) == before + 1
        seen = shown()[-1]
        assert (seen["tasks"], seen["ready"], seen["running"]) == (3, 2, 1)
        assert {r["name"]: r["waiting"] for r in seen["resources"]} == {"CPU": 0, "THREADS": 0, "GPU": 2}
        gate.set()
    del made, calls
    gc.collect()
    assert len(shown()) == before


def test_full_domain_does_not_keep_an_executor_from_work():
    code = """
import tenon
from tenon import _core, _domain
_domain._present = _core.Domain.create("full-%d" % __import__("os").getpid(), quota_bytes=4 << 20)
kept, size = [], 1 << 20
while size >= 64:
    try:
        kept.append(tenon.zeros(size, dtype="uint8"))
    except (MemoryError, tenon.Error):
        size //= 2
with tenon.Executor({"CPU": 1}) as made:
    assert made.submit(pow, 2, 3).result(60) == 8
assert tenon.inspect().schedulers == []
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
