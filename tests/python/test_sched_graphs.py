# SPDX-License-Identifier: Apache-2.0
"""Random graphs of Dask with random requests, against Dask's synchronous scheduler."""

import collections
import itertools
import threading
import time

import pytest
from chosen_dask import dask, workers_of_module  # noqa: I001: before what imports Dask
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


# ---- worker processes

WORKERS = {"CPU": 2, "GPU": SLOTS, "MEM": MEMORY, "THREADS": 2}
SMALL, LARGE = 1, 2000  # elements of a result: the bytes of a large one lie in the arena


@pytest.fixture(scope="module")
def workers():
    with workers_of_module(resources=WORKERS):
        yield


def make_worker_function(number, amounts, size, fails, path):
    """A function that adds up the first elements of its inputs, and notes in a file when it ran and with which slots."""

    def function(*inputs):
        import numpy as np

        began = time.monotonic()
        slots = tenon.resource_id("GPU") if amounts.get("GPU") else ()
        assert all((array == array[0]).all() for array in inputs)
        result = np.full(size, number + sum(int(array[0]) for array in inputs))
        time.sleep(0.0002)
        line = (number, began, time.monotonic(), slots if isinstance(slots, tuple) else (slots,))
        with open(path, "a") as file:
            file.write(f"{line!r}\n")
        if fails:
            raise LookupError(number)
        return result

    return tenon.resources(**amounts)(function) if amounts else function


@st.composite
def worker_tasks(draw, can_fail):
    """For each task its request, its inputs, the size of its result, and whether it fails; and what is asked for."""
    requests = st.sampled_from(
        [{}, {}, {"CPU": 2}, {"MEM": 2.5}, {"CPU": 0, "MEM": 3}, {"GPU": 1, "CPU": 0}, {"GPU": 2, "CPU": 0}, {"GPU": 0.5}]
    )
    tasks = []
    for i in range(draw(st.integers(1, 12))):
        inputs = draw(st.lists(st.integers(0, i - 1), max_size=3)) if i > 0 else []
        fails = can_fail and draw(st.integers(0, 5)) == 0
        tasks.append((draw(requests), inputs, draw(st.sampled_from([SMALL, LARGE])), fails))
    return tasks, draw(st.lists(st.integers(0, len(tasks) - 1), min_size=1, max_size=4))


def run_plainly(tasks, wanted):
    """What the tasks give if they run one after another: their numbers, and which have to run."""
    numbers, rest, needed = [], list(wanted), set()
    for i, (_, inputs, _, _) in enumerate(tasks):
        numbers.append(i + sum(numbers[each] for each in inputs))
    while rest:
        i = rest.pop()
        needed.add(i)
        rest += [each for each in tasks[i][1] if each not in needed]
    return numbers, needed


def check_use(tasks, ran):
    """At the moment when a task began, those that ran had no more than there is."""
    for _, now, _, _ in ran:
        use = collections.Counter()
        for number, began, ended, slots in ran:
            if began <= now < ended:
                amounts = tasks[number][0]
                use["CPU"] += amounts.get("CPU", 1)
                use["MEM"] += amounts.get("MEM", 0)
                use["THREADS"] += amounts.get("CPU", 1) < 1
                use.update(dict.fromkeys(slots, min(amounts.get("GPU", 0), 1)))
        assert use.pop("CPU") <= WORKERS["CPU"] and use.pop("MEM") <= MEMORY and use.pop("THREADS") <= WORKERS["THREADS"]
        assert all(amount <= 1 for amount in use.values()), use
    for number, _, _, slots in ran:
        assert len(slots) == -(-tasks[number][0].get("GPU", 0) // 1)
        assert len(slots) < 2 or slots in SLOTS


@pytest.mark.parametrize("can_fail", [False, True])
def test_random_graph_in_processes_gives_what_plain_calls_give(workers, tmp_path, can_fail):
    numbers_of_runs = itertools.count()

    @given(worker_tasks(can_fail), st.booleans())
    @settings(max_examples=20, deadline=None)
    def check(shape, optimize_graph):
        tasks, wanted = shape
        path = tmp_path / str(next(numbers_of_runs))  # tasks of a run that failed may still write into theirs
        path.touch()
        graph = {
            f"k{i}": (make_worker_function(i, amounts, size, fails, str(path)), *(f"k{each}" for each in inputs))
            for i, (amounts, inputs, size, fails) in enumerate(tasks)
        }
        numbers, needed = run_plainly(tasks, wanted)
        failing = {i for i in needed if tasks[i][3]}
        keys = [f"k{i}" for i in wanted]
        if failing:
            with pytest.raises(LookupError) as caught:
                tenon.dask.get_processes(graph, keys, optimize_graph=optimize_graph)
            # Without tblib, Dask raises an exception that has that of the task.
            assert getattr(caught.value, "exception", caught.value).args[0] in failing
        else:
            results = tenon.dask.get_processes(graph, keys, optimize_graph=optimize_graph)
            for i, result in zip(wanted, results):
                assert result.shape == (tasks[i][2],) and (result == numbers[i]).all()
        ran = list(map(eval, path.read_text().splitlines()))
        assert len({number for number, *_ in ran}) == len(ran)
        assert {number for number, *_ in ran} <= needed and (failing or len(ran) == len(needed))
        check_use(tasks, ran)

    check()
