# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed while they make, put or hold values of a store."""

import os
import random
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp

WAIT_S = 60
ROUNDS = 200 if os.environ.get("TN_TEST_FULL") else 12

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing", "tenon._store"])


@pytest.fixture
def place():
    domain = tenon.Domain.create(f"store-{os.getpid()}-{os.urandom(3).hex()}", seats=16, objects=64)
    yield domain
    domain.reap()
    assert domain.audit() == []
    domain.close()


def run(code, *arguments):
    """Start a program of its own, which prints lines."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT_S)


def make_and_stay(store, begun):
    def make():
        begun.set()
        signal.pause()

    store.get_or_make("x", make)


def test_the_next_one_makes_what_a_killed_maker_had_begun(context):
    store, begun = tenon.Store(), context.Event()
    maker = context.Process(target=make_and_stay, args=(store, begun))
    maker.start()
    assert begun.wait(WAIT_S)
    with pytest.raises(tenon.TimedOut):
        store.get_or_make("x", dict, timeout=0)
    [entry] = store.entries()
    assert entry.maker_pid == maker.pid
    killer = threading.Timer(0.05, maker.kill)
    killer.start()
    assert store.get_or_make("x", lambda: "made again", timeout=WAIT_S) == "made again"
    maker.join(WAIT_S)
    assert store["x"] == "made again" and store.entries()[0].maker_pid is None
    store.close()


def make_or_wait(store, begun, results):
    def make():
        begun.release()
        if results is None:
            signal.pause()
        return os.getpid()

    made = store.get_or_make("x", make)
    if results is not None:
        results.put(made)


def test_one_of_those_who_wait_takes_over_and_the_rest_get_it(quick):
    store, begun, results = tenon.Store(), quick.Semaphore(0), quick.SimpleQueue()
    maker = quick.Process(target=make_or_wait, args=(store, begun, None))
    maker.start()
    begun.acquire()
    others = [quick.Process(target=make_or_wait, args=(store, begun, results)) for _ in range(3)]
    for other in others:
        other.start()
    maker.kill()
    found = {results.get() for _ in others}
    for other in others:
        other.join(WAIT_S)
    maker.join(WAIT_S)
    assert len(found) == 1 and found <= {other.pid for other in others}
    assert begun.get_value() == 1
    store.close()


def test_a_child_of_a_maker_that_ends_ends_no_promise():
    store = tenon.Store()

    def make():
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(tenon.TimedOut):
            store.get_or_make("x", dict, timeout=0)
        return 5

    assert store.get_or_make("x", make) == 5
    store.close()


PUT = """
import sys, numpy as np, tenon
store = tenon.Store("numbers", domain=sys.argv[1])
store.pop("y", None)
print("begins", flush=True)
n = 0
while True:
    n += 1
    store["x"] = {"n": n, "all": np.full(100, n), "shared": tenon.full((10,), n)}
    store.put("y", n, pinned=n % 2 == 0)
    if n % 3 == 0:
        store.pop("y")
"""


def test_a_killed_putter_leaves_the_old_value_or_the_new_one(place):
    store = tenon.Store("numbers", domain=place)
    last = 0
    for _ in range(ROUNDS):
        putter = run(PUT, place.name)
        assert putter.stdout.readline() == "begins\n"
        version = store.info().version
        for _ in range(random.randrange(1, 60)):
            version = store.wait("x", version, WAIT_S)
        kill(putter)
        value = store["x"]
        assert value["n"] > 0 and value["all"].tolist() == [value["n"]] * 100
        assert value["shared"].tolist() == [value["n"]] * 10
        assert store.get("y", value["n"]) in (value["n"] - 1, value["n"])
        last = max(last, version)
        assert store.put("x", value) > last
    del value
    store.close()


HOLD = """
import sys, tenon
store = tenon.Store("values", domain=sys.argv[1], capacity=2, evict=True)
held = store["big"]
print(held[0], flush=True)
sys.stdin.read()
"""


def test_a_killed_holder_gives_back_what_it_held(place):
    store = tenon.Store("values", domain=place, capacity=2, evict=True)
    store["big"] = np.full(100_000, 7)
    holder = run(HOLD, place.name)
    assert holder.stdout.readline() == "7\n"
    store["a"] = 1
    store["b"] = 2
    assert "big" in store, "a value that a process holds was evicted"
    kill(holder)
    place.reap()
    store["c"] = 3
    store["d"] = 4
    assert "big" not in store and sorted(store) == ["c", "d"]
    store.close()


PUBLISH = """
import sys, numpy as np, tenon
store = tenon.Store("model", domain=sys.argv[1])
store["w"] = np.arange(1000)
print("there", flush=True)
sys.stdin.read()
"""


def test_values_outlive_who_put_them_while_one_has_the_store(place):
    publisher = run(PUBLISH, place.name)
    assert publisher.stdout.readline() == "there\n"
    store = tenon.Store("model", domain=place)
    kill(publisher)
    place.reap()
    assert store["w"].sum() == 499500
    kept = store["w"]
    store.close()
    with tenon.Store("model", domain=place) as again:
        assert list(again) == [], "a store outlived all who had it open"
    assert kept.sum() == 499500
