# SPDX-License-Identifier: Apache-2.0
"""tenon.Channel: each message to every subscriber, policies, late subscribers, other processes, and deaths."""

import asyncio
import itertools
import os
import pickle
import signal
import threading

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp
from tenon import _async, _core

WAIT_S = 60

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing", "tenon._channel"])


@pytest.fixture
def channel():
    with tenon.Channel() as made:
        yield made


def another(channel):
    """A second object for the channel, which has a subscription of its own."""
    return pickle.loads(pickle.dumps(channel))


def publish_from(channel, first, count):
    for number in range(first, first + count):
        channel.publish(number, 0)


def received(channel):
    """What the channel has for this object now."""
    values = []
    while True:
        try:
            values.append(channel.receive(0))
        except tenon.TimedOut:
            return values


def blocks_of(domain):
    return {block["block"] for block in tenon.inspect(domain.name).blocks}


# ---- messages


@pytest.mark.parametrize("value", [None, 7, "text", b"bytes", [1, {"a": (2, 3)}], 2**80, "x" * 10000])
def test_a_message_comes_as_it_was_published(channel, value):
    channel.subscribe()
    channel.publish(value)
    found = channel.receive(0)
    assert found == value and type(found) is type(value)


def test_each_subscriber_receives_each_message_in_order(channel):
    with another(channel).subscribe() as other:
        channel.subscribe()
        publish_from(channel, 0, 10)
        assert received(channel) == received(other) == list(range(10))


def test_shared_arrays_are_not_copied(channel):
    tensor = tenon.zeros(1000, "float64")
    array = np.asarray(tensor)
    channel.subscribe()
    before = _core.traffic()
    channel.publish({"all": array, "half": array[::2], "tensor": tensor})
    after = _core.traffic()
    found = channel.receive(0)
    assert after[0] - before[0] == 3 and after[2] == before[2]
    assert found["tensor"].same_storage(tensor)
    array[:] = 5
    assert found["all"].sum() == 5000 and found["half"].sum() == 2500


def test_a_private_array_is_copied_once_for_all_subscribers(channel):
    with another(channel).subscribe() as other:
        channel.subscribe()
        channel.publish(np.zeros(1000))
        before = _core.traffic()
        one, two = channel.receive(0), other.receive(0)
        one[3] = 1
        assert two[3] == 1 and _core.traffic() == before


def test_a_message_is_received_as_its_parts(channel):
    channel.subscribe()
    channel.publish({"x": tenon.full((3,), 7)})
    data, [tensor] = channel.receive_parts(0)
    assert tensor.tolist() == [7] * 3 and _core.loads(data, [tensor])["x"].tolist() == [7] * 3
    with pytest.raises(tenon.TimedOut):
        channel.receive_parts(0)


class Broken:
    def __reduce__(self):
        return _raise, ()


def _raise():
    raise ZeroDivisionError


def test_an_object_that_cannot_be_made_is_lost_to_the_subscriber(channel):
    channel.subscribe()
    channel.publish(Broken())
    channel.publish(2)
    with pytest.raises(ZeroDivisionError):
        channel.receive(0)
    assert channel.receive(0) == 2


def test_an_object_that_cannot_be_pickled_is_refused(channel):
    channel.subscribe()
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        channel.publish(lambda: 1)
    assert received(channel) == [] and channel.info().published == 0


# ---- where a subscriber begins


def test_a_late_subscriber_begins_with_the_newest_or_the_oldest():
    with tenon.Channel(capacity=8, history=4) as channel:
        publish_from(channel, 1, 6)
        with another(channel).subscribe() as newest, another(channel).subscribe("oldest") as oldest:
            channel.publish(7)
            assert received(newest) == [7]
            assert received(oldest) == [3, 4, 5, 6, 7]


def test_who_subscribes_again_begins_anew(channel):
    channel.subscribe()
    publish_from(channel, 1, 3)
    assert channel.subscribe() is channel
    publish_from(channel, 4, 1)
    assert received(channel) == [4] and channel.info().subscribers == 1


