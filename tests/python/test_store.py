# SPDX-License-Identifier: Apache-2.0
"""tenon.Store: values by key, what is refused, one maker for all, changes, and other processes."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st
from tenon import _core

WAIT_S = 60

mp.set_forkserver_preload(["numpy", "pytest", "tenon.multiprocessing", "tenon._store"])


@pytest.fixture
def store():
    with tenon.Store() as made:
        yield made


# ---- values


@pytest.mark.parametrize("value", [None, 7, "text", b"bytes", [1, {"a": (2, 3)}], 2**80, "x" * 10000])
def test_a_value_comes_back_as_it_was_put(store, value):
    store["key"] = value
    assert store["key"] == value and type(store["key"]) is type(value)


def test_arrays_and_tensors_come_back_with_their_types(store):
    store["array"] = np.arange(6).reshape(2, 3)
    store["tensor"] = tenon.full((2,), 7, "int16")
    store["dict"] = {"x": np.ones(1000), "y": [tenon.zeros(3)]}
    array, tensor, found = store["array"], store["tensor"], store["dict"]
    assert type(array) is np.ndarray and array.tolist() == [[0, 1, 2], [3, 4, 5]] and array.flags.writeable
    assert type(tensor) is tenon.Tensor and tensor.tolist() == [7, 7]
    assert found["x"].sum() == 1000 and type(found["y"][0]) is tenon.Tensor


def test_shared_arrays_are_not_copied(store):
    tensor = tenon.zeros(1000, "float64")
    array = np.asarray(tensor)
    before = _core.traffic()
    store["x"] = {"all": array, "half": array[::2], "tensor": tensor}
    after = _core.traffic()
    found = store["x"]
    assert after[0] - before[0] == 3 and after[2] == before[2]
    assert found["tensor"].same_storage(tensor)
    array[:] = 5
    assert found["all"].sum() == 5000 and found["half"].sum() == 2500


def test_a_private_array_is_copied_once_and_never_by_a_get(store):
    store["x"] = np.zeros(1000)
    before = _core.traffic()
    one, other = store["x"], store["x"]
    one[3] = 1
    assert other[3] == 1 and _core.traffic() == before


def say_whether_it_can_write(store, results):
    results.put((store["array"].flags.writeable, store["tensor"].readonly, store["array"].tolist()))


def test_who_gets_a_write_once_array_cannot_write_to_it(store, quick):
    tensor = tenon.empty(4, "float64", strategy="file_descriptor", write_once=True)
    np.asarray(tensor)[:] = 3
    store["array"], store["tensor"] = np.asarray(tensor), tensor
    results = quick.SimpleQueue()
    child = quick.Process(target=say_whether_it_can_write, args=(store, results))
    child.start()
    assert results.get() == (False, True, [3] * 4)
    child.join(WAIT_S)


def test_a_dict_of_keys(store):
    for number in range(5):
        store[f"n/{number}"] = number
    store["other"] = "o"
    assert len(store) == 6 and sorted(store)[:2] == ["n/0", "n/1"] and "other" in store and "n/9" not in store
    assert sorted(store.keys("n/")) == [f"n/{n}" for n in range(5)]
    assert dict(store.items("n/")) == {f"n/{n}": n for n in range(5)}
    del store["n/0"]
    assert store.pop("n/1") == 1 and store.pop("n/1", None) is None
    assert store.get("n/1") is None and store.get("n/1", 3) == 3 and store.get("n/2") == 2
    assert sorted(store) == ["n/2", "n/3", "n/4", "other"]
    assert not tenon.Store() and store


def test_a_missing_key_raises_key_error_with_the_key(store):
    store["here"] = 1
    calls = [
        lambda: store["gone"],
        lambda: store.pop("gone"),
        lambda: store.get_with_version("gone"),
        lambda: store.parts("gone"),
        lambda: store.pin("gone"),
        lambda: store.unpin("gone"),
        lambda: store.__delitem__("gone"),
        lambda: store.put("gone", 1, if_version=1),
    ]
    for call in calls:
        with pytest.raises(KeyError) as info:
            call()
        assert info.value.args == ("gone",)
    with pytest.raises(TypeError, match="one default"):
        store.pop("gone", 1, 2)


@pytest.mark.parametrize(
    "key, kind, words",
    [
        ("", ValueError, "the key is empty"),
        ("k" * 513, ValueError, "has 513 bytes in UTF-8: 512 are the most"),
        ("\u00e9" * 257, ValueError, "has 514 bytes in UTF-8"),
        ("a\0b", ValueError, r"'a\\x00b' has a NUL character"),
        ("a\ud800", ValueError, r"'a\\ud800' has a surrogate"),
        (3, TypeError, "a key of a store is a str, not int"),
        (b"key", TypeError, "a key of a store is a str, not bytes"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_what_is_no_key_is_refused_with_the_reason(store, key, kind, words):
    calls = [
        lambda: store[key],
        lambda: store.__setitem__(key, 1),
        lambda: store.__delitem__(key),
        lambda: key in store,
        lambda: store.get(key),
        lambda: store.get_with_version(key),
        lambda: store.parts(key),
        lambda: store.pop(key),
        lambda: store.pin(key),
        lambda: store.get_or_make(key, dict),
    ]
    for call in calls:
        with pytest.raises(kind, match=words):
            call()
    if kind is ValueError and key:
        with pytest.raises(ValueError, match="the prefix"):
            store.keys(key)
        with pytest.raises(ValueError, match="the prefix"):
            store.wait(key)
    assert len(store) == 0 and store.info().puts == 0


def test_the_longest_key_and_other_alphabets(store):
    keys = ["k" * 512, "\u00e9" * 256, "\u6a21\u578b/\u5c42", "a b\n", "\U0001f40d" * 128]
    for key in keys:
        store[key] = key
    assert sorted(store) == sorted(keys)
    assert all(store[key] == key for key in keys)


def test_versions_rise_and_a_put_may_ask_for_one(store):
    first = store.put("a", 1)
    second = store.put("b", 2)
    assert 0 < first < second
    assert store.get_with_version("a") == (1, first)
    with pytest.raises(tenon.Stale, match="version"):
        store.put("a", 3, if_version=second)
    third = store.put("a", 3, if_version=first)
    assert store.get_with_version("a") == (3, third) and third > second
    with pytest.raises(tenon.Exists):
        store.put("a", 4, if_absent=True)
    assert store["a"] == 3 and store.put("c", 5, if_absent=True) > third


@pytest.mark.parametrize(
    "arguments, kind, words",
    [
        ({"if_version": 0}, ValueError, "if_version is 0"),
        ({"if_version": "1"}, TypeError, "str"),
        ({"if_version": 1, "if_absent": True}, ValueError, "IF_ABSENT"),
        ({"lifetime": 0}, ValueError, "more than 0 seconds"),
        ({"lifetime": -1}, ValueError, "the lifetime is -1"),
        ({"lifetime": float("nan")}, ValueError, "the lifetime is nan"),
        ({"lifetime": "1"}, TypeError, "str"),
        ({"timeout": float("nan")}, ValueError, "NaN"),
    ],
)
def test_wrong_arguments_of_put_change_nothing(store, arguments, kind, words):
    store["a"] = 1
    with pytest.raises(kind, match=words):
        store.put("a", 2, **arguments)
    assert store["a"] == 1 and store.info().puts == 1


def test_an_object_that_cannot_be_pickled_is_refused(store):
    with pytest.raises(Exception, match="lambda|pickle"):
        store["a"] = lambda: 1
    assert "a" not in store


def test_a_value_with_a_lifetime_goes(store):
    store.put("a", 1, lifetime=0.05)
    store.put("b", 2, lifetime=1e12)
    left = {entry.key: entry.seconds_left for entry in store.entries()}
    assert 0 <= left.get("a", 0) <= 0.05 and left["b"] is None
    until = time.monotonic() + WAIT_S
    while "a" in store and time.monotonic() < until:
        pass
    assert "a" not in store and store["b"] == 2 and list(store) == ["b"]


# Puts by the C API: two tensors of 3 int64 with 4 bytes, and bytes whose key is no UTF-8. Then the
# program looks at what Python has put.
IN_C = """
import ctypes, sys
class Message(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char_p), ("size_bytes", ctypes.c_size_t),
                ("tensors", ctypes.POINTER(ctypes.c_void_p)), ("tensor_count", ctypes.c_uint32), ("rest", ctypes.c_byte * 64)]
