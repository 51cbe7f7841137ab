# SPDX-License-Identifier: Apache-2.0
"""tenon.trace(): what tasks did, as a file and as a picture."""

import collections
import json
import threading
import time

import pytest
import tenon


@tenon.resources(GPU=1, CPU=0)
def kernel(*values):
    time.sleep(0.002)
    return 1


@tenon.resources(CPU=2)
def wide(*values):
    time.sleep(0.002)
    return 1


@tenon.resources(CPU=0)
def wait(*values):
    time.sleep(0.002)


def work(*values):
    time.sleep(0.001)
    return 1


def run(graph, keys, **options):
    pytest.importorskip("dask")
    import tenon.dask

    with tenon.set_options(resources={"CPU": 3, "GPU": (4, 5)}):
        return tenon.dask.get(graph, keys, **options)


def make_graph():
    graph = {}
    for i in range(10):
        graph["work", i] = (work, i)
        graph["kernel", i] = (kernel, ("work", i))
        graph["wide", i] = (wide, ("kernel", i), ("work", i))
    graph["wait"] = (wait, ("wide", 3))
    return graph, ["wait", *(("wide", i) for i in range(10))]


@pytest.fixture
def events(tmp_path):
    with tenon.trace(tmp_path / "trace.json"):
        run(*make_graph())
    return json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))


def test_each_task_is_there_in_a_lane_for_each_that_it_had(events):
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"CPU 0", "CPU 1", "CPU 2", "GPU 4", "GPU 5", "THREADS 0"} >= set(names.values()) > {"GPU 4", "GPU 5"}
    spans = [event for event in events if event["ph"] == "X"]
    assert collections.Counter(span["name"] for span in spans) == {"work": 10, "kernel": 10, "wide": 20, "wait": 1}
    for span in spans:
        kind = {"kernel": "GPU", "wait": "THREADS"}.get(span["name"], "CPU")
        assert names[span["tid"]].startswith(kind)
    assert len({span["args"]["task"] for span in spans}) == 31


def test_tasks_in_a_lane_do_not_overlap(events):
    lanes = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        spans.sort()
        assert all(ended <= began + 0.01 for (_, ended), (began, _) in zip(spans, spans[1:]))


def test_arrows_lead_from_inputs_to_tasks(events):
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(begins) == 31 and begins.keys() == ends.keys()
    assert all(begins[i]["ts"] <= ends[i]["ts"] + 0.01 for i in begins)


def test_counters_stay_within_what_there_is_and_end_at_zero(events):
    last = {}
    for event in events:
        if event["ph"] == "C":
            last[event["name"]] = event["args"]["in use"]
            assert 0 <= last[event["name"]] <= {"CPU in use": 3, "GPU in use": 2}[event["name"]]
    assert last == {"CPU in use": 0, "GPU in use": 0}


def test_tasks_with_callbacks_and_calls_of_an_executor_are_noted(tmp_path):
    made = tenon.trace(tmp_path / "trace.json")
    run({"x": (work, 1), "y": (kernel, "x")}, "y", callbacks=[(None,) * 5])
    with tenon.Executor({"CPU": 2}) as executor:
        list(executor.map(work, range(5)))
    made.close()
    made.close()
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert collections.Counter(event["name"] for event in events if event["ph"] == "X") == {"work": 6, "kernel": 1}


def read_arrows(path):
    """The arrows of a file: the names of the spans that they lead from and to."""
    events = json.loads(path.read_text(encoding="utf-8"))
    spans = [event for event in events if event["ph"] == "X"]

    def name_at(point):
        lane = [span for span in spans if span["tid"] == point["tid"]]
        return {span["name"] for span in lane if span["ts"] <= point["ts"] <= span["ts"] + span["dur"] + 0.001}

    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert all(begins[i]["ts"] <= ends[i]["ts"] for i in begins)
    return [(name_at(begins[i]), name_at(ends[i])) for i in begins]


def test_arrows_lead_to_tasks_that_dask_hands_over(tmp_path):
    with tenon.trace(tmp_path / "trace.json"):
        run({"w": (wide,), "x": (kernel, "w"), "y": (work, "x", "w"), "z": 1}, ["y", "z"], callbacks=[(None,) * 5])
    arrows = read_arrows(tmp_path / "trace.json")
    assert sorted((min(one), min(other)) for one, other in arrows) == [
        ("kernel", "work"),
        ("wide", "kernel"),
        ("wide", "work"),
    ]


@pytest.mark.parametrize("limit", [1, 100])
def test_arrows_lead_to_calls_that_come_after_others(tmp_path, limit):
    with tenon.trace(tmp_path / "trace.json"):
        with tenon.Executor({"CPU": 2, "GPU": (4, 5)}) as executor:
            executor._calls._limit = limit  # of a batch
            first = [executor.submit(wide), executor.submit(work)]
            last = executor.submit(kernel, after=first)
            executor.submit(wait, after=last).result(60)
    arrows = read_arrows(tmp_path / "trace.json")
    assert len(arrows) == 3 and all(("kernel" in one | other) for one, other in arrows)
    assert sum("kernel" in other for _, other in arrows) == 2 and sum("kernel" in one for one, _ in arrows) == 1


def make_bytes(count):
    return memoryview(bytes(count))


def read_bytes(path):
    """The last of each counter of bytes, and the most that it was."""
    events = json.loads(path.read_text(encoding="utf-8"))
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    last, most = {}, collections.Counter()
    for event in events:
        if event["ph"] == "C" and "bytes" in event["name"]:
            assert processes[event["pid"]] == "memory"
            last[event["name"]] = event["args"]["bytes"]
            most[event["name"]] = max(most[event["name"]], event["args"]["bytes"])
    return last, most


