# SPDX-License-Identifier: Apache-2.0
"""What waits in a process until its queue has room; and small values, pickled without a pickler."""

import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenon import _core

WAIT_S = 30
ROOM = 4
MOST = 2**31 - 1


@pytest.fixture
def queue(domain):
    made = _core.Queue.create(domain, capacity=ROOM)
    yield made
    made.close()


def permits(domain):
    return _core.Semaphore.create(domain, permits=MOST, owned=True, any_releases=True)


def feeding(backlog):
    thread = threading.Thread(target=backlog.feed)
    thread.start()
    return thread


def end_well(thread):
    thread.join(WAIT_S)
    assert not thread.is_alive()


# ---- what waits ------------------------------------------------------------------------------


def test_what_fits_is_in_the_queue_and_the_rest_waits(domain, queue):
    debts = permits(domain)
    backlog = _core.Backlog(queue, debts)
    assert [backlog.put(i) for i in range(ROOM + 3)] == [False] * ROOM + [True, False, False]
    assert (queue.count(), backlog.count, debts.get()) == (ROOM, 3, MOST - 3)
    thread = feeding(backlog)
    assert [queue.get(WAIT_S) for _ in range(ROOM + 3)] == list(range(ROOM + 3))
    end_well(thread)
    assert (backlog.count, debts.get()) == (0, MOST)
    assert backlog.put("directly") is False
    assert queue.get(0) == "directly"


def test_all_kinds_of_messages_wait_and_keep_their_order(domain, queue):
    backlog = _core.Backlog(queue)
    array = np.arange(5000, dtype=np.int32)
    tensor = domain.zeros(3, "float32")
    values = [1, "short", b"l" * 100_000, {"a": array}, b"x" * (2 << 20), [tensor, tensor], None] * 10
    for value in values:
        backlog.put(value)
    array[:] = tensor[:] = -1  # an array was copied by put(); a tensor is shared
    thread = feeding(backlog)
    for value in values:
        got = queue.get(WAIT_S)
        if isinstance(value, dict):
            assert got["a"].tolist() == list(range(5000))
        elif isinstance(value, list):
            assert [one.tolist() for one in got] == [[-1.0] * 3] * 2
        else:
            assert got == value
    end_well(thread)


