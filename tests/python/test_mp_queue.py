# SPDX-License-Identifier: Apache-2.0
"""Queues of tenon.multiprocessing: the standard library's behaviour, and what a kill leaves."""

import os
import queue
import signal
import threading
import time

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp

WAIT_S = 30
MANY = 10_000  # more than a ring holds
PIPE_BYTES = 64 << 10  # a message of the standard library's takes 8 of them at least

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing"])


def start(context, target, *arguments):
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def end_well(*processes):
    for process in processes:
        process.join(WAIT_S)
        assert process.exitcode == 0


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(WAIT_S)
    assert process.exitcode == -signal.SIGKILL


@pytest.fixture
def of_four_slots(monkeypatch):
    monkeypatch.setattr(mp.queues, "_CAPACITY", 4)
    made = mp.Queue()
    for i in range(4):
        made.put(i)
    return made


def test_a_put_that_raises_for_want_of_a_thread_puts_nothing(of_four_slots, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            of_four_slots.put("once")
    assert of_four_slots.qsize() == 4  # what waits is counted too
    of_four_slots.put("once")
    assert [of_four_slots.get(timeout=WAIT_S) for _ in range(5)] == [*range(4), "once"]
    of_four_slots.close()
    of_four_slots.join_thread()
    assert of_four_slots.empty()


def test_what_another_thread_put_behind_it_arrives_in_the_end(of_four_slots, monkeypatch):
    def start(thread):
        of_four_slots.put("behind")
        raise RuntimeError("can't start new thread")

    core = of_four_slots._core
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            of_four_slots.put("once")
    assert [of_four_slots.get(timeout=WAIT_S) for _ in range(4)] == list(range(4))
    of_four_slots.close()
    of_four_slots.join_thread()
    assert core.get(0) == "behind" and core.count() == 0


class Late(threading.Thread):
    """Runs although start() was interrupted: from when somebody asks whether it does."""

    is_started = False

    def start(self):
        raise KeyboardInterrupt

    @property
    def ident(self):
        if self.is_started:
            return super().ident
        self.is_started = True
        super().start()
        self.join()
        return None


def test_join_thread_goes_on_when_a_feeder_has_begun_late(of_four_slots, monkeypatch):
    with monkeypatch.context() as with_interrupts:
        with_interrupts.setattr(threading, "Thread", Late)
        with pytest.raises(KeyboardInterrupt):
            of_four_slots.put("once")
    core = of_four_slots._core
    of_four_slots.close()
    of_four_slots.join_thread()
    assert core.count() == 4


class Unloadable:
    """Pickles, and cannot be unpickled."""

    def __reduce__(self):
        return refuse, ()


def refuse():
    raise ZeroDivisionError("not today")


def echo(there, back):
    while (value := there.get()) is not None:
        back.put(value)


def fill(array_queue, done):
    array = array_queue.get()
    array[:] = 7
    done.put(array.sum())


def put_range(target, count):
    for i in range(count):
        target.put(i)


def put_same(target, value, count):
    for _ in range(count):
        target.put(value)


def put_numbered(target, name, count):
    for number in range(count):
        target.put((name, number))


def put_and_cancel(target, count):
    put_range(target, count)
    target.cancel_join_thread()


def attach_and_wait_for_kill(ready, source):
    ready.set()
    threading.Event().wait()


def do_numbered_tasks(tasks, count):
    for number in range(count):
        assert tasks.get(timeout=WAIT_S) == number
        tasks.task_done()


def put_through_a_grandchild(target):
    grandchild = os.fork()
    if grandchild == 0:
        target.put(os.getppid() == int(os.environ["TEST_PARENT"]))
        os._exit(0)
    os.waitpid(grandchild, 0)


def say_and_get(ready, source):
    ready.put(os.getpid())
    source.get()


def get_one(ready, source, back):
    ready.put(os.getpid())
    back.put(source.get())


def attach_and_wait(ready, target, never):
    target.put("last words")
    ready.set()
    never.wait()


def say_interrupted(ready, source):
    try:
        ready.put(os.getpid())
        source.get()
    except KeyboardInterrupt:
        os._exit(42)


def do_tasks(tasks):
    for _ in iter(tasks.get, None):
        tasks.task_done()
    tasks.task_done()


def answer_on(questions):
    answers = questions.get()
    answers.put("yes")


def test_objects_travel_there_and_back(context):
    there, back = context.Queue(), context.SimpleQueue()
    process = start(context, echo, there, back)
    for value in (1, "two", {"three": [3.0]}, np.arange(5), None):
        there.put(value)
        if value is not None:
            assert np.array_equal(back.get(), value)
    end_well(process)


def test_array_is_the_same_memory_on_both_sides(context):
    arrays, done = context.Queue(), context.Queue()
    tensor = tenon.zeros(4, "float64")
    process = start(context, fill, arrays, done)
    arrays.put(np.asarray(tensor))
    assert done.get(timeout=WAIT_S) == 28
    assert tensor.tolist() == [7.0] * 4
    end_well(process)


def test_put_without_a_bound_never_waits_and_keeps_the_order():
    source = mp.Queue()
    put_range(source, MANY)
    assert source.qsize() >= MANY - 1
    assert [source.get(timeout=WAIT_S) for _ in range(MANY)] == list(range(MANY))
    source.close()
    source.join_thread()


def put_and_hang(source, count, done):
    put_range(source, count)
    done.set()
    threading.Event().wait()


def tell_qsize(source, sizes):
    sizes.put(source.qsize())


@pytest.mark.parametrize("kind", [mp.Queue, mp.JoinableQueue])
def test_qsize_is_true_in_every_process(quick, kind):
    source, sizes, done = kind(), mp.Queue(), mp.Event()
    putting = start(quick, put_and_hang, source, MANY, done)
    assert done.wait(WAIT_S)
    assert source.qsize() == MANY
    end_well(start(quick, tell_qsize, source, sizes))
    assert sizes.get(timeout=WAIT_S) == MANY
    assert source.get(timeout=WAIT_S) == 0
    kill(putting)  # what it could not bring into the queue is gone with it
    end = time.monotonic() + WAIT_S
    while (left := source.qsize()) >= MANY - 1:
        source._core.domain.reap()
        assert time.monotonic() < end
    for number in range(left):
        assert source.get(timeout=WAIT_S) == number + 1
    assert source.qsize() == 0


@pytest.mark.parametrize("kind", [mp.Queue, mp.JoinableQueue])
def test_a_kill_while_a_backlog_is_fed_leaves_qsize_true(fork, kind):
    for got_before in (1, 700, 1500):
        source, done = kind(), mp.Event()
        putting = start(fork, put_and_hang, source, MANY, done)
        assert done.wait(WAIT_S)
        for number in range(got_before):  # its thread brings some of its backlog meanwhile
            assert source.get(timeout=WAIT_S) == number
        kill(putting)
        end = time.monotonic() + WAIT_S
        while source._waiting.count() > 0:
            source._core.domain.reap()
            assert time.monotonic() < end
        left = source.qsize()
        assert 0 < left <= MANY - got_before
        for number in range(got_before, got_before + left):
            assert source.get(timeout=0) == number
        assert source.qsize() == 0
        if kind == mp.JoinableQueue:
            for _ in range(got_before + left):
                source.task_done()
            source.join()


@pytest.mark.parametrize("value", [7, 12_345, None, "a text", {"id": 1}])
def test_join_before_get_works_for_what_a_pipe_would_take(quick, value):
    source = quick.Queue()
    process = start(quick, put_same, source, value, PIPE_BYTES // 8)
    end_well(process)
    assert source.qsize() == PIPE_BYTES // 8
    assert all(source.get(timeout=WAIT_S) == value for _ in range(PIPE_BYTES // 8))
    assert source.empty()


def test_producers_that_are_ahead_keep_their_order(quick):
    source = quick.Queue()
    processes = [start(quick, put_numbered, source, name, MANY) for name in range(2)]
    nexts = [0, 0]
    for _ in range(2 * MANY):
        name, number = source.get(timeout=WAIT_S)
        assert number == nexts[name]
        nexts[name] += 1
    end_well(*processes)


def test_cancel_join_thread_lets_a_process_end_with_a_backlog(quick):
    source = quick.Queue()
    end_well(start(quick, put_and_cancel, source, MANY))
    assert 0 < source.qsize() <= MANY
    assert source.get(timeout=WAIT_S) == 0


def test_a_closed_queue_gives_its_backlog_up_when_all_consumers_died(fork):
    source, ready = fork.Queue(), fork.Event()
    consumer = start(fork, attach_and_wait_for_kill, ready, source)
    assert ready.wait(WAIT_S)
    put_range(source, MANY)
    kill(consumer)
    source.close()
    joining = threading.Thread(target=source.join_thread)
    joining.start()
    joining.join(WAIT_S)
    assert not joining.is_alive()


def test_join_waits_for_tasks_of_a_backlog(quick):
    tasks = quick.JoinableQueue()
    put_range(tasks, MANY)
    worker = start(quick, do_numbered_tasks, tasks, MANY)
    tasks.join()
    assert tasks.qsize() == 0
    end_well(worker)
    with pytest.raises(ValueError, match="too many times"):
        tasks.task_done()


def test_what_was_put_arrives_although_the_process_ended(quick):
    source = quick.Queue()
    process = start(quick, put_range, source, MANY)
    assert [source.get(timeout=WAIT_S) for _ in range(MANY)] == list(range(MANY))
    end_well(process)


def test_a_forked_child_does_not_put_its_parents_backlog(fork):
    source, done = fork.Queue(), fork.Event()
    put_range(source, MANY)
    end_well(start(fork, done.set))
    assert [source.get(timeout=WAIT_S) for _ in range(MANY)] == list(range(MANY))
    with pytest.raises(queue.Empty):
        source.get(timeout=0.1)


def test_forked_grandchild_may_use_its_queues(fork, monkeypatch):
    source = fork.Queue()
    process = fork.Process(target=put_through_a_grandchild, args=(source,))
    monkeypatch.setenv("TEST_PARENT", "0")
    process.start()
    assert source.get(timeout=WAIT_S) is False
    end_well(process)


@pytest.mark.parametrize("maxsize", [1, 3, 4, 5])
def test_bound_is_exact(maxsize):
    source = mp.Queue(maxsize)
    put_range(source, maxsize)
    assert source.full() and not source.empty() and source.qsize() == maxsize
    with pytest.raises(queue.Full):
        source.put_nowait("more")
    with pytest.raises(queue.Full):
        source.put("more", timeout=0.01)
    assert source.get() == 0
    source.put("more")
    assert [source.get() for _ in range(maxsize)] == [*range(1, maxsize), "more"]
    assert source.empty()


def pass_on_for_ever(source):
    while True:
        source.put(source.get())


@pytest.mark.parametrize("kind", [mp.Queue, mp.JoinableQueue])
def test_a_stopped_process_holds_up_no_other(fork, kind):
    """Wherever a process is stopped, get() and put() of the others keep their time."""
    for i in range(20):
        source = kind(10)
        source.put("before")
        assert source.get(timeout=WAIT_S) == "before"
        busy = [start(fork, pass_on_for_ever, source) for _ in range(2)]
        for number in range(4):
            source.put(number)
        for _ in range(i * 5):  # they are at another place each time
            source.put(source.get(timeout=WAIT_S))
        for process in busy:
            os.kill(process.pid, signal.SIGSTOP)
        ended = threading.Event()

        def use():
            for _ in range(10):
                try:
                    source.put(source.get(timeout=0.01), timeout=0.01)
                except (queue.Empty, queue.Full):
                    pass
            ended.set()

        threading.Thread(target=use, daemon=True).start()
        assert ended.wait(WAIT_S), f"round {i}: somebody waits for one that is stopped"
        for process in busy:
            kill(process)


@pytest.mark.parametrize("maxsize", [3, 10, 1000])
def test_a_bound_stays_exact_after_deaths(fork, maxsize):
    source = mp.Queue(maxsize)
    for _ in range(5):
        busy = start(fork, pass_on_for_ever, source)
        for number in range(min(maxsize, 20)):
            source.put(number, timeout=WAIT_S)
        kill(busy)
        try:
            while True:
                source.get(timeout=0.1)
        except queue.Empty:
            pass
        for number in range(maxsize):
            source.put(number, timeout=WAIT_S)
        assert source.full() and source.qsize() == maxsize
        with pytest.raises(queue.Full):
            source.put_nowait("one too many")
        assert [source.get(timeout=WAIT_S) for _ in range(maxsize)] == list(range(maxsize))
        assert source.empty() and source.qsize() == 0


@pytest.mark.parametrize("maxsize", [2, 3])
def test_put_waits_for_room(quick, maxsize):
    source = quick.Queue(maxsize)
    process = start(quick, put_range, source, 50)
    assert [source.get(timeout=WAIT_S) for _ in range(50)] == list(range(50))
    end_well(process)


def test_empty_queue_says_so():
    source = mp.Queue()
    for get in (source.get_nowait, lambda: source.get(False), lambda: source.get(True, 0.01)):
        with pytest.raises(queue.Empty):
            get()


def test_what_cannot_be_pickled_raises_in_put_and_the_queue_goes_on():
    for source in (mp.Queue(), mp.Queue(3), mp.SimpleQueue(), mp.JoinableQueue()):
        with pytest.raises((TypeError, AttributeError), match="lock|pickle"):
            source.put(threading.Lock())
        source.put("next")
        assert source.get() == "next"


def test_what_cannot_be_unpickled_raises_in_get_and_the_queue_goes_on():
    source = mp.Queue()
    source.put(Unloadable())
    source.put("next")
    with pytest.raises(ZeroDivisionError, match="not today") as raised:
        source.get()
    if hasattr(raised.value, "__notes__"):
        assert "refuse" in "".join(raised.value.__notes__)
    assert source.get() == "next"


def test_a_closed_simple_queue_raises_both_documented_errors():
    source = mp.SimpleQueue()
    source.close()
    for error in (ValueError, OSError):
        with pytest.raises(error, match="is closed"):
            source.empty()


def get_and_tell(source, told, end):
    told.put((source.get(), source.get()))
    end.get()


@pytest.mark.parametrize("maxsize", [0, 3])
def test_a_closed_queue_says_how_much_waits_in_it(fork, maxsize):
    source, told, end = fork.Queue(maxsize), fork.Queue(), fork.Queue()
    for number in range(3):
        source.put(number)
    source.close()
    assert (source.qsize(), source.empty(), source.full()) == (3, False, maxsize == 3)
    source = fork.Queue(maxsize)
    for number in range(3):
        source.put(number)
    other = fork.Process(target=get_and_tell, args=(source, told, end))
    other.start()
    source.close()
    assert told.get() == (0, 1)
    assert (source.qsize(), source.empty(), source.full()) == (1, False, False)
    end.put(None)
    other.join()
    source.close()
    assert source.qsize() >= 0


def test_closed_queue_is_refused_by_name():
    source = mp.Queue()
    source.put(1)
    source.close()
    source.join_thread()
    for use in (source.get, lambda: source.put(1)):
        with pytest.raises(ValueError, match="Queue .* is closed"):
            use()
    simple = mp.SimpleQueue()
    simple.close()
    with pytest.raises(ValueError, match="Queue .* is closed"):
        simple.get()


def test_a_killed_consumer_blocks_no_other_process(quick):
    source, ready, back = quick.Queue(), quick.Queue(), quick.Queue()
    victim = start(quick, say_and_get, ready, source)
    assert ready.get(timeout=WAIT_S) == victim.pid
    other = start(quick, get_one, ready, source, back)
    assert ready.get(timeout=WAIT_S) == other.pid
    kill(victim)
    source.put("first")
    assert back.get(timeout=WAIT_S) == "first"
    end_well(other)


def test_get_says_that_the_last_producer_was_killed(context):
    source, ready, never = context.Queue(), context.Event(), context.Event()
    process = start(context, attach_and_wait, ready, source, never)
    assert ready.wait(WAIT_S)
    kill(process)
    assert source.get(timeout=WAIT_S) == "last words"
    with pytest.raises(tenon.PeerDied) as raised:
        source.get(timeout=WAIT_S)
    assert isinstance(raised.value, BrokenPipeError)
    assert raised.value.pid == process.pid


def test_interrupt_ends_a_wait(quick):
    source, ready = quick.Queue(), quick.Queue()
    process = start(quick, say_interrupted, ready, source)
    ready.get(timeout=WAIT_S)
    os.kill(process.pid, signal.SIGINT)
    process.join(WAIT_S)
    assert process.exitcode == 42


def test_join_waits_until_all_tasks_are_done(quick):
    tasks = quick.JoinableQueue()
    process = start(quick, do_tasks, tasks)
    put_range(tasks, 20)
    tasks.put(None)
    tasks.join()
    end_well(process)
    with pytest.raises(ValueError, match="too many times"):
        tasks.task_done()


def get_one_and_stay(tasks, got, never):
    tasks.get()
    got.set()
    never.wait()


def test_what_a_killed_consumer_got_counts_as_done(quick):
    tasks, got, never = quick.JoinableQueue(), quick.Event(), quick.Event()
    process = start(quick, get_one_and_stay, tasks, got, never)
    tasks.put("one")
    assert got.wait(WAIT_S)
    joined = threading.Thread(target=tasks.join, daemon=True)
    joined.start()
    joined.join(0.05)
    assert joined.is_alive()
    process.kill()
    joined.join(WAIT_S)
    assert not joined.is_alive()
    process.join(WAIT_S)
    with pytest.raises(ValueError, match="too many times"):
        tasks.task_done()


def test_tasks_may_be_done_before_they_are_got():
    tasks = mp.JoinableQueue()
    put_range(tasks, 2)
    tasks.task_done()
    tasks.task_done()
    tasks.join()
    with pytest.raises(ValueError, match="too many times"):
        tasks.task_done()
    assert tasks.get() == 0 and tasks.get() == 1
    tasks.join()
    tasks.put("not done")
    assert tasks.get() == "not done"
    tasks.task_done()
    tasks.join()


def test_queue_travels_through_a_queue(context):
    questions, answers = context.Queue(), mp.Queue(3)
    process = start(context, answer_on, questions)
    questions.put(answers)
    assert answers.get(timeout=WAIT_S) == "yes"
    end_well(process)


def test_a_queue_in_the_arguments_lives_until_the_child_opens_it(quick):
    done = quick.Event()
    process = quick.Process(target=put_and_say, args=(quick.Queue(), done))
    process.start()
    assert done.wait(WAIT_S)
    end_well(process)


def put_and_say(source, done):
    source.put(1)
    source.get()
    done.set()


def test_domain_that_is_gone_is_named():
    with pytest.raises(tenon.NotFound, match="python-1-nobody"):
        tenon._domain.named("python-1-nobody")