@pytest.mark.parametrize("options", [{}, {"callbacks": [(None,) * 5]}], ids=["run", "callbacks"])
def test_bytes_are_held_until_the_last_task_has_read_them(tmp_path, options):
    graph = {
        "a": (make_bytes, 3000),
        "b": (make_bytes, 500),
        "first": (work, "a"),
        "last": (kernel, "a", "b", "first"),
        "unread": (make_bytes, 20),
    }
    with tenon.trace(tmp_path / "trace.json") as made:
        run(graph, ["last", "unread"], **options)
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    ended = {event["name"]: event["ts"] + event["dur"] for event in events if event["ph"] == "X"}
    assert made.bytes()["held"][-1] == (pytest.approx(ended["kernel"]), 0)
    assert (3500 in dict(made.bytes()["held"]).values()) and made.bytes()["made"][-1][1] == 3520
    last, most = read_bytes(tmp_path / "trace.json")
    assert last == {"results: bytes held": 0, "results: bytes made": 3520}
    assert most == {"results: bytes held": 3500, "results: bytes made": 3520}


def test_bytes_of_calls_that_come_after_others_are_counted(tmp_path):
    with tenon.trace(tmp_path / "trace.json"):
        with tenon.Executor({"CPU": 2, "GPU": (4, 5)}) as executor:
            first = executor.submit(make_bytes, 1000)
            executor.submit(work, after=first).result(60)
    last, most = read_bytes(tmp_path / "trace.json")
    assert last == {"results: bytes held": 0, "results: bytes made": 1000} and most["results: bytes held"] == 1000


def test_no_bytes_are_counted_where_no_task_made_an_array(tmp_path):
    with tenon.trace(tmp_path / "trace.json") as made:
        run({"x": (work, 1), "y": (work, "x")}, "y")
    assert made.bytes() == {"held": [], "made": []} and read_bytes(tmp_path / "trace.json")[0] == {}


def number(span):
    return span["args"]["graph"], span["args"]["task"]


def secede(together):
    tenon.secede()
    together.wait(60)


@tenon.resources(GPU=1)
def run_inner(together):
    import tenon.dask

    graph = {i: (secede, together) for i in range(5)}
    return tenon.dask.get(graph, list(graph))


@tenon.resources(GPU=1)
def secede_twice(together):
    for _ in range(2):
        tenon.secede()
    together.wait()


@pytest.mark.parametrize(
    "graph, count",
    [
        (lambda: dict.fromkeys("abcdef", (secede, threading.Barrier(6))), 6),
        (lambda: {"inner": (run_inner, threading.Barrier(5))}, 6),
        (lambda: dict.fromkeys("abcdef", (secede_twice, threading.Barrier(2))), 6),
    ],
    ids=["secede", "run", "twice"],
)
def test_task_has_no_cpu_after_it_gave_it_back(tmp_path, graph, count):
    pytest.importorskip("dask")
    import tenon.dask

    graph = graph()
    with tenon.set_options(resources={"CPU": 2, "GPU": (4, 5)}):
        with tenon.trace(tmp_path / "trace.json") as made:
            tenon.dask.get(graph, list(graph))
    points = made.occupancy()["CPU"]
    assert max(amount for _, amount in points) <= 2 and points[-1][1] == 0
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    spans = [event for event in events if event["ph"] == "X"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len({number(span) for span in spans}) == count
    assert set(lanes.values()) <= {"CPU 0", "CPU 1", "GPU 4", "GPU 5"}
    of_slot = {number(span): span["dur"] for span in spans if lanes[span["tid"]].startswith("GPU")}
    of_cpu = {number(span): span["dur"] for span in spans if lanes[span["tid"]].startswith("CPU")}
    assert all(of_cpu[task] < took for task, took in of_slot.items())  # the slot is kept to the end


def test_failed_task_has_its_status(tmp_path):
    with tenon.trace(tmp_path / "trace.json"):
        with pytest.raises(ZeroDivisionError):
            run({"x": (divmod, 1, 0)}, "x")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert [event["args"]["status"] < 0 for event in events if event["ph"] == "X"] == [True]


def test_folder_that_is_not_there_and_a_second_trace_are_errors(tmp_path):
    with pytest.raises(OSError):
        tenon.trace(tmp_path / "nowhere" / "trace.json")
    with tenon.trace(tmp_path / "one.json"):
        with pytest.raises(RuntimeError, match="one.json"):
            tenon.trace(tmp_path / "two.json")
    with tenon.trace(tmp_path / "two.json"):
        pass
    assert json.loads((tmp_path / "two.json").read_text(encoding="utf-8")) == []


def test_nothing_is_noted_after_the_close(tmp_path):
    with tenon.trace(tmp_path / "trace.json"):
        run({"x": (work, 1)}, "x")
    run({"x": (work, 1)}, "x")
    with tenon.trace(tmp_path / "other.json"):
        run({"x": (kernel, 1)}, "x")
    events = json.loads((tmp_path / "other.json").read_text(encoding="utf-8"))
    assert [event["name"] for event in events if event["ph"] == "X"] == ["kernel"]


def test_trace_closed_while_a_run_goes_on(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def hold():
        begun.set()
        return go_on.wait(60)

    made = tenon.trace(tmp_path / "trace.json")
    thread = threading.Thread(target=run, args=({"x": (hold,), "y": (work, "x")}, "y"))
    thread.start()
    assert begun.wait(60)
    made.close()
    go_on.set()
    thread.join(60)
    assert not thread.is_alive()


def test_picture_in_a_notebook(tmp_path):
    with tenon.trace(tmp_path / "trace.json") as made:
        assert made._repr_png_() is None
        run(*make_graph())
    pytest.importorskip("matplotlib")
    assert made._repr_png_().startswith(b"\x89PNG")
    assert len(made.figure().axes) == 2