def test_a_thread_keeps_its_order_while_feeders_come_and_go(domain):
    queue = _core.Queue.create(domain, capacity=64)
    backlog = _core.Backlog(queue, permits(domain))
    feeders, count = [], 20_000

    def put_all(name):
        for i in range(count):
            if backlog.put((name, i)):
                feeders.append(feeding(backlog))

    threads = [threading.Thread(target=put_all, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    nexts = [0, 0]
    for _ in range(2 * count):
        name, i = queue.get(WAIT_S)
        assert i == nexts[name]
        nexts[name] += 1
    for thread in threads + feeders:
        end_well(thread)
    queue.close()


def test_of_two_feeders_the_second_ends_at_once(queue):
    backlog = _core.Backlog(queue)
    for i in range(ROOM + 3):
        backlog.put(i)
    first, second = feeding(backlog), feeding(backlog)
    assert queue.get(WAIT_S) == 0
    assert [queue.get(WAIT_S) for _ in range(ROOM + 2)] == list(range(1, ROOM + 3))
    end_well(first)
    end_well(second)
    assert backlog.count == 0


def test_no_feeder_takes_nothing_back_from_a_feeder_that_runs(domain, queue):
    """As when Thread.start() is interrupted, and the thread runs all the same."""
    debts = permits(domain)
    backlog = _core.Backlog(queue, debts)
    for i in range(ROOM + 3):
        backlog.put(i)
    thread = feeding(backlog)
    assert queue.get(WAIT_S) == 0
    while queue.count() < ROOM:  # until the feeder has begun
        os.sched_yield()
    for i in range(ROOM + 3, ROOM + 6):
        backlog.no_feeder()
        assert backlog.put(i) is False
    backlog.no_feeder()
    assert [queue.get(WAIT_S) for _ in range(ROOM + 5)] == list(range(1, ROOM + 6))
    end_well(thread)
    assert (backlog.count, debts.get()) == (0, MOST)


def test_only_what_asked_for_a_feeder_in_vain_is_taken_back(domain, queue):
    debts = permits(domain)
    backlog = _core.Backlog(queue, debts)
    for i in range(ROOM):
        backlog.put(i)
    for asks in (b"x" * 100_000, [domain.zeros(4, "int8")], "short"):
        assert backlog.put(asks) is True
        backlog.no_feeder()
        assert (backlog.count, debts.get()) == (0, MOST)
    assert [backlog.put(value) for value in ("asks", "behind")] == [True, False]
    backlog.no_feeder()
    assert (backlog.count, debts.get()) == (1, MOST - 1)
    assert backlog.put("last") is True
    thread = feeding(backlog)
    assert [queue.get(WAIT_S) for _ in range(ROOM + 2)] == [*range(ROOM), "behind", "last"]
    end_well(thread)
    assert (backlog.count, debts.get()) == (0, MOST)


def test_what_waits_is_dropped_with_its_backlog(domain, queue):
    backlog = _core.Backlog(queue)
    for value in [0] * ROOM + [domain.zeros(10, "int8"), b"x" * 100_000, 1]:
        backlog.put(value)
    assert backlog.count == 3
    del backlog  # the fixture's audit finds no reference of the tensor
    while queue.count():
        queue.get(0)


def test_a_message_that_waits_for_room_waits_for_memory_too(domain, queue):
    backlog = _core.Backlog(queue)
    for i in range(ROOM):
        backlog.put(i)
    backlog.put(b"x" * (16 << 20))
    domain.set_quota(8 << 20)
    thread = feeding(backlog)
    assert [queue.get(WAIT_S) for _ in range(ROOM)] == list(range(ROOM))
    with pytest.raises(_core.TimedOut):
        queue.get(0.2)
    assert backlog.count == 1
    domain.set_quota(1 << 30)
    assert len(queue.get(WAIT_S)) == 16 << 20
    end_well(thread)


def use_up(domain, data):
    """A queue whose messages use all blocks that such data could lie in."""
    other = _core.Queue.create(domain, capacity=1 << 10)
    with pytest.raises(_core.Full):
        while True:
            other.push(data, timeout=0)
    return other


def test_a_message_that_waits_for_room_waits_for_a_block_too():
    domain = _core.Domain.create(blocks=64)
    queue = _core.Queue.create(domain, capacity=ROOM)
    backlog = _core.Backlog(queue)
    sent = [*range(ROOM), *(b"%4d" % i * 200 for i in range(20))]
    for data in sent:
        backlog.put(data)
    other = use_up(domain, sent[-1])
    thread = feeding(backlog)
    assert [queue.get(WAIT_S) for _ in range(ROOM)] == sent[:ROOM]
    with pytest.raises(_core.TimedOut):  # the feeder finds room, and no block
        queue.get(0.2)
    assert backlog.count == 20
    while other.count() > 0:
        other.pop(0)
    assert [queue.get(WAIT_S) for _ in range(20)] == sent[ROOM:]
    end_well(thread)
    domain.close()


def test_put_refuses_what_is_larger_than_the_quota(domain, queue):
    backlog = _core.Backlog(queue, permits(domain))
    domain.set_quota(8 << 20)
    for _ in range(2):  # the queue has room; then it has none
        with pytest.raises(MemoryError, match="more .*quota of"):
            backlog.put(b"x" * ((8 << 20) + 1))
        for i in range(ROOM + 1):
            backlog.put(i)
    assert queue.count() == ROOM
    thread = feeding(backlog)
    assert [queue.get(WAIT_S) for _ in range(2 * ROOM + 2)] == [*range(ROOM + 1)] * 2
    end_well(thread)
    domain.set_quota(1 << 30)


def test_a_process_that_ends_gives_up_what_exceeds_the_quota(domain, queue):
    backlog = _core.Backlog(queue, permits(domain))
    for value in [*range(ROOM), b"x" * (16 << 20), "last"]:
        backlog.put(value)
    domain.set_quota(8 << 20)
    thread = feeding(backlog)
    backlog.close()
    assert [queue.get(WAIT_S) for _ in range(ROOM + 1)] == [*range(ROOM), "last"]
    end_well(thread)
    domain.set_quota(1 << 30)


def test_a_process_that_ends_alone_gives_up_what_has_no_memory(domain, queue):
    backlog = _core.Backlog(queue, permits(domain))
    for value in [*range(ROOM), b"x" * (6 << 20), b"x" * (6 << 20), "last"]:
        backlog.put(value)
    domain.set_quota(8 << 20)
    taken = domain.empty(4 << 20, "uint8")
    thread = feeding(backlog)
    backlog.close()
    assert [queue.get(WAIT_S) for _ in range(ROOM + 1)] == [*range(ROOM), "last"]
    end_well(thread)
    del taken
    domain.set_quota(1 << 30)


def test_shortage_of_memory_is_raised_by_put(domain, queue):
    backlog = _core.Backlog(queue)
    domain.set_quota(8 << 20)
    for _ in range(2):  # the queue has room; then it has none
        with pytest.raises(MemoryError):
            backlog.put(np.zeros(16 << 20, np.uint8))
        for i in range(ROOM):
            backlog.put(i)
    domain.set_quota(1 << 30)


def test_what_cannot_be_pickled_is_raised_by_put_and_nothing_waits(queue):
    backlog = _core.Backlog(queue)
    for i in range(ROOM + 1):
        backlog.put(i)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        backlog.put(lambda: None)
    assert backlog.count == 1


@pytest.mark.parametrize("closes", ["queue", "domain"])
def test_a_feeder_ends_when_its_domain_is_closed(closes):
    domain = _core.Domain.create()
    queue = _core.Queue.create(domain, capacity=ROOM)
    backlog = _core.Backlog(queue, permits(domain))
    for i in range(ROOM + 5):
        backlog.put(i)
    thread = feeding(backlog)
    if closes == "queue":
        queue.close()
        with pytest.raises(ValueError):
            backlog.put("more")
    domain.close()
    end_well(thread)
    assert backlog.count == 0


def test_an_ended_queue_drops_the_messages_that_wait_for_it(queue):
    backlog = _core.Backlog(queue)
    for i in range(ROOM + 5):
        backlog.put(i)
    queue.end()
    backlog.feed()
    assert backlog.count == 0


def test_a_fork_in_the_middle_of_feeding_leaves_both_sides_well(domain):
    queue = _core.Queue.create(domain, capacity=64)
    tensor = domain.zeros(4, "int32")
    backlog, count = _core.Backlog(queue, permits(domain)), 3000
    feeders = [feeding(backlog) for i in range(count) if backlog.put([i, tensor])]
    got, children = 0, []
    while got < count:
        if got % 300 == 0:
            child = os.fork()
            if child == 0:
                del backlog  # the parent's, and its feeder may have been anywhere in it
                os._exit(0)
            children.append(child)
        assert queue.get(WAIT_S)[0] == got
        got += 1
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    for thread in feeders:
        end_well(thread)
    assert backlog.count == 0
    queue.close()
    domain.reap()


def test_a_backlog_is_of_a_queue_and_semaphores(domain, queue):
    for arguments in [(), (domain,), (queue, domain), (queue, queue), (queue, None, None, None)]:
        with pytest.raises(TypeError):
            _core.Backlog(*arguments)
    with pytest.raises(TypeError):
        _core.Backlog(queue=queue)


# ---- small values ----------------------------------------------------------------------------

_atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0, 1)]),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.binary(max_size=300),
)
_values = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(st.one_of(st.integers(), st.text(max_size=5)), inner, max_size=5),
    ),
    max_leaves=20,
)