c = ctypes.CDLL(sys.argv[1])
c.tn_tensor_data.restype = ctypes.POINTER(ctypes.c_int64)
domain, store = ctypes.c_void_p(), ctypes.c_void_p()
assert c.tn_domain_open(sys.argv[2].encode(), None, 1, ctypes.byref(domain)) == 0
assert c.tn_store_open(domain, b"both", None, 0, ctypes.byref(store)) == 0
tensors = (ctypes.c_void_p * 2)()
for n in range(2):
    place = ctypes.cast(ctypes.addressof(tensors) + 8 * n, ctypes.c_void_p)
    assert c.tn_tensor_create(domain, ctypes.c_uint32(64 << 8 | 1 << 16), 1, (ctypes.c_int64 * 1)(3), None, place) == 0
    c.tn_tensor_data(ctypes.c_void_p(tensors[n]))[2] = 70 + n
value = Message(b"of C", 4, tensors, 2)
assert c.tn_store_put(store, b"of c", ctypes.byref(value), None, None) == 0
assert c.tn_store_put(store, bytes([0xFF]), ctypes.byref(Message(b"x", 1)), None, None) == 0
got = Message()
assert c.tn_store_get(store, b"of python", ctypes.byref(got), None) == 0
print(got.tensor_count, c.tn_tensor_data(ctypes.c_void_p(got.tensors[0]))[1])
c.tn_message_fini(ctypes.byref(got))
for n in range(2):
    c.tn_tensor_unref(ctypes.c_void_p(tensors[n]))