def test_receive_needs_a_subscription(channel):
    for _ in range(2):
        with pytest.raises(tenon.Invalid, match="has not subscribed"):
            channel.receive()
        channel.unsubscribe()
        channel.subscribe()
        channel.unsubscribe()
    channel.publish(1, 0)
    assert channel.info().subscribed is False and channel.info().kept == 0


# ---- slow subscribers


def test_publish_waits_for_the_slowest_and_names_it():
    with tenon.Channel(capacity=3) as channel:
        channel.subscribe()
        publish_from(channel, 1, 3)
        for timeout in (0, 0.01):
            with pytest.raises(tenon.TimedOut, match=f"process {os.getpid()} has not received the last 3 messages"):
                channel.publish(4, timeout)
        assert channel.receive(0) == 1
        channel.publish(4, 0)
        assert received(channel) == [2, 3, 4]


def test_publish_goes_on_when_the_slowest_receives():
    with tenon.Channel(capacity=2) as channel, another(channel).subscribe() as slow:
        publish_from(channel, 1, 2)
        thread = threading.Thread(target=channel.publish, args=(3, WAIT_S))
        thread.start()
        assert [slow.receive(WAIT_S) for _ in range(3)] == [1, 2, 3]
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_slow_subscriber_loses_its_oldest_messages():
    with tenon.Channel(capacity=4, policy="drop") as channel, another(channel).subscribe() as quick:
        channel.subscribe()
        for number in range(1, 12):
            channel.publish(number, 0)
            assert quick.receive(0) == number
        assert received(channel) == [8, 9, 10, 11]
        info = channel.info()
        assert (info.policy, info.lost, info.dropped, quick.info().lost) == ("drop", 7, 7, 0)


def test_a_slow_subscriber_is_disconnected_and_may_subscribe_again():
    with tenon.Channel(capacity=4, policy="disconnect") as channel, another(channel).subscribe() as quick:
        channel.subscribe()
        for number in range(1, 6):
            channel.publish(number, 0)
            assert quick.receive(0) == number
        for _ in range(2):
            with pytest.raises(tenon.Stale, match="was disconnected"):
                channel.receive(0)
        info = channel.info()
        assert info.disconnected == 1 and not info.subscribed
        channel.publish(6, 0)
        with pytest.raises(tenon.Stale):
            channel.receive()
        values = iter(channel)  # subscribes again
        channel.publish(7, 0)
        assert next(values) == 7


# ---- loops, the end


def test_a_loop_subscribes_and_ends_with_the_channel(channel):
    values = iter(channel)
    publish_from(channel, 1, 3)
    channel.end()
    assert list(values) == [1, 2, 3]
    channel.end()
    with pytest.raises(tenon.Closed, match="was ended"):
        channel.publish(4)
    with pytest.raises(tenon.Closed, match="was ended"):
        channel.receive()
    assert channel.info().ended


def test_a_loop_goes_on_with_the_subscription_that_there_is(channel):
    channel.subscribe()
    publish_from(channel, 1, 3)
    assert next(iter(channel)) == 1
    channel.end()
    assert list(channel) == [2, 3]


def test_a_loop_may_begin_with_the_oldest_message():
    with tenon.Channel(history=2) as channel:
        publish_from(channel, 1, 3)
        channel.end()
        assert list(channel.subscribe("oldest")) == [2, 3]


# ---- what is refused