def shape_of(value):
    """The value with the types of its parts, which == does not compare."""
    if isinstance(value, (list, tuple)):
        return type(value), [shape_of(part) for part in value]
    if isinstance(value, dict):
        return dict, [(shape_of(key), shape_of(part)) for key, part in value.items()]
    return type(value), repr(value)


@settings(max_examples=200)
@given(_values)
def test_values_of_built_in_types_arrive_as_they_are(value):
    assert shape_of(_core.loads(*_core.dumps(value))) == shape_of(value)
    assert shape_of(_core.loads(*_core.dumps([value, -1]))) == shape_of([value, -1])


def test_what_stands_in_two_places_arrives_as_one():
    one = [1]
    for value in ([one, one], (one, {"a": one}), {"a": one, "b": (one,)}):
        got = _core.loads(*_core.dumps(value))
        parts = list(got.values()) if isinstance(got, dict) else list(got)
        first = parts[0]
        second = parts[1]["a"] if isinstance(parts[1], dict) else parts[1]
        assert first is (second[0] if isinstance(second, tuple) else second)


def test_what_holds_itself_arrives_so():
    value = [1]
    value.append(value)
    got = _core.loads(*_core.dumps(value))
    assert got[1] is got and got[0] == 1


def test_subclasses_of_built_in_types_arrive_as_themselves():
    got = _core.loads(*_core.dumps([os.stat_result(range(10)), np.float64(2.5), True]))
    assert [type(part) for part in got] == [os.stat_result, np.float64, bool]
