# SPDX-License-Identifier: Apache-2.0
"""Random graphs of Dask with random requests, against Dask's synchronous scheduler."""

import collections
import threading
import time

import pytest
from chosen_dask import dask  # noqa: I001: before what imports Dask
import dask.local
import tenon
import tenon.dask
from hypothesis import given, settings
from hypothesis import strategies as st

CPUS, SLOTS, MEMORY = 3, ((0, 1), (2, 3)), 4
MACHINE = {"CPU": CPUS, "GPU": SLOTS, "MEM": MEMORY}


class Use:
    """What is in use, as the tasks themselves see it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now = collections.Counter()
        self.wrong = []
        self.calls = collections.Counter()

    def enter(self, name, amounts, slots):
        with self.lock:
            self.calls[name] += 1
            self.now["CPU"] += amounts.get("CPU", 1)
            self.now["MEM"] += amounts.get("MEM", 0)
            for slot in slots:
                self.now["slot", slot] += amounts["GPU"] if amounts["GPU"] < 1 else 1
            if len(slots) == 2 and tuple(slots) not in SLOTS:
                self.wrong.append(f"{name} has slots of two groups: {slots}")
            if self.now["CPU"] > CPUS or self.now["MEM"] > MEMORY:
                self.wrong.append(f"{name} began with {dict(self.now)} in use")
            for slot in slots:
                if self.now["slot", slot] > 1:
                    self.wrong.append(f"{name} shares slot {slot}: {dict(self.now)}")

    def leave(self, amounts, slots):
        with self.lock:
            self.now["CPU"] -= amounts.get("CPU", 1)
            self.now["MEM"] -= amounts.get("MEM", 0)
            for slot in slots:
                self.now["slot", slot] -= amounts["GPU"] if amounts["GPU"] < 1 else 1


def make_function(use, name, amounts, fails):
    def function(*values):
        slots = tenon.resource_id("GPU") if amounts.get("GPU") else ()
        slots = slots if isinstance(slots, tuple) else (slots,)
        use.enter(name, amounts, slots)
        time.sleep(0.0002)
        use.leave(amounts, slots)
        if fails:
            raise LookupError(name)
        return (name, *values)

    return tenon.resources(**amounts)(function) if amounts else function


requests = st.one_of(
    st.just({}),
    st.sampled_from([{"CPU": 0}, {"CPU": 2}, {"CPU": 3}, {"MEM": 2.5}, {"CPU": 0, "MEM": 4}]),
    st.sampled_from([{"GPU": 1, "CPU": 0}, {"GPU": 2, "CPU": 0}, {"GPU": 0.5}, {"GPU": 1, "CPU": 0, "affinity": ["GPU"]}]),
)


@st.composite
def shapes(draw, can_fail):
    """For each task its request, its inputs, whether each is nested in the call, and whether the task fails."""
    count = draw(st.integers(1, 25))
    tasks = []
    for i in range(count):
        inputs = draw(st.lists(st.integers(0, i - 1), max_size=3)) if i > 0 else []
        fails = can_fail and draw(st.integers(0, 9)) == 0
        tasks.append((draw(requests), inputs, draw(st.booleans()), fails))
    return tasks, draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=5))


def build(shape, use):
    tasks, wanted = shape
    graph = {}
    for i, (amounts, inputs, is_nested, fails) in enumerate(tasks):
        keys = [f"k{j}" for j in inputs]
        function = make_function(use, f"k{i}", dict(amounts), fails)
        if is_nested and keys:
            inner = make_function(use, f"inner{i}", {}, False)
            graph[f"k{i}"] = (function, (inner, *keys), [keys, 5])
        else:
            graph[f"k{i}"] = (function, *keys, "text", 1.5)
    return graph, [f"k{i}" for i in wanted]


def needed(graph, keys):
    found, rest = set(), list(keys)
    while rest:
        key = rest.pop()
        if key not in found:
            found.add(key)
            rest += dask.core.get_dependencies(graph, key)
    return found


@given(shapes(can_fail=False), st.sampled_from([{}, {"callbacks": [(None,) * 5]}]))
@settings(max_examples=80)
def test_random_graph_gives_what_dask_gives(shape, options):
    use, other = Use(), Use()
    graph, keys = build(shape, use)
    with tenon.set_options(resources=MACHINE):
        result = tenon.dask.get(graph, keys, **options)
    for amounts, *_ in shape[0]:  # Dask's own scheduler gives no slots
        amounts.clear()
    plain, keys = build(shape, other)
    assert result == dask.local.get_sync(plain, keys)
    assert use.wrong == [] and not any(use.now.values())
    assert all(use.calls[key] == 1 for key in needed(graph, keys))
    assert max(use.calls.values()) == 1


@given(shapes(can_fail=True), st.sampled_from([{}, {"callbacks": [(None,) * 5]}]))
@settings(max_examples=60)
def test_random_graph_with_failures_raises_one_of_them(shape, options):
    use = Use()
    graph, keys = build(shape, use)
    failing = {f"k{i}" for i, task in enumerate(shape[0]) if task[3]} & needed(graph, keys)
    with tenon.set_options(resources=MACHINE):
        if failing:
            with pytest.raises(LookupError) as caught:
                tenon.dask.get(graph, keys, **options)
            assert caught.value.args[0] in failing
        else:
            tenon.dask.get(graph, keys, **options)
        assert tenon.dask.get({"x": (len, "abc")}, "x") == 3
    assert use.wrong == []


@given(st.lists(st.tuples(requests, st.booleans()), min_size=1, max_size=40))
@settings(max_examples=30)
def test_executor_keeps_within_what_there_is(calls):
    use = Use()
    with tenon.Executor(MACHINE) as executor:
        futures = [executor.submit(make_function(use, i, dict(amounts), fails)) for i, (amounts, fails) in enumerate(calls)]
        for i, (future, (_, fails)) in enumerate(zip(futures, calls)):
            assert isinstance(future.exception(60), LookupError) == fails
    assert use.wrong == [] and not any(use.now.values()) and set(use.calls.values()) == {1}