c.tn_object_close(store)
c.tn_domain_close(domain)
"""


def test_programs_in_c_and_python_read_the_values_of_each_other():
    library = os.environ.get("TENON_LIBRARY", "")
    if not os.path.exists(library):
        pytest.skip("TENON_LIBRARY names no shared library")
    with tenon.Store("both", domain=tenon.domain()) as store:
        store["of python"] = [np.arange(5, 9)]
        command = [sys.executable, "-c", IN_C, library, store.domain.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert (done.stdout, done.returncode) == ("1 6\n", 0), done.stderr
        data, tensors = store.parts("of c")
        assert data == b"of C" and [tensor.tolist()[2] for tensor in tensors] == [70, 71]
        with pytest.raises(tenon.Invalid, match=r"it has 2 tensors and 4 bytes.*parts\(\) of a tenon.Store"):
            store["of c"]
        assert sorted(store.keys()) == [r"\xff", "of c", "of python"]


def test_parts_of_a_value_of_python_are_its_pickle_and_its_tensors(store):
    store["a"] = tensor = tenon.zeros(3)
    data, tensors = store.parts("a")
    assert len(tensors) == 1 and tensors[0].same_storage(tensor)
    assert _core.loads(data, tensors).same_storage(tensor)
    store["b"] = 5
    data, tensors = store.parts("b")
    assert _core.loads(data, tensors) == 5 and tensors == []


class Lacking:
    def __reduce__(self):
        return _raise, ()


def _raise():
    raise ImportError("this process lacks it")


def test_a_value_that_cannot_be_unpickled_stays(store):
    store["a"] = Lacking()
    for _ in range(2):
        with pytest.raises(ImportError, match="lacks it"):
            store["a"]
    assert "a" in store and store.parts("a")[0]


def test_a_removed_file_of_a_tensor_is_no_missing_key():
    name = f"files-{os.getpid()}"
    domain = tenon.Domain.create(name, seats=4)
    keeper = tenon.Store("files", domain=domain)
    keeper["x"] = tensor = domain.zeros((3,), "float32", strategy="file_system")
    os.unlink(tensor.path)
    joined = tenon.Domain.join(name)  # another seat, which has not mapped the file
    with tenon.Store("files", domain=joined) as other:
        with pytest.raises(tenon.NotFound, match="tenon-") as info:
            other["x"]
        assert not isinstance(info.value, KeyError)
        with pytest.raises(tenon.NotFound, match="tenon-"):
            other.get_or_make("x", dict, timeout=1)
    joined.close()
    keeper.close()
    del tensor
    domain.close()


# ---- bounds


def test_a_full_store_refuses_or_evicts_as_it_was_made():
    with tenon.Store(capacity=2) as plain:
        plain["a"], plain["b"] = 1, 2
        with pytest.raises(tenon.Full):
            plain["c"] = 3
        assert sorted(plain) == ["a", "b"]
    with tenon.Store(capacity=2, evict=True) as cache:
        cache["a"], cache["b"] = 1, 2
        cache["a"]
        cache["c"] = 3
        assert len(cache) == 2 and "c" in cache and cache.info().evictions == 1


def test_a_budget_is_kept():
    with tenon.Store(budget_bytes=100_000) as plain:
        plain["a"] = np.zeros(10_000)  # 80 kB
        with pytest.raises(MemoryError):
            plain["b"] = np.zeros(10_000)
        assert list(plain) == ["a"]
    with tenon.Store(budget_bytes=200_000, evict=True) as cache:
        cache.put("pinned", np.zeros(10_000), pinned=True)
        for number in range(5):
            cache[f"{number}"] = np.zeros(10_000)
        assert sorted(cache) == ["4", "pinned"] and cache.info().nbytes <= 200_000
        cache.unpin("pinned")
        cache.pin("4")
        cache["5"] = np.zeros(10_000)
        assert sorted(cache) == ["4", "5"]


def test_what_is_evicted_lives_while_it_is_held():
    with tenon.Store(capacity=1, evict=True) as cache:
        cache["a"] = np.arange(1000)
        held = cache["a"]
        del cache["a"]
        cache["b"] = np.zeros(1000)
        assert held.sum() == 499500


def test_info_and_entries_say_what_there_is():
    with tenon.Store(capacity=16, budget_bytes=1 << 20, evict=True) as store:
        version = store.put("a", np.zeros(100), pinned=True)
        store["a"], store.get("b")
        info = store.info()
        assert (info.capacity, info.evict, info.budget_bytes, info.count) == (16, True, 1 << 20, 1)
        assert (info.version, info.puts, info.hits, info.misses) == (version, 1, 1, 1)
        [entry] = store.entries("a")
        assert entry == ("a", version, info.nbytes, None, 1, True, None) and entry.nbytes >= 800
        assert store.entries("b") == []


def test_inspect_names_the_store_and_the_key_that_keep_a_block():
    place = tenon.domain()
    with tenon.Store("seen", domain=place, capacity=16, budget_bytes=1 << 20) as store:
        store["w"] = np.zeros(54321, np.uint8)
        store["w"], store.get("none")
        held = store["w"]
        info = store.info()  # which tells others of the hits, too
        report = tenon.inspect(place.name)
        [block] = [block for block in report.blocks if block["key"] == "w" and block["kind"] == "tensor"]
        assert block["store"] == "seen" and "54321" in repr(report)
        assert "store seen: w, " in repr(report) and "its store" in repr(report)
        [seen] = [one for one in report.objects if one["name"] == "seen"]
        assert (seen["kind"], seen["count"], seen["capacity"], seen["budget_bytes"]) == ("store", 1, 16, 1 << 20)
        assert seen["bytes"] == info.nbytes and (seen["hits"], seen["misses"]) == (2, 1)
        del held


def test_a_store_that_differs_from_a_given_argument_is_refused():
    with tenon.Store("shape", capacity=8, budget_bytes=5000) as plain, tenon.Store("cache", evict=True) as cache:
        for name, arguments in [
            ("shape", {"capacity": 9}),
            ("shape", {"budget_bytes": 5001}),
            ("shape", {"evict": True}),
            ("cache", {"evict": False}),
        ]:
            with pytest.raises(tenon.Invalid, match=name) as info:
                tenon.Store(name, **arguments)
            assert info.value.status == -1
        plain["a"], cache["a"] = 1, 2
        for name, arguments in [("shape", {}), ("shape", {"capacity": 8, "evict": False}), ("cache", {"evict": True})]:
            with tenon.Store(name, **arguments) as same:
                assert list(same) == ["a"]
    for capacity in (2**20 + 1, 2**32 + 4, -1):
        with pytest.raises((tenon.Invalid, OverflowError)):
            tenon.Store(capacity=capacity)
    with pytest.raises(TypeError, match="domain must be"):
        tenon.Store(domain=3)


# ---- one makes, the others wait


def test_one_of_many_threads_makes_the_value(store):
    calls, found, asking = itertools.count(), [], threading.Semaphore(0)

    def make():
        next(calls)
        for _ in threads:  # all of them ask, or are about to
            asking.acquire(timeout=WAIT_S)
        return np.arange(1000)

    def ask():
        asking.release()
        found.append(store.get_or_make("x", make))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert next(calls) == 1 and len(found) == 6
    found[0][0] = 9
    assert all(array[0] == 9 for array in found), "not all threads have the same memory"


def test_a_maker_that_raises_lets_the_next_one_make(store):
    begun, may_fail = threading.Event(), threading.Event()
    errors = []

    def fail():
        begun.set()
        may_fail.wait(WAIT_S)
        raise LookupError("no such image")

    def ask():
        try:
            store.get_or_make("x", fail)
        except LookupError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    begun.wait(WAIT_S)
    with pytest.raises(tenon.TimedOut):
        store.get_or_make("x", dict, timeout=0)
    [entry] = store.entries()
    assert entry.maker_pid == os.getpid() and "x" not in store and len(store) == 0 and store.keys() == []
    waiting = threading.Timer(0.01, may_fail.set)
    waiting.start()
    assert store.get_or_make("x", lambda: 5, timeout=WAIT_S) == 5
    thread.join(WAIT_S)
    assert [str(error) for error in errors] == ["no such image"]


def test_a_result_that_cannot_be_put_lets_the_next_one_make(store):
    with pytest.raises(Exception, match="lambda|pickle"):
        store.get_or_make("x", lambda: lambda: 1)
    assert store.get_or_make("x", lambda: 2, timeout=0) == 2
    with tenon.Store(budget_bytes=1000) as small:
        with pytest.raises(MemoryError):
            small.get_or_make("x", lambda: np.zeros(1000))
        assert small.get_or_make("x", lambda: 3, timeout=0) == 3


def test_a_made_value_has_the_lifetime_and_the_pin_that_were_asked(store):
    store.get_or_make("x", lambda: 1, lifetime=100, pinned=True)
    [entry] = store.entries()
    assert entry.pinned and 0 < entry.seconds_left <= 100
    for arguments in ({"lifetime": 0}, {"timeout": float("nan")}):
        with pytest.raises(ValueError):
            store.get_or_make("y", dict, **arguments)
    with pytest.raises(TypeError, match="make is a function, not int"):
        store.get_or_make("y", 3)
    assert store.get_or_make("y", dict, timeout=0) == {}


def test_make_may_use_the_store_and_even_close_it(store):
    store["part"] = 3
    assert store.get_or_make("x", lambda: store["part"] + store.get_or_make("z", lambda: 4)) == 7
    other = tenon.Store()
    with pytest.raises(ValueError, match="closed the store"):
        other.get_or_make("x", lambda: other.close())


def test_keyboard_interrupt_ends_the_wait_for_a_maker(store):
    begun, done = threading.Event(), threading.Event()

    def slowly():
        begun.set()
        done.wait(WAIT_S)
        return 1

    thread = threading.Thread(target=lambda: store.get_or_make("x", slowly))
    thread.start()
    begun.wait(WAIT_S)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        store.get_or_make("x", dict)
    done.set()
    thread.join(WAIT_S)
    assert store["x"] == 1


def test_keyboard_interrupt_in_make_lets_the_next_one_make(store):
    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(WAIT_S)

    with pytest.raises(KeyboardInterrupt):
        store.get_or_make("x", interrupted)
    assert store.get_or_make("x", lambda: 2, timeout=0) == 2


# ---- changes


def test_wait_ends_at_a_change_of_its_prefix(store):
    version = store.put("a/1", 1)
    assert store.wait("a/") == version
    with pytest.raises(tenon.TimedOut):
        store.wait("a/", version, 0)
    other = store.put("b", 1)
    with pytest.raises(tenon.TimedOut):
        store.wait("a/", version, 0.01)
    threading.Timer(0.01, store.__delitem__, ("a/1",)).start()
    assert store.wait("a/", version, WAIT_S) > other
    with pytest.raises(tenon.Invalid, match="has not reached"):
        store.wait("", 10**6, 0)


def test_watch_yields_each_change_from_its_call_on(store):
    store["a"] = 1
    changes = store.watch("a")
    store["a"] = 2
    assert next(changes) == store.get_with_version("a")[1]
    threading.Timer(0.01, store.__setitem__, ("a", 3)).start()
    assert next(changes) > 0 and store["a"] == 3
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(changes)


def test_a_closed_store_says_so(store):
    store.close()
    store.close()
    for call in (lambda: store["a"], lambda: len(store), store.info, lambda: store.put("a", 1), lambda: store.get_or_make("a", dict)):
        with pytest.raises(ValueError, match="closed the store"):
            call()


def use_until_closed(store, number, errors):
    try:
        for n in itertools.count():
            key = f"{number}/{n % 5}"
            store[key] = np.full(100, n)
            assert store.get_or_make(key, dict)[0] == n
            assert f"{number}/" in store.keys(f"{number}/")[0]
            if n % 7 == 0:
                store.pop(key)
    except ValueError as error:
        errors.append(str(error))


def test_a_thread_may_close_a_store_that_others_use():
    for _ in range(10):
        store, errors = tenon.Store(), []
        threads = [threading.Thread(target=use_until_closed, args=(store, n, errors)) for n in range(4)]
        for thread in threads:
            thread.start()
        version = 0
        for _ in range(20):
            version = store.wait("", version, WAIT_S)
        store.close()
        for thread in threads:
            thread.join(WAIT_S)
        assert len(errors) == 4 and all("closed the store" in error for error in errors)


def blocks_of(domain):
    return {block["block"] for block in tenon.inspect(domain.name).blocks}


def test_nothing_is_left_of_a_closed_store():
    domain = tenon.domain()
    tenon.Store(domain=domain).close()
    before = blocks_of(domain)
    store = tenon.Store(domain=domain)
    for n in range(100):
        store[f"k/{n % 10}"] = {"a": np.zeros(n * 100), "n": n}
        store.get_or_make(f"m/{n % 10}", lambda: np.zeros(300))
    assert len(blocks_of(domain)) > len(before) + 20
    with pytest.raises(ZeroDivisionError):
        store.get_or_make("never", lambda: 1 / 0)
    store.close()
    assert blocks_of(domain) == before and domain.audit() == []


def test_a_store_of_a_closed_domain_says_so():
    domain = _core.Domain.create()
    store = tenon.Store(domain=domain)
    store["a"] = np.ones(3)
    kept = store["a"]
    domain.close()
    for call in (lambda: store["a"], store.info, lambda: store.put("a", 1), store.keys):
        with pytest.raises((tenon.Closed, ValueError)):
            call()
    assert kept.sum() == 3


# ---- other processes


def use_in_child(store, name):
    same = tenon.Store(name, domain=store.domain)
    image = store["image"]
    image[0] = 41
    assert same["image"][0] == 41
    store["answer"] = {"sum": int(image.sum()), "name": store.name}
    assert store.get_or_make("made", lambda: np.full(10, os.getpid()))[0] == os.getpid()


def test_children_use_the_store_of_their_parent(context):
    with tenon.Store("parents", domain=tenon.domain()) as store:
        store["image"] = np.ones(1000, np.int64)
        child = context.Process(target=use_in_child, args=(store, "parents"))
        child.start()
        child.join(WAIT_S)
        assert child.exitcode == 0
        assert store["answer"] == {"sum": 1040, "name": "parents"} and store["image"][0] == 41
        assert store["made"].tolist() == [child.pid] * 10


def put_in_child(store):
    store["a"] = "from the child"


def test_a_store_without_a_name_goes_to_children_by_pickle(context):
    store = tenon.Store()
    child = context.Process(target=put_in_child, args=(store,))
    child.start()
    child.join(WAIT_S)
    assert child.exitcode == 0 and store["a"] == "from the child"
    copy = pickle.loads(pickle.dumps(store))
    store.close()
    assert copy["a"] == "from the child"
    copy.close()


class Named(tenon.Store):
    pass


def test_a_store_travels_in_a_queue_and_in_another_store(store):
    queue = mp.SimpleQueue()
    queue.put({"store": store})
    store["self"] = store
    with queue.get()["store"] as copy, store["self"] as other:
        copy["a"] = 1
        assert other["a"] == 1 == store["a"]
    with Named() as special, pickle.loads(pickle.dumps(special)) as again:
        assert type(again) is Named
    del store["self"]


def ask_for_a_value(store, asking, results):
    def make():
        for _ in range(4):  # all of them ask, or are about to
            asking.acquire(timeout=WAIT_S)
        results.put(("made", os.getpid()))
        return np.full(1000, os.getpid())

    asking.release()
    results.put(("got", store.get_or_make("x", make)[999]))


def test_one_of_several_processes_makes_the_value(quick):
    store, asking, results = tenon.Store(), quick.Semaphore(0), quick.SimpleQueue()
    children = [quick.Process(target=ask_for_a_value, args=(store, asking, results)) for _ in range(4)]
    for child in children:
        child.start()
    found = [results.get() for _ in range(5)]
    for child in children:
        child.join(WAIT_S)
    [maker] = [pid for word, pid in found if word == "made"]
    assert maker in [child.pid for child in children]
    assert found.count(("got", maker)) == 4 and results.empty()
    store.close()


def take_state(store, results):
    torch = pytest.importorskip("torch")
    state = store["state"]
    found = {name: (type(value) is torch.Tensor, value.sum().item()) for name, value in state.items()}
    state["0.weight"][0, 0] = 7
    blocks = tenon.inspect(store.domain.name).blocks
    results.put((found, sum(block["bytes"] for block in blocks)))


def test_a_state_dict_of_pytorch_goes_to_a_child_without_a_copy(context):
    torch = pytest.importorskip("torch")
    import tenon.torch

    tenon.torch.install()
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 2))
    store, results = tenon.Store(), context.SimpleQueue()
    store["state"] = model.state_dict()
    mine = store["state"]
    before = sum(block["bytes"] for block in tenon.inspect(store.domain.name).blocks)
    child = context.Process(target=take_state, args=(store, results))
    child.start()
    found, used = results.get()
    child.join(WAIT_S)
    assert child.exitcode == 0
    assert set(found) == set(model.state_dict()) and all(is_tensor for is_tensor, _ in found.values())
    assert found["1.bias"][1] == pytest.approx(model[1].bias.sum().item())
    assert mine["0.weight"][0, 0] == 7, "the child wrote to a copy"
    assert mine["0.weight"].data_ptr() == store["state"]["0.weight"].data_ptr()
    assert used < before + 300 * 300 * 4, "the child has copied the weights"
    store.close()


# ---- as a dict

KEYS = st.sampled_from(["a", "b", "a/b", "a/c", "\u00e9"])
VALUES = st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers(-5, 5), max_size=4).map(np.asarray))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("put_if_absent"), KEYS, VALUES),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("pop"), KEYS),
        st.tuples(st.just("make"), KEYS, VALUES),
    ),
    max_size=30,
)


def same(one, other):
    if isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and one.dtype == other.dtype and one.tolist() == other.tolist()
    return type(one) is type(other) and one == other


def apply(store, model, step, key, *value):
    if step == "put":
        store[key], model[key] = value[0], value[0]
    elif step == "put_if_absent":
        if key in model:
            with pytest.raises(tenon.Exists):
                store.put(key, value[0], if_absent=True)
        else:
            store.put(key, value[0], if_absent=True)
            model[key] = value[0]
    elif step == "make":
        assert same(store.get_or_make(key, lambda: value[0]), model.setdefault(key, value[0]))
    elif key not in model:
        with pytest.raises(KeyError):
            store.pop(key) if step == "pop" else store.__delitem__(key)
    elif step == "pop":
        assert same(store.pop(key), model.pop(key))
    else:
        del store[key], model[key]


@given(STEPS)
def test_a_store_does_what_a_dict_does(steps):
    model = {}
    with tenon.Store(capacity=8) as store:
        for step in steps:
            apply(store, model, *step)
            assert len(store) == len(model) and sorted(store) == sorted(model)
        assert all(same(store[key], value) for key, value in model.items())
        assert sorted(store.keys("a/")) == sorted(key for key in model if key.startswith("a/"))
        assert store.info().count == len(model)
