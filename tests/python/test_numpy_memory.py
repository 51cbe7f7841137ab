# SPDX-License-Identifier: Apache-2.0
"""tenon.numpy_allocator: arrays that NumPy makes in shared memory."""

import asyncio
import threading

import numpy as np
import pytest
import tenon
from tenon import _core

LARGE = 1 << 17  # bytes: more than the least


def lies_in(domain, array):
    return domain.find(array.ctypes.data, 1) is not None


def large(value=1):
    return np.full(LARGE, value, "uint8")


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.empty(LARGE),
        lambda: np.zeros((2, LARGE)),
        lambda: np.ones(LARGE) + np.ones(LARGE),
        lambda: np.arange(LARGE).reshape(2, -1).T.copy(),
        lambda: np.concatenate([large(), large()]),
        lambda: np.sort(np.ones(LARGE)),
        lambda: np.ones(LARGE).astype("float32"),
        lambda: np.array([[7] * 1000] * 1000),
    ],
    ids=["empty", "zeros", "sum", "copy", "concatenate", "sort", "astype", "array"],
)
def test_array_is_sent_without_a_copy(domain, make):
    queue = _core.Queue.create(domain)
    with tenon.numpy_allocator(domain):
        array = make()
    before = _core.traffic()
    queue.put(array)
    assert _core.traffic()[2:] == before[2:]  # copied
    received = queue.get()
    assert np.array_equal(received, array)
    assert received.ctypes.data == array.ctypes.data


def test_array_outlives_its_maker_with_the_receiver(domain):
    queue = _core.Queue.create(domain)
    with tenon.numpy_allocator(domain):
        queue.put(large(7))
        received = queue.get()
        others = [large(8) for _ in range(10)]  # use no memory that the receiver has
    assert (received == 7).all() and len(others) == 10


def test_memory_of_an_array_is_used_again(domain):
    with tenon.numpy_allocator(domain):
        places = {large().ctypes.data for _ in range(20)}
    assert len(places) == 1


def test_zeros_in_memory_that_was_used_before(domain):
    with tenon.numpy_allocator(domain):
        place = large(255).ctypes.data
        array = np.zeros(LARGE, "uint8")
    assert array.ctypes.data == place and not array.any()


def test_only_arrays_of_the_block_lie_there(domain):
    before = large()
    with tenon.numpy_allocator(domain):
        inside = large()
    after = large()
    assert [lies_in(domain, array) for array in (before, inside, after)] == [False, True, False]


def test_block_within_another_ends_for_itself(domain):
    other = _core.Domain.create()
    with tenon.numpy_allocator(domain):
        with tenon.numpy_allocator(other):
            inner = large()
        outer = large()
    assert lies_in(other, inner) and lies_in(domain, outer)
    del inner
    assert other.audit() == []
    other.close()


def test_block_ends_by_an_exception(domain):
    with pytest.raises(KeyError):
        with tenon.numpy_allocator(domain):
            raise KeyError
    assert not lies_in(domain, large())


def test_other_threads_go_on_as_before(domain):
    made = []
    with tenon.numpy_allocator(domain):
        thread = threading.Thread(target=lambda: made.append(large()))
        thread.start()
        thread.join()
    assert not lies_in(domain, made[0])


def test_other_tasks_of_asyncio_go_on_as_before(domain):
    async def main():
        inside, made = asyncio.Event(), asyncio.Event()

        async def one():
            with tenon.numpy_allocator(domain):
                inside.set()
                await made.wait()
                return large()

        async def other():
            await inside.wait()
            array = large()
            made.set()
            return array

        return await asyncio.gather(one(), other())

    assert [lies_in(domain, array) for array in asyncio.run(main())] == [True, False]


def test_small_array_is_private(domain):
    with tenon.numpy_allocator(domain, least_bytes=1000):
        assert not lies_in(domain, np.ones(999, "uint8"))
        assert lies_in(domain, np.ones(1000, "uint8"))


def test_arrays_beyond_the_limit_are_private(domain):
    with tenon.numpy_allocator(domain, most_bytes=2 * LARGE):
        one, two, three = large(), large(), large()
        assert [lies_in(domain, array) for array in (one, two, three)] == [True, True, False]
        del one, three
        assert lies_in(domain, large())


