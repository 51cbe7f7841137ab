# SPDX-License-Identifier: Apache-2.0
"""Queues where the standard library expects pipes: connection.wait() and executors."""

import os
import threading
from concurrent import futures
from multiprocessing import connection

import pytest
import tenon.multiprocessing as mp

WAIT_S = 30

mp.set_forkserver_preload(["tenon.multiprocessing"])


@pytest.fixture(params=["fork", "forkserver"])
def quick(request):
    return mp.get_context(request.param)


def test_queues_can_be_waited_for_with_other_things():
    one, other = mp.Queue(), mp.SimpleQueue()
    readers = [one._reader, other._reader]
    assert connection.wait(readers, 0) == []
    other.put(1)
    assert connection.wait(readers, WAIT_S) == [other._reader]
    one.put(2)
    assert connection.wait(readers, WAIT_S) == readers
    assert (one.get(), other.get()) == (2, 1)
    assert connection.wait(readers, 0) == []
    thread = threading.Thread(target=one.put, args=(3,))
    thread.start()
    assert connection.wait(readers, WAIT_S) == [one._reader]
    thread.join()
    assert one._reader.poll() and one._reader.recv() == 3 and not one._reader.poll()


def square(x):
    return x * x


def test_executors_of_the_standard_library_take_a_context(quick):
    with futures.ProcessPoolExecutor(2, mp_context=quick) as executor:
        assert list(executor.map(square, range(20))) == [x * x for x in range(20)]
        with pytest.raises(futures.process.BrokenProcessPool):
            executor.submit(os._exit, 1).result(WAIT_S)