@pytest.mark.parametrize(
    "arguments, kind, words",
    [
        ({"capacity": 65537}, tenon.Invalid, "capacity"),
        ({"capacity": -1}, (OverflowError, ValueError), None),
        ({"capacity": 2**32}, tenon.Invalid, "a channel cannot have the capacity 4294967296"),
        ({"capacity": "8"}, TypeError, None),
        ({"capacity": 3, "history": 4}, tenon.Invalid, "history"),
        ({"history": 2**40}, tenon.Invalid, "cannot have the history"),
        ({"subscribers": 1025}, tenon.Invalid, "subscribers"),
        ({"subscribers": 2**32 + 1}, tenon.Invalid, "number of subscribers"),
        ({"policy": "lose"}, tenon.Invalid, "one of 'wait', 'drop', 'disconnect', not 'lose'"),
        ({"policy": 1}, tenon.Invalid, "not 1"),
        ({"name": "a/b"}, tenon.Invalid, None),
        ({"domain": 7}, TypeError, "domain"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(arguments, kind, words):
    with pytest.raises(kind, match=words):
        tenon.Channel(**arguments)


def test_a_channel_that_differs_from_a_given_argument_is_refused():
    with tenon.Channel("news", capacity=8, history=2, subscribers=3, policy="drop") as channel:
        tenon.Channel("news").close()
        tenon.Channel("news", capacity=8, history=2, subscribers=3, policy="drop").close()
        for wrong in ({"capacity": 9}, {"history": 3}, {"history": 0}, {"subscribers": 4}, {"policy": "disconnect"}, {"policy": "wait"}):
            with pytest.raises(tenon.Invalid, match="news"):
                tenon.Channel("news", **wrong)
        assert channel.info()[:5] == (8, 2, 3, "drop", 0)


def test_a_start_that_there_is_not_is_refused(channel):
    with pytest.raises(tenon.Invalid, match="one of 'newest', 'oldest', not 'first'"):
        channel.subscribe("first")


def test_a_channel_has_so_many_subscribers_and_no_more():
    with tenon.Channel(subscribers=1) as channel, another(channel).subscribe():
        with pytest.raises(tenon.Full, match="1 subscribers"):
            channel.subscribe()
        with pytest.raises(tenon.Full):
            iter(channel)


def test_a_closed_channel_says_so(channel):
    channel.close()
    channel.close()
    calls = (channel.receive, channel.subscribe, channel.unsubscribe, channel.end, channel.info, lambda: channel.publish(1), lambda: iter(channel))
    for call in calls:
        with pytest.raises(ValueError, match="closed the channel"):
            call()


def test_a_channel_of_a_closed_domain_says_so():
    domain = _core.Domain.create()
    channel = tenon.Channel(domain=domain).subscribe()
    values = iter(channel)
    channel.publish(np.ones(3))
    kept = next(values)
    domain.close()
    for call in (channel.receive, channel.subscribe, channel.info, lambda: channel.publish(1), lambda: next(values)):
        with pytest.raises((tenon.Closed, ValueError)):
            call()
    assert kept.sum() == 3


def test_nothing_is_left_of_a_closed_channel():
    domain = tenon.domain()
    tenon.Channel(domain=domain).close()
    before = blocks_of(domain)
    channel = tenon.Channel(domain=domain, history=20)
    for number in range(30):
        channel.publish(np.zeros(number * 100))
    assert len(blocks_of(domain)) > len(before) + 20
    channel.close()
    assert blocks_of(domain) == before and domain.audit() == []


def test_inspect_names_the_channel():
    with tenon.Channel("seen", policy="drop", capacity=2).subscribe() as channel:
        publish_from(channel, 1, 3)
        [row] = [row for row in tenon.inspect(channel.domain.name).objects if row["name"] == "seen"]
        assert (row["kind"], row["count"], row["capacity"], row["pushed"]) == ("channel", 2, 2, 3)
        assert (row["policy"], row["subscribers"], row["most_behind"], row["slowest_pid"]) == ("drop", 1, 3, os.getpid())
        assert (row["dropped"], row["disconnected"]) == (1, 0)


# ---- threads


def receive_in_thread(channel, values):
    try:
        while True:
            values.append(channel.receive(WAIT_S))
    except tenon.Closed:
        values.append(tenon.Closed)


def test_threads_share_a_subscription(channel):
    channel.subscribe()
    taken = [[] for _ in range(4)]
    threads = [threading.Thread(target=receive_in_thread, args=(channel, values)) for values in taken]
    for thread in threads:
        thread.start()
    for number in range(200):
        channel.publish(number, WAIT_S)
    channel.end()
    for thread in threads:
        thread.join(WAIT_S)
    numbers = [value for values in taken for value in values]
    assert numbers.count(tenon.Closed) == 4
    assert sorted(value for value in numbers if value is not tenon.Closed) == list(range(200))
    assert all(values == sorted(values[:-1]) + [tenon.Closed] for values in taken)


def receive_once_subscribed(channel, got):
    while not got:
        try:
            got.append(channel.receive(WAIT_S))
        except tenon.Invalid:
            continue


def test_no_thread_subscribes_while_another_one_receives(channel):
    got = []
    thread = threading.Thread(target=receive_once_subscribed, args=(channel, got))
    thread.start()
    while True:
        thread.join(0.001)  # the thread gets its turn
        try:
            channel.subscribe()
        except tenon.Invalid as error:
            assert "another thread receives" in str(error)
            break
    with pytest.raises(tenon.Invalid, match="another thread receives"):
        channel.unsubscribe()
    channel.publish("all the same")
    thread.join(WAIT_S)
    assert got == ["all the same"]


def use_until_closed(call, done, errors):
    try:
        for number in itertools.count():
            try:
                call(number)
                done.set()
            except tenon.TimedOut:
                continue
    except ValueError as error:
        errors.append(str(error))


def test_a_thread_may_close_a_channel_that_others_use():
    for _ in range(10):
        channel, errors = tenon.Channel(policy="drop").subscribe(), []
        calls = 2 * [lambda number: channel.publish(np.full(100, number)), lambda _: channel.receive(0.001)]
        done = [threading.Event() for _ in calls]
        threads = [threading.Thread(target=use_until_closed, args=(*pair, errors)) for pair in zip(calls, done)]
        for thread in threads:
            thread.start()
        for event in done:
            assert event.wait(WAIT_S)
        channel.close()
        for thread in threads:
            thread.join(WAIT_S)
        assert len(errors) == 4 and all("closed the channel" in error for error in errors)


def test_keyboard_interrupt_ends_the_wait_for_a_message(channel):
    channel.subscribe()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        channel.receive()
    channel.publish(1)
    assert channel.receive(0) == 1


def test_keyboard_interrupt_ends_the_wait_for_a_subscriber():
    with tenon.Channel(capacity=1).subscribe() as channel:
        channel.publish(1)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            channel.publish(2)
        assert received(channel) == [1] and channel.info().published == 1


# ---- other processes


def subscribe_in_child(channel, results, begun):
    with pytest.raises(tenon.Invalid, match="has not subscribed"):
        channel.receive(0)
    same = tenon.Channel(channel.name, domain=channel.domain)
    values = iter(channel)
    same.subscribe()
    begun.release()
    first = next(values)
    first["array"][0] = 41
    results.put((first["number"], int(same.receive(WAIT_S)["array"][0]), *values))


def test_children_subscribe_to_the_channel_of_their_parent(context):
    children = 2
    results, begun = context.SimpleQueue(), context.Semaphore(0)
    with tenon.Channel("parents", domain=tenon.domain()).subscribe() as channel:
        started = [context.Process(target=subscribe_in_child, args=(channel, results, begun)) for _ in range(children)]
        for child in started:
            child.start()
        for _ in started:
            assert begun.acquire(timeout=WAIT_S)
        array = np.asarray(tenon.zeros(1000, "int64"))
        channel.publish({"number": 1, "array": array})
        publish_from(channel, 2, 3)
        channel.end()
        for child in started:
            assert results.get() == (1, 41, 2, 3, 4)
            child.join(WAIT_S)
        assert array[0] == 41, "a child wrote to a copy"
        assert [value if type(value) is int else value["number"] for value in channel] == [1, 2, 3, 4]
        assert {child.exitcode for child in started} == {0}


def publish_in_child(channel):
    channel.publish(np.full(100, 7))
    channel.end()


def test_a_channel_without_a_name_goes_to_children_by_pickle(context):
    channel = tenon.Channel().subscribe()
    child = context.Process(target=publish_in_child, args=(channel,))
    child.start()
    [value] = channel
    assert value.sum() == 700
    child.join(WAIT_S)
    assert child.exitcode == 0
    channel.close()


class Named(tenon.Channel):
    pass


def test_a_channel_travels_in_a_queue_and_in_a_channel(channel):
    queue = mp.SimpleQueue()
    channel.subscribe()
    queue.put({"channel": channel})
    channel.publish({"channel": channel})
    with queue.get()["channel"] as copy, channel.receive(0)["channel"] as other:
        assert not copy.info().subscribed and not other.info().subscribed
        copy.publish(1)
        other.publish(2)
    assert received(channel) == [1, 2]
    with Named("own") as special, another(special) as again:
        assert type(again) is Named and again.name == "own"


def subscribe_and_stay(channel, begun):
    channel.subscribe()
    begun.set()
    signal.pause()


def start_subscriber(context, channel):
    begun = context.Event()
    child = context.Process(target=subscribe_and_stay, args=(channel, begun))
    child.start()
    assert begun.wait(WAIT_S)
    return child


def test_a_killed_subscriber_is_not_waited_for(quick):
    with tenon.Channel(capacity=2) as channel:
        child = start_subscriber(quick, channel)
        publish_from(channel, 1, 2)
        with pytest.raises(tenon.TimedOut, match=f"process {child.pid}"):
            channel.publish(3, 0)
        threading.Timer(0.05, child.kill).start()
        channel.publish(3, WAIT_S)
        child.join(WAIT_S)
        channel.domain.reap()
        assert channel.info().subscribers == channel.info().kept == 0


def test_a_stopped_subscriber_holds_up_nobody_with_drop(quick):
    with tenon.Channel(capacity=2, policy="drop") as channel:
        child = start_subscriber(quick, channel)
        os.kill(child.pid, signal.SIGSTOP)
        publish_from(channel, 1, 50)
        info = channel.info()
        assert (info.slowest_pid, info.most_behind, info.kept) == (child.pid, 50, 2)
        assert info.dropped == 48  # though the child has not seen that
        child.kill()
        child.join(WAIT_S)


def publish_and_die(channel):
    publish_from(channel, 1, 3)
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_death_of_the_last_publisher_ends_a_loop(quick):
    with tenon.Channel().subscribe() as channel:
        child = quick.Process(target=publish_and_die, args=(channel,))
        child.start()
        values = iter(channel)
        assert [next(values) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(tenon.PeerDied) as info:
            next(values)
        assert info.value.pid == child.pid
        child.join(WAIT_S)


def test_a_forked_child_has_no_subscription_of_its_parent(fork):
    results = fork.SimpleQueue()

    def ask(channel):
        try:
            channel.receive(0)
        except tenon.Invalid:
            channel.unsubscribe()
            results.put(list(channel.subscribe("oldest")))

    with tenon.Channel(history=3).subscribe() as channel:
        publish_from(channel, 1, 2)
        channel.end()
        child = fork.Process(target=ask, args=(channel,))
        child.start()
        assert results.get() == [1, 2]
        child.join(WAIT_S)
        assert list(channel) == [1, 2]


# ---- coroutines


@pytest.fixture
def never_looks_again(monkeypatch):
    """A coroutine that no message wakes up waits for ever, so that a lost wake-up is found."""
    monkeypatch.setattr(_async, "_LOOK_AGAIN_S", 10 * WAIT_S)


woken = pytest.mark.usefixtures("never_looks_again")


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, WAIT_S))


async def until_it_waits(*tasks):
    """Let tasks that were just started run until they have to wait."""
    for _ in range(3):
        over = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(over.set_result, None)
        await over
    assert not any(task.done() for task in tasks)


async def start_waiting(*coroutines):
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await until_it_waits(*tasks)
    return tasks


def publish_when_told(pipe, channel, *values):
    os.read(pipe, 1)
    for value in values:
        channel.publish(value, WAIT_S)
    channel.end()


@woken
def test_async_for_receives_what_a_process_publishes(fork):
    reading, writing = os.pipe()
    with tenon.Channel() as channel:
        child = fork.Process(target=publish_when_told, args=(reading, channel, 1, np.arange(3), "last"))
        child.start()

        async def collect():
            return [value async for value in channel]

        async def main():
            [task] = await start_waiting(collect())
            threads = threading.active_count()
            os.write(writing, b"1")
            values = await task
            assert threading.active_count() == threads
            return values

        one, array, last = run(main())
        assert (one, array.tolist(), last) == (1, [0, 1, 2], "last")
        child.join(WAIT_S)
    os.close(reading)
    os.close(writing)


@woken
def test_a_coroutine_takes_at_once_what_is_there(channel):
    async def main():
        with pytest.raises(tenon.Invalid, match="has not subscribed"):
            await channel.receive_async()
        channel.subscribe()
        channel.publish(1)
        assert await channel.receive_async(0) == 1
        for timeout in (0, -1, 0.01):
            with pytest.raises(tenon.TimedOut):
                await channel.receive_async(timeout)

    run(main())


@woken
def test_coroutines_wait_for_a_queue_and_two_channels_together():
    with tenon.Channel().subscribe() as one, tenon.Channel().subscribe() as two:
        queue = tenon.Queue("both")

        async def main():
            for number in range(50):
                for source in (two, queue, one):
                    waiting = {
                        one: asyncio.ensure_future(one.receive_async()),
                        two: asyncio.ensure_future(two.receive_async()),
                        queue: asyncio.ensure_future(queue.get_async()),
                    }
                    await until_it_waits(*waiting.values())
                    (queue.put if source is queue else source.publish)(number)
                    done, rest = await asyncio.wait(waiting.values(), return_when=asyncio.FIRST_COMPLETED)
                    assert done == {waiting[source]} and await waiting[source] == number
                    for task in rest:
                        task.cancel()
                    await asyncio.gather(*rest, return_exceptions=True)

        run(main())
        queue.close()


@woken
def test_an_object_that_stops_to_wait_leaves_the_others_told(channel):
    async def main():
        with another(channel).subscribe() as other:
            first, second = await start_waiting(channel.subscribe().receive_async(), other.receive_async())
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            channel.publish(7)
            assert await second == 7

    run(main())


@woken
def test_a_coroutine_that_is_cancelled_loses_no_message(channel):
    channel.subscribe()

    async def main():
        for number in range(50):
            [task] = await start_waiting(channel.receive_async())
            channel.publish(number)
            task.cancel()
            try:
                value = await task
            except asyncio.CancelledError:
                value = await channel.receive_async(WAIT_S)
            assert value == number

    run(main())


@woken
def test_each_of_many_coroutines_with_an_object_gets_each_message():
    with tenon.Channel(capacity=8) as channel:
        objects = [another(channel).subscribe() for _ in range(20)]

        async def collect(it):
            return [value async for value in it]

        async def publish():
            for number in range(100):
                while True:
                    try:
                        channel.publish(number, 0)
                        break
                    except tenon.TimedOut:
                        await asyncio.sleep(0)
            channel.end()

        async def main():
            tasks = await start_waiting(*(collect(it) for it in objects))
            await publish()
            return await asyncio.gather(*tasks)

        assert run(main()) == [list(range(100))] * 20
        for it in objects:
            it.close()


@woken
def test_the_end_and_a_close_end_the_wait_of_a_coroutine(channel):
    async def main():
        with another(channel).subscribe() as other:
            channel.subscribe()
            ended, closed = await start_waiting(channel.receive_async(), other.receive_async())
            other.close()
            with pytest.raises(ValueError, match="closed the channel"):
                await closed
            channel.end()
            with pytest.raises(tenon.Closed):
                await ended

    run(main())


@woken
def test_a_coroutine_learns_of_the_death_of_the_last_publisher(fork):
    reading, writing = os.pipe()

    def publish_and_die_when_told(channel):
        channel.publish("last")
        os.read(reading, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    with tenon.Channel().subscribe() as channel:
        child = fork.Process(target=publish_and_die_when_told, args=(channel,))
        child.start()

        async def main():
            assert await channel.receive_async() == "last"
            [task] = await start_waiting(channel.receive_async())
            os.write(writing, b"1")
            with pytest.raises(tenon.PeerDied):
                await task

        run(main())
        child.join(WAIT_S)
    os.close(reading)
    os.close(writing)


@woken
def test_a_coroutine_learns_that_it_was_disconnected():
    with tenon.Channel(capacity=2, policy="disconnect").subscribe() as channel:

        async def main():
            [task] = await start_waiting(channel.receive_async())
            publish_from(channel, 1, 3)
            with pytest.raises(tenon.Stale):
                await task

        run(main())