def test_arrays_are_private_when_the_domain_is_full():
    domain = _core.Domain.create(quota_bytes=1 << 20)
    with tenon.numpy_allocator(domain, most_bytes=1 << 40):
        arrays = [large(i) for i in range(20)]
    there = [lies_in(domain, array) for array in arrays]
    assert any(there) and not all(there)
    assert all((array == i).all() for i, array in enumerate(arrays))
    del arrays
    assert domain.audit() == []
    domain.close()


@pytest.mark.parametrize("size", [LARGE // 2, LARGE * 4, 10])
def test_array_is_resized(domain, size):
    with tenon.numpy_allocator(domain):
        array = np.arange(LARGE, dtype="uint32")
        array.resize(size, refcheck=False)
    assert np.array_equal(array[:LARGE], np.arange(LARGE)[:size]) and not array[LARGE:].any()
    assert lies_in(domain, array) == (size > 10)
    assert domain.audit() == []


def test_array_of_another_allocator_is_resized(domain):
    array = np.arange(LARGE)
    with tenon.numpy_allocator(domain):
        array.resize(2 * LARGE, refcheck=False)
    assert np.array_equal(array[:LARGE], np.arange(LARGE)) and not array[LARGE:].any()


def test_memory_of_arrays_that_are_gone_is_free():
    domain = _core.Domain.create(quota_bytes=4 << 20)
    with tenon.numpy_allocator(domain, least_bytes=0, most_bytes=4 * LARGE):
        for n in range(1, 20000, 97):
            array = np.full(n, n % 200, "uint8")
            array.resize(3 * n, refcheck=False)
            array = np.zeros(2 * LARGE, "uint8")
            assert lies_in(domain, array)
        del array
        assert lies_in(domain, np.empty(4 * LARGE, "uint8"))
    assert domain.audit() == []
    domain.close()


def test_array_can_be_read_after_the_domain_was_closed():
    domain = _core.Domain.create()
    with tenon.numpy_allocator(domain):
        array = large(5)
        domain.close()
        later = large(6)
    assert (array == 5).all() and (later == 6).all()
    del array, later


def test_forked_child_frees_nothing_of_its_parent(domain, fork):
    queue = _core.Queue.create(domain)

    def child(arrays):
        arrays.clear()
        more = [large(9) for _ in range(4)]
        queue.put(sum(int(array[0]) for array in more))

    with tenon.numpy_allocator(domain):
        arrays = [large(3)]
        process = fork.Process(target=child, args=(arrays,))
        process.start()
        process.join(60)
        assert process.exitcode == 0 and queue.get(60) == 36
        assert (arrays[0] == 3).all() and lies_in(domain, arrays[0])
        more = [large(4) for _ in range(4)]
    assert (arrays[0] == 3).all() and len(more) == 4


def test_arrays_of_a_killed_process_are_given_back(domain, fork):
    ready = _core.Queue.create(domain)

    def child():
        with tenon.numpy_allocator(domain):
            arrays = [large(i) for i in range(8)]
            ready.put(arrays[0])
            threading.Event().wait()

    process = fork.Process(target=child)
    process.start()
    received = ready.get(60)
    process.kill()
    process.join()
    domain.reap()
    assert domain.audit() == []
    assert (received == 0).all() and lies_in(domain, received)


@pytest.mark.parametrize(
    "wrong, error, match",
    [
        ({"domain": "name"}, TypeError, "domain must be a tenon.Domain"),
        ({"least_bytes": -1}, ValueError, "least_bytes must be from 0 to 2..64 - 1: -1"),
        ({"most_bytes": -1}, ValueError, "most_bytes must be from 0"),
        ({"least_bytes": "1"}, TypeError, "least_bytes must be an int, not str"),
    ],
)
def test_wrong_arguments(wrong, error, match):
    with pytest.raises(error, match=match):
        with tenon.numpy_allocator(**wrong):
            pass
    assert large().sum() == LARGE


def test_what_is_no_allocator_is_refused():
    with pytest.raises(TypeError, match="an allocator of numpy_allocator"):
        _core.set_numpy_allocator(3)


def test_closed_domain_is_refused():
    domain = _core.Domain.create()
    domain.close()
    with pytest.raises(_core.Closed):
        with tenon.numpy_allocator(domain):
            pass
