# SPDX-License-Identifier: Apache-2.0
"""Coroutines that wait for queues: get_async(), receive_async(), `async for`."""

import asyncio
import os
import select
import signal
import threading
from multiprocessing import connection
from queue import Empty

import numpy as np
import pytest

import tenon
import tenon.multiprocessing as mp
from tenon import _async

WAIT_S = 60


@pytest.fixture
def queue(domain):
    made = tenon.Queue("async", domain=domain)
    yield made
    made.close()


def start(domain, function, *arguments):
    """A child that calls the function with the domain's queue, and then ends without leaving anything."""
    pid = os.fork()
    if pid == 0:
        try:
            function(tenon.Queue("async", domain=domain), *arguments)
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def finish(pid):
    assert os.waitpid(pid, 0)[1] == 0


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, WAIT_S))


async def turn():
    """Let the loop run once all that is ready now."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_soon(over.set_result, None)
    await over


async def until_it_waits(task):
    """Let a task that was just started run until it has to wait."""
    for _ in range(3):
        await turn()
    assert not task.done()


def after(pipe, queue, *values):
    """In a child: put values once the pipe says so."""
    os.read(pipe, 1)
    for value in values:
        queue.put(value, WAIT_S)


def test_the_loop_works_while_a_coroutine_waits_for_a_process(domain, queue):
    reading, writing = os.pipe()
    pid = start(domain, lambda queue: after(reading, queue, np.arange(3)))

    async def main():
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        threads = threading.active_count()
        os.write(writing, b"1")
        value = await task
        assert threading.active_count() == threads
        return value

    assert run(main()).tolist() == [0, 1, 2]
    finish(pid)
    os.close(reading)
    os.close(writing)


def test_a_message_that_is_there_is_taken_at_once(queue):
    async def main():
        queue.put(1)
        assert await queue.get_async(0) == 1
        with pytest.raises(tenon.TimedOut):
            await queue.get_async(0)
        with pytest.raises(tenon.TimedOut):
            await queue.get_async(-1)
        with pytest.raises(tenon.TimedOut):
            await queue.receive_async(0.01)

    run(main())


def test_a_message_is_received_and_acknowledged(domain):
    queue = tenon.Queue("async", domain=domain, lease=True)

    async def main():
        task = asyncio.create_task(queue.receive_async())
        await until_it_waits(task)
        queue.put("job")
        with await task as message:
            message.give_back()
        with await queue.receive_async(WAIT_S) as message:
            assert (message.value, message.attempt) == ("job", 1)
        with pytest.raises(tenon.TimedOut):
            await queue.receive_async(0)

    run(main())
    queue.close()


def test_a_coroutine_that_is_cancelled_loses_no_message(queue):
    async def main():
        for number in range(100):
            task = asyncio.create_task(queue.get_async())
            await until_it_waits(task)
            queue.put(number)
            if number % 2:
                await turn()  # the task may have been told
            task.cancel()
            try:
                value = await task
            except asyncio.CancelledError:
                value = await queue.get_async(WAIT_S)
            assert value == number

    run(main())


def test_many_coroutines_of_two_loops_get_each_message_once(domain, queue):
    count, each = 400, 10
    taken = []

    async def taker():
        while (value := await queue.get_async(WAIT_S)) is not None:
            taken.append(value)

    async def main():
        await asyncio.gather(*(taker() for _ in range(each)))

    loops = [threading.Thread(target=lambda: run(main())) for _ in range(2)]
    pid = start(domain, lambda queue: [queue.put(value, WAIT_S) for value in [*range(count), *[None] * (2 * each)]])
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    finish(pid)
    assert sorted(taken) == list(range(count))


def test_one_coroutine_waits_for_each_of_many_queues(domain):
    names = [f"q{number}" for number in range(20)]
    queues = {name: tenon.Queue(name, domain=domain) for name in names}

    async def main():
        tasks = {name: asyncio.create_task(queue.get_async()) for name, queue in queues.items()}
        for task in tasks.values():
            await until_it_waits(task)
        for name in reversed(names):
            queues[name].put(name)
            assert await tasks[name] == name

    run(main())
    for queue in queues.values():
        queue.close()


def test_an_object_that_stops_to_wait_leaves_the_others_told(domain, queue, monkeypatch):
    monkeypatch.setattr(_async, "_LOOK_AGAIN_S", 10 * WAIT_S)
    other = tenon.Queue("async", domain=domain)

    async def main():
        first, second = (asyncio.create_task(it.get_async()) for it in (queue, other))
        await until_it_waits(first)
        await until_it_waits(second)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        queue.put(7)
        assert await second == 7

    run(main())
    other.close()


def test_async_for_ends_with_the_queue(domain, queue):
    reading, writing = os.pipe()
    pid = start(domain, lambda queue: (after(reading, queue, 1, 2, 3), queue.end()))

    async def main():
        os.write(writing, b"1")
        return [value async for value in queue]

    assert run(main()) == [1, 2, 3]
    finish(pid)
    os.close(reading)
    os.close(writing)


def put_and_wait(queue, writing):
    queue.put("last")
    os.write(writing, b"1")
    signal.pause()


def test_the_death_of_the_last_producer_ends_the_wait(domain, queue):
    reading, writing = os.pipe()
    pid = start(domain, put_and_wait, writing)
    os.read(reading, 1)

    async def main():
        assert await queue.get_async() == "last"
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(tenon.PeerDied):
            await task

    run(main())
    os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)


def test_closing_ends_the_wait(domain):
    async def main(close):
        queue = tenon.Queue("async", domain=domain)
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        close(queue)
        with pytest.raises((tenon.Closed, ValueError)):
            await task

    run(main(lambda queue: queue.close()))
    run(main(lambda queue: domain.close()))


def test_multiprocessing_and_coroutines_share_the_descriptor(domain):
    context = mp.get_context("fork")
    theirs = context.Queue()
    ours = tenon.Queue("async")
    rounds, seen = 200, []

    def listen():
        for _ in range(rounds):
            assert connection.wait([theirs._reader], WAIT_S)
            seen.append(theirs.get())

    async def main():
        for number in range(rounds):
            task = asyncio.create_task(ours.get_async())
            await until_it_waits(task)
            theirs.put(number)
            ours.put(number)
            assert await task == number

    listener = threading.Thread(target=listen)
    listener.start()
    run(main())
    listener.join(WAIT_S)
    assert seen == list(range(rounds))
    ours.close()
    theirs.close()
    theirs.join_thread()


# ---- the queues of tenon.multiprocessing

KINDS = ["Queue", "JoinableQueue", "SimpleQueue"]


def answer(questions, answers):
    for value in iter(questions.get, None):
        answers.put((value, np.arange(value)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_coroutine_gets_what_a_child_of_multiprocessing_puts(context, kind):
    questions, answers = context.Queue(), getattr(context, kind)()
    child = context.Process(target=answer, args=(questions, answers))
    child.start()

    async def main():
        task = asyncio.create_task(answers.get_async())
        await until_it_waits(task)
        threads = threading.active_count()
        questions.put(3)
        number, array = await task
        assert threading.active_count() == threads
        return number, array.tolist()

    assert run(main()) == (3, [0, 1, 2])
    if kind == "JoinableQueue":
        answers.task_done()
        answers.join()
    questions.put(None)
    child.join(WAIT_S)
    assert child.exitcode == 0


@pytest.mark.parametrize("maxsize", [0, 2])
def test_get_async_of_multiprocessing_raises_empty_and_loses_nothing(fork, maxsize):
    queue = fork.Queue(maxsize)

    async def main():
        for timeout in (0, -1, 0.01):
            with pytest.raises(Empty):
                await queue.get_async(timeout)
        cancelled = asyncio.create_task(queue.get_async())
        await until_it_waits(cancelled)
        queue.put(1)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await queue.get_async(timeout=WAIT_S) == 1
        closed = asyncio.create_task(queue.get_async())
        await until_it_waits(closed)
        queue.close()
        with pytest.raises(ValueError, match="is closed"):
            await closed
        with pytest.raises(ValueError, match="is closed"):
            await queue.get_async()

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_another_coroutine_may_put_after_the_last_other_process_died(fork, kind):
    queue = getattr(fork, kind)()
    child = fork.Process(target=signal.pause)
    child.start()
    child.kill()
    child.join()
    tenon.domain().reap()

    async def main():
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        queue.put("here")
        return await task

    assert run(main()) == "here"


@pytest.mark.parametrize("kind", KINDS)
def test_the_reader_of_a_queue_sees_what_a_coroutine_took(fork, kind):
    queue = getattr(fork, kind)()
    queue.put(1)
    descriptor = queue._reader.fileno()
    assert select.select([descriptor], [], [], WAIT_S)[0] == [descriptor]
    assert run(queue.get_async()) == 1
    assert select.select([descriptor], [], [], 0)[0] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_is_told_of_messages_after_a_coroutine_waited(fork, kind):
    queue = getattr(fork, kind)()
    descriptor = queue._reader.fileno()

    async def main():
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        queue.put(1)
        assert await task == 1

    run(main())
    child = fork.Process(target=queue.put, args=(2,))
    child.start()
    assert select.select([descriptor], [], [], WAIT_S)[0] == [descriptor]
    assert queue.get() == 2
    child.join(WAIT_S)


def test_producers_ring_only_while_a_coroutine_waits(domain, queue):
    async def main():
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        queue.put(1)
        await task

    run(main())
    domain.poll_clear()
    queue.put(2)
    assert select.select([domain.poll_fd()], [], [], 0) == ([], [], [])
    assert queue.get() == 2


def test_a_forked_child_has_loops_of_its_own(domain, queue):
    async def main():
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        queue.put(1)
        return await task

    def child(queue):
        assert run(main_of(queue)) == 2

    async def main_of(queue):
        task = asyncio.create_task(queue.get_async())
        await until_it_waits(task)
        queue.put(2)
        return await task

    assert run(main()) == 1
    finish(start(domain, child))
