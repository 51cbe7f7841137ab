#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `tenon simulate` says of known graphs, the traces that it writes, and what it says of wrong input.

usage: simulate_test.py TENON EXAMPLES-FOLDER SCHEMA-FOLDER [unittest arguments]
"""
import collections
import decimal
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

TIMEOUT_S = 60
TENON, EXAMPLES, SCHEMAS = "tenon", "examples/simulate", "docs/schema"
MACHINE = "CPU=4 GPU=(0)"
CPU = {"name": "cpu", "run_s": 0.1}
GPU = {"name": "gpu", "request": "CPU=0 GPU=1", "run_s": 0.1}


def graph(kinds, tasks):
    return {"kinds": kinds, "tasks": tasks}


def random_graph(count, seed):
    """Tasks of one and of two CPUs, of slots, of parts of slots, and with variants."""
    rng = random.Random(seed)
    kinds = [CPU, {"name": "two", "request": "CPU=2 MEM=1.5"}, {"name": "pair", "request": "CPU=0 GPU=2"},
             {"name": "half", "request": "CPU=0.5 GPU=0.5"}, {"name": "alone", "request": "CPU=0"},
             {"name": "either", "affinity": "GPU", "variants": [{"request": "GPU=1"}, {"request": "CPU=1"}]}]
    tasks = []
    for i in range(count):
        earlier = {rng.randrange(max(0, i - 40), i) for _ in range(rng.randrange(3))} if i > 0 else set()
        tasks.append({"id": f"t{i}", "kind": rng.choice(kinds)["name"], "run_s": rng.randrange(1, 20) / 1000,
                      "inputs": [rng.choice([j, f"t{j}"]) for j in earlier], "bytes": rng.randrange(1 << 20)})
    return graph(kinds, tasks)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tenon-simulate-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, content, name="graph.json"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return self.path(name)

    def tenon(self, *arguments, expect=0, seconds=TIMEOUT_S):
        done = subprocess.run([TENON, "simulate", *arguments], text=True, capture_output=True, timeout=seconds, check=False)
        self.assertEqual(done.returncode, expect, f"{arguments}: {done.stdout}{done.stderr}")
        if expect == 0:
            self.assertEqual(done.stderr, "")
            return done.stdout
        self.assertEqual(done.stdout, "")
        return done.stderr

    def simulate(self, content, resources=MACHINE, *options):
        return json.loads(self.tenon(self.write(content), "--resources", resources, "--json", *options))

    def trace(self, content, resources):
        """The events of the trace, with exact times, and what the command says of the run."""
        report = self.simulate(content, resources, "--trace", self.path("trace.json"))
        with open(self.path("trace.json"), encoding="utf-8") as file:
            return json.load(file, parse_float=decimal.Decimal)["traceEvents"], report


class Figures(Case):
    def resource(self, report, name):
        return next(r for r in report["resources"] if r["name"] == name)

    def test_tasks_of_other_resources_overlap(self):
        report = self.simulate(graph([CPU, GPU], [{"kind": "cpu"}] * 40 + [{"kind": "gpu"}] * 10))
        self.assertEqual(report["tasks"], 50)
        self.assertEqual(report["makespan_ns"], 10**9)
        self.assertEqual(report["bound_ns"], 10**9)
        self.assertEqual(report["makespan_per_bound"], 1)
        self.assertEqual(report["critical_path_ns"], 10**8)
        for name, total in ("CPU", 4), ("GPU", 1):
            self.assertEqual(self.resource(report, name), {"name": name, "total": total, "busy_ns": total * 10**9,
                                                           "occupancy": 1, "bound_ns": 10**9})

    def test_the_example_takes_1_2_s(self):
        report = json.loads(self.tenon(f"{EXAMPLES}/graph.json", f"{EXAMPLES}/machine.json", "--json"))
        self.assertEqual(report["makespan_ns"], 1200 * 10**6)
        self.assertEqual(report["bound_ns"], 1200 * 10**6)
        self.assertEqual(report["critical_path_ns"], 500 * 10**6)
        self.assertEqual(report["makespan_per_bound"], 1)
        self.assertAlmostEqual(self.resource(report, "GPU")["occupancy"], 2 / 3)

    def test_the_text_is_that_of_the_manual(self):
        with open(f"{SCHEMAS}/../tool.md", encoding="utf-8") as file:
            shown = re.findall(r"^\$ tenon simulate (.*)\n((?:(?!\$ |```).*\n)*)", file.read(), re.M)
        self.assertEqual(len(shown), 2)
        for arguments, text in shown:
            done = subprocess.run([TENON, "simulate", *shlex.split(arguments)], cwd=EXAMPLES, text=True, capture_output=True,
                                  timeout=TIMEOUT_S, check=True)
            self.assertEqual(done.stdout.strip(), text.strip())

    def test_a_chain_takes_its_critical_path(self):
        tasks = [{"kind": "cpu", "inputs": [i - 1] if i > 0 else []} for i in range(10)]
        report = self.simulate(graph([CPU], tasks))
        self.assertEqual([report["makespan_ns"], report["critical_path_ns"], report["bound_of"]],
                         [10**9, 10**9, "critical path"])

    def test_the_critical_path_has_the_fastest_variants(self):
        kind = {"name": "either", "variants": [{"request": "CPU=1", "run_s": 0.5}, {"request": "CPU=0 GPU=1", "run_s": 0.1}]}
        report = self.simulate(graph([kind], [{"kind": "either"}, {"kind": "either", "inputs": [0]}]))
        self.assertEqual(report["critical_path_ns"], 200 * 10**6)
        self.assertEqual(report["makespan_ns"], 200 * 10**6)

    def test_only_what_all_variants_need_bounds_a_resource(self):
        kind = {"name": "either", "variants": [{"request": "CPU=2 GPU=1", "run_s": 0.1}, {"request": "CPU=4", "run_s": 0.4}]}
        report = self.simulate(graph([kind], [{"kind": "either"}] * 10))
        self.assertEqual(self.resource(report, "GPU")["bound_ns"], 0)
        self.assertEqual(self.resource(report, "CPU")["bound_ns"], 500 * 10**6)

    def test_the_time_of_a_task_replaces_that_of_its_kind(self):
        report = self.simulate(graph([CPU], [{"kind": "cpu", "run_s": 2.5}]))
        self.assertEqual(report["makespan_ns"], 2500 * 10**6)

    def test_threads_are_shown_if_tasks_wait_for_them(self):
        waiting = graph([{"name": "io", "request": "CPU=0", "run_s": 1}], [{"kind": "io"}] * 4)
        for threads, is_shown in (8, False), (2, True):
            report = self.simulate(waiting, f"CPU=1 THREADS={threads}")
            self.assertEqual("THREADS" in [r["name"] for r in report["resources"]], is_shown)

    def test_a_graph_without_tasks_takes_no_time(self):
        report = self.simulate(graph([], []))
        self.assertEqual([report["tasks"], report["makespan_ns"], report["makespan_per_bound"]], [0, 0, None])
        self.assertEqual(report["resources"][0]["occupancy"], None)

    def test_no_run_is_shorter_than_its_bound(self):
        for seed in range(20):
            report = self.simulate(random_graph(100, seed), "CPU=4 GPU=((0,1),(2,3)) MEM=6")
            self.assertGreaterEqual(report["makespan_ns"], report["bound_ns"], seed)
            self.assertLessEqual(report["makespan_per_bound"], 2.5, seed)

    def test_the_machine_of_a_file_is_that_of_the_option(self):
        path = self.write(random_graph(200, 1))
        machine = self.write({"resources": "CPU=4 GPU=(0,1) MEM=6"}, "machine.json")
        self.assertEqual(self.tenon(path, machine, "-j"), self.tenon(path, "-j", "--resources", "CPU=4 GPU=(0,1) MEM=6"))
        self.assertEqual(self.tenon(path, machine, "-j", "-r", "CPU=2 GPU=(0,1) MEM=9"),
                         self.tenon(path, "-j", "-r", "CPU=2 GPU=(0,1) MEM=9"))

    def test_results_take_time_to_come_to_another_memory(self):
        tasks = [{"kind": "gpu", "bytes": 1000}, {"kind": "gpu", "inputs": [0]}, {"kind": "cpu", "inputs": [0, 0]}]
        path = self.write(graph([{"name": "gpu", "request": "CPU=0 GPU=1", "run_s": 1}, {"name": "cpu", "run_s": 1}], tasks))
        took = {}
        for memories in None, "GPU=5000":
            machine = {"resources": "CPU=1 GPU=((0,1))", "links": "HOST=500"}
            if memories:
                machine["memories"] = memories
            report = json.loads(self.tenon(path, self.write(machine, "machine.json"), "-j"))
            took[memories] = report["makespan_ns"]
            self.assertEqual([report["moved_bytes"], report["evicted_bytes"]], [1000 if memories else 0, 0])
            text = self.tenon(path, self.write(machine, "machine.json"))
            self.assertEqual("moved          1000 B between memories, 0 B left a full one\n" in text, memories is not None)
        # The second task finds the result on its card; it comes to the CPU in 2 s.
        self.assertEqual(took, {None: 2 * 10**9, "GPU=5000": 4 * 10**9})

    def test_a_trace_counts_the_bytes_of_memories(self):
        tasks = [{"kind": "gpu", "bytes": 1000}, {"kind": "cpu", "inputs": [0]}]
        content = graph([{"name": "gpu", "request": "CPU=0 GPU=1", "run_s": 1}, {"name": "cpu", "run_s": 1}], tasks)
        machine = {"resources": "CPU=1 GPU=((0,1))", "links": "HOST=500", "memories": "GPU=5000"}
        self.tenon(self.write(content), self.write(machine, "machine.json"), "--trace", self.path("trace.json"))
        with open(self.path("trace.json"), encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        counters = [(e["name"], e["ts"], e["args"]["bytes"]) for e in events if "bytes" in e.get("args", ())]
        self.assertEqual(counters, [("GPU 0: bytes held", 0, 1000), ("host: bytes held", 1e6, 1000),
                                    ("host: bytes moved here", 3e6, 1000)])

    def test_a_result_that_no_task_reads_any_more_leaves_a_full_memory(self):
        tasks = [{"kind": "gpu", "bytes": 1000, "inputs": [i - 1] if i else []} for i in range(10)]
        path = self.write(graph([{"name": "gpu", "request": "CPU=0 GPU=1", "run_s": 1}], tasks))
        machine = {"resources": "CPU=1 GPU=(0)", "links": "HOST=500", "memories": "GPU=2000"}
        report = json.loads(self.tenon(path, self.write(machine, "machine.json"), "-j"))
        self.assertEqual(report["makespan_ns"], 10 * 10**9)
        self.assertEqual([report["moved_bytes"], report["evicted_bytes"]], [0, 8000])
        machine["memories"] = "GPU=1999"
        self.assertIn("the data of a task has 2000 bytes, and the largest memory for it 1999",
                      self.tenon(path, self.write(machine, "machine.json"), expect=2))

    def test_the_order_of_the_machine_is_used(self):
        # By depth, the long task is last; by rank, first.
        path = self.write(graph([CPU], [{"kind": "cpu"}] * 10 + [{"kind": "cpu", "run_s": 1}]))
        took = {}
        for order in "auto", "rank", "depth":
            machine = self.write({"resources": "CPU=2", "order": order, "skips": 3, "skew": 0.5}, "machine.json")
            took[order] = json.loads(self.tenon(path, machine, "-j"))["makespan_ns"]
        self.assertEqual(took, {"auto": 10**9, "rank": 10**9, "depth": 1500 * 10**6})


class Trace(Case):
    machine = "CPU=4 GPU=((0,1),(2,3)) MEM=6"

    def setUp(self):
        super().setUp()
        self.graph = random_graph(1000, 7)
        self.events, self.report = self.trace(self.graph, self.machine)
        self.spans = [e for e in self.events if e["ph"] == "X"]

    def test_tasks_of_one_lane_do_not_overlap(self):
        lanes = collections.defaultdict(list)
        for span in self.spans:
            lanes[span["pid"], span["tid"]].append((span["ts"], span["ts"] + span["dur"]))
        for spans in lanes.values():
            spans.sort()
            for (_, end), (begin, _) in zip(spans, spans[1:]):
                self.assertLessEqual(end, begin)

    def test_each_task_is_drawn_with_its_kind_and_time(self):
        found = {span["args"]["task"]: span for span in self.spans}
        self.assertEqual(len(found), 1000)
        for task in self.graph["tasks"]:
            span = found[task["id"]]
            self.assertEqual(span["name"], task["kind"])
            self.assertEqual(span["dur"], round(task["run_s"] * 1000) * 1000)

    def test_a_task_has_a_lane_for_each_slot_and_cpu(self):
        names = {e["tid"]: e["args"]["name"] for e in self.events if e.get("name") == "thread_name"}
        lanes = collections.defaultdict(list)
        for span in self.spans:
            lanes[span["args"]["task"]].append(names[span["tid"]].split()[0])
        wanted = {"cpu": [["CPU"]], "two": [["CPU"] * 2], "pair": [["GPU"] * 2], "half": [["GPU"]], "alone": [["thread"]],
                  "either": [["CPU", "GPU"], ["CPU"]]}
        for task in self.graph["tasks"]:
            self.assertIn(sorted(lanes[task["id"]]), wanted[task["kind"]])

    def test_lanes_and_resources_have_names(self):
        processes = {e["pid"]: e["args"]["name"] for e in self.events if e.get("name") == "process_name"}
        self.assertEqual(sorted(processes.values()), ["CPU", "GPU", "MEM", "THREADS"])
        lanes = {e["tid"]: (processes[e["pid"]], e["args"]["name"]) for e in self.events if e.get("name") == "thread_name"}
        self.assertEqual(len(set(lanes.values())), len(lanes))
        for name in ["CPU 0", "CPU 1", "CPU 2", "CPU 3"]:
            self.assertIn(("CPU", name), lanes.values())
        for slot in range(4): # two halves share a slot
            self.assertIn(("GPU", f"GPU {slot}"), lanes.values())
            self.assertIn(("GPU", f"GPU {slot} (2)"), lanes.values())
        self.assertEqual({span["tid"] for span in self.spans}, set(lanes))

    def test_an_arrow_leads_from_each_input_to_its_task(self):
        spans = collections.defaultdict(list)
        for span in self.spans:
            spans[span["pid"], span["tid"]].append(span)

        def task_at(event):
            found = [s for s in spans[event["pid"], event["tid"]] if s["ts"] <= event["ts"] < s["ts"] + s["dur"]]
            self.assertEqual(len(found), 1)
            return found[0]["args"]["task"]

        arrows = collections.defaultdict(dict)
        for event in self.events:
            if event["ph"] in "sf":
                self.assertNotIn(event["ph"], arrows[event["id"]])
                arrows[event["id"]][event["ph"]] = event
        drawn = []
        for arrow in arrows.values():
            self.assertLessEqual(arrow["s"]["ts"], arrow["f"]["ts"])
            drawn.append((task_at(arrow["s"]), task_at(arrow["f"])))
        edges = [(j if isinstance(j, str) else f"t{j}", task["id"]) for task in self.graph["tasks"] for j in task["inputs"]]
        self.assertEqual(sorted(drawn), sorted(edges))

    def test_counters_stay_within_the_total_and_end_at_0(self):
        totals = {"CPU in use": 4, "GPU in use": 4, "MEM in use": 6, "THREADS in use": 64}
        last = dict.fromkeys(totals, (-1, 0))
        for event in self.events:
            if event["ph"] == "C":
                value = event["args"]["in use"]
                self.assertGreater(event["ts"], last[event["name"]][0])
                self.assertTrue(0 <= value <= totals[event["name"]])
                last[event["name"]] = event["ts"], value
        self.assertEqual({value for _, value in last.values()}, {0})

    def test_the_trace_ends_with_the_makespan(self):
        self.assertEqual(max(s["ts"] + s["dur"] for s in self.spans) * 1000, self.report["makespan_ns"])

    def test_names_with_quotes_stay_as_they_are(self):
        name = 'a "b" \\ \n \u00e9'
        events, _ = self.trace(graph([{"name": name, "run_s": 1}], [{"id": name, "kind": name}, {"kind": name}]), "CPU=1")
        spans = [e for e in events if e["ph"] == "X"]
        self.assertEqual([(s["name"], s["args"]["task"]) for s in spans], [(name, name), (name, 1)])

    def test_two_runs_write_the_same(self):
        with open(self.path("trace.json"), "rb") as file:
            before = file.read()
        self.assertEqual(self.trace(self.graph, self.machine)[1], self.report)
        with open(self.path("trace.json"), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_a_trace_that_cannot_be_written_is_an_error(self):
        for content in graph([CPU], [{"kind": "cpu"}]), self.graph:
            path = self.write(content)
            self.assertRegex(self.tenon(path, "-r", self.machine, "-t", "/dev/full", expect=1),
                             r"^tenon simulate: /dev/full: the trace cannot be written: writing \d+ bytes .*: "
                             r"No space left on device\n$")
        for trace, why in (self.path("none/trace"), "No such file or directory"), (self.folder, "Is a directory"):
            self.assertEqual(self.tenon(path, "-r", self.machine, "-t", trace, expect=1),
                             f"tenon simulate: {trace}: the trace cannot be written: {why}\n")


class Wrong(Case):
    def says(self, content, sentence, code=2, resources=MACHINE):
        self.assertEqual(self.tenon(self.write(content), "-r", resources, expect=code),
                         f"tenon simulate: {self.path('graph.json')}: {sentence}\n")

    def task_says(self, task, sentence):
        self.says(graph([CPU, GPU], [{"kind": "cpu", "id": "a"}, task]), sentence)

    def kind_says(self, kind, sentence):
        self.says(graph([CPU, kind], []), sentence)

    def machine_says(self, content, sentence, code=2):
        path = self.write(content, "machine.json")
        self.assertEqual(self.tenon(f"{EXAMPLES}/graph.json", path, expect=code), f"tenon simulate: {path}: {sentence}\n")

    def test_wrong_usage_is_exit_code_2(self):
        for arguments in [], ["a", "b", "c"], ["a", "--order", "x"], ["--resources"]:
            self.assertIn("tenon simulate", self.tenon(*arguments, expect=2))

    def test_a_file_that_cannot_be_read_is_named(self):
        for path, why in (self.path("none.json"), "No such file or directory"), (self.folder, "Is a directory"):
            self.assertEqual(self.tenon(path, expect=1), f"tenon simulate: {path}: {why}\n")
            self.assertEqual(self.tenon(f"{EXAMPLES}/graph.json", path, expect=1), f"tenon simulate: {path}: {why}\n")

    def test_what_is_no_json_is_named_with_line_and_column(self):
        self.says('{"kinds": [],\n "tasks": [}', "line 2, column 12: unexpected token near '}'")
        self.says('{"kinds": [{"name": "a", "run_s": NaN}], "tasks": []}', "line 1, column 37: invalid token near 'NaN'")
        self.says('{"kinds": [{"name": "a", "name": "b"}], "tasks": []}', "line 1, column 31: duplicate object key near '\"name\"'")
        self.says("", "line 1, column 0: '[' or '{' expected near end of file")

    def test_an_unknown_key_is_named_with_its_place(self):
        self.says({**graph([], []), "nodes": 1}, "the key 'nodes' is not known")
        self.kind_says({**GPU, "cost": 1}, "kinds[1]: the key 'cost' is not known")
        self.kind_says({"name": "b", "variants": [{"run": 1}]}, "kinds[1].variants[0]: the key 'run' is not known")
        self.task_says({"kind": "cpu", "deps": []}, "tasks[1]: the key 'deps' is not known")

    def test_a_missing_key_is_named_with_its_place(self):
        self.says({"kinds": []}, "tasks is missing, or no array")
        self.says({"kinds": {}, "tasks": []}, "kinds is missing, or no array")
        self.kind_says({"run_s": 1}, "kinds[1]: name is missing")
        self.task_says({"id": "b"}, "tasks[1]: kind is missing")

    def test_a_task_without_a_time_is_named(self):
        self.says(graph([{"name": "a"}], [{"kind": "a"}]), "tasks[0]: run_s is missing here and in the kind 'a'")
        self.says(graph([{"name": "a", "variants": [{"run_s": 1}, {}]}], [{"kind": "a", "run_s": 1}, {"kind": "a"}]),
                  "tasks[1]: run_s is missing here and in the kind 'a'")

    def test_an_unknown_kind_is_named(self):
        self.task_says({"kind": "tpu"}, "tasks[1]: no kind is called 'tpu'")

    def test_an_unknown_input_is_named(self):
        self.task_says({"kind": "cpu", "inputs": ["b"]}, "tasks[1]: the input 'b' is no task")
        self.task_says({"kind": "cpu", "inputs": ["a", 2]}, "tasks[1]: the input 2 is no task: there are 2")
        self.task_says({"kind": "cpu", "inputs": [-1]}, "tasks[1]: the input -1 is no task: there are 2")
        self.task_says({"kind": "cpu", "inputs": [0.5]}, "tasks[1]: an input is an id or the number of a task")
        self.task_says({"kind": "cpu", "inputs": "a"}, "tasks[1]: inputs is no array")

    def test_a_circle_is_named(self):
        self.task_says({"kind": "cpu", "inputs": [1]}, "tasks wait in a circle: 1 for 1")
        tasks = [{"id": f"t{i}", "kind": "cpu", "inputs": [f"t{(i + 1) % 3}"]} for i in range(3)]
        self.says(graph([CPU], tasks + [{"kind": "cpu", "inputs": ["t1"]}]),
                  "tasks wait in a circle: 't0' for 't1' for 't2' for 't0'")
        tasks = [{"kind": "cpu", "inputs": [(i + 1) % 100]} for i in range(100)]
        self.says(graph([CPU], tasks), "tasks wait in a circle: 0 for 1 for 2 for 3 for 4 for 95 more for 0")

    def test_a_name_that_is_given_twice_is_named(self):
        self.kind_says(CPU, "kinds[1]: the name 'cpu' is that of an earlier kind")
        self.task_says({"kind": "cpu", "id": "a"}, "tasks[1]: the id 'a' is that of an earlier task")

    def test_a_time_out_of_range_is_an_error(self):
        range_ = "it is a number from 1e-09 to 1000000000"
        for value in -1, 0, 1e10:
            self.kind_says({"name": "b", "run_s": value}, f"kinds[1]: run_s is {value:.12g}: {range_}")
            self.task_says({"kind": "cpu", "run_s": value}, f"tasks[1]: run_s is {value:.12g}: {range_}")
        self.says(graph([{"name": "a", "run_s": 1e9}], [{"kind": "a"}] * 9),
                  "tasks[8]: up to here, the tasks take more than 285 years")

    def test_a_number_out_of_range_is_an_error(self):
        self.task_says({"kind": "cpu", "priority": 32768},
                       "tasks[1]: priority is 32768: it is a whole number from -32768 to 32767")
        self.task_says({"kind": "cpu", "bytes": 0.5},
                       "tasks[1]: bytes is 0.5: it is a whole number from 0 to 9007199254740992")
        self.machine_says({"resources": MACHINE, "skips": 0}, "skips is 0: it is a whole number from 1 to 4294967295")
        self.machine_says({"resources": MACHINE, "skew": -1}, "skew is -1: it is a number from 0.001 to 1000")

    def test_a_value_of_another_type_is_an_error(self):
        self.kind_says({"name": "b", "run_s": "1"}, "kinds[1]: run_s is a text, not a number")
        self.kind_says({"name": "b", "request": 1}, "kinds[1]: request is a number, not a text")
        self.kind_says({"name": None}, "kinds[1]: name is null, not a text")
        self.kind_says({"name": "b", "variants": {}}, "kinds[1]: variants is not an array of 1 to 4 objects")
        self.kind_says({"name": "b", "variants": [{}] * 5}, "kinds[1]: variants is not an array of 1 to 4 objects")
        self.task_says({"kind": "cpu", "bytes": "1"}, "tasks[1]: bytes is a text, not a whole number")
        self.task_says({"kind": ["cpu"]}, "tasks[1]: kind is an array, not a text")
        self.task_says([], "tasks[1]: it is an array, not an object")
        self.task_says({"kind": "cpu", "priority": True}, "tasks[1]: priority is true, not a whole number")
        self.says([], "it is an array, not an object")

    def test_a_kind_has_a_request_or_variants(self):
        self.kind_says({"name": "b", "run_s": 1, "variants": [{}]},
                       "kinds[1]: it has variants, so request and run_s belong into them")

    def test_a_request_that_is_never_met_is_an_error(self):
        self.kind_says({"name": "b", "request": "GPU=2"}, "kinds[1]: a task requests GPU=2, and the scheduler has GPU=1 slots")
        self.kind_says({"name": "b", "request": "TPU=1"},
                       "kinds[1]: a task requests TPU=1, and the scheduler has only CPU=4 THREADS=64 GPU=1 slot")
        self.kind_says({"name": "b", "request": "many"}, "kinds[1]: \"many\" does not begin with NAME=VALUE")
        self.kind_says({"name": "b", "affinity": "GPU"}, "kinds[1]: affinity names GPU, which the kind of task does not request")

    def test_a_wrong_machine_is_an_error(self):
        self.machine_says({}, "resources is missing")
        self.machine_says({"resources": 4}, "resources is a number, not a text")
        self.machine_says({"resources": MACHINE, "cores": 4}, "the key 'cores' is not known")
        self.machine_says({"resources": MACHINE, "order": "best"}, "order is 'best': it is auto, depth or rank")
        self.machine_says({"resources": "GPU=(0"}, "GPU=(0: a parenthesis is not closed")
        self.machine_says({"resources": MACHINE, "memories": "NPU=1"}, "memories names NPU, which has no slots")
        self.machine_says({"resources": MACHINE, "memories": 5}, "memories is a number, not a text")
        self.machine_says({"resources": MACHINE, "links": "NVLINK=1"}, "links names NVLINK: there are HOST, PEER, FAR and DISK")
        self.assertEqual(self.tenon(f"{EXAMPLES}/graph.json", "-r", "GPU=(0", expect=2),
                         "tenon simulate: --resources: GPU=(0: a parenthesis is not closed\n")

    def test_control_characters_do_not_reach_the_terminal(self):
        self.task_says({"kind": "\x1b[2J"}, "tasks[1]: no kind is called '?[2J'")


class Limits(Case):
    def test_a_task_of_very_many_cpus_is_drawn_in_some_lanes(self):
        wide = {"name": "wide", "request": "CPU=1000000000", "run_s": 1}
        events, _ = self.trace(graph([wide], [{"kind": "wide"}]), "CPU=1000000000")
        self.assertEqual(len([e for e in events if e["ph"] == "X"]), 1024)
        self.assertEqual([e["args"]["in use"] for e in events if e["ph"] == "C"], [10**9, 0])

    def test_a_chain_of_10000_tasks_is_no_problem(self):
        tasks = [{"kind": "cpu", "inputs": [i + 1] if i < 9999 else []} for i in range(10000)]
        self.assertEqual(self.simulate(graph([CPU], tasks))["makespan_ns"], 1000 * 10**9)

    def test_what_if_there_were_a_thousand_nodes(self):
        kinds = [{"name": "load", "run_s": 0.1}, {"name": "step", "request": "CPU=0 GPU=1", "affinity": "GPU"}]
        rng, tasks, took = random.Random(3), [], {}
        for i in range(10000):
            tasks += [{"kind": "load"}, {"kind": "step", "run_s": rng.randrange(100, 200) / 1000, "inputs": [2 * i]}]
        path = self.write(graph(kinds, tasks))
        for nodes in 500, 1000: # a CPU and a card of each
            machine = {"resources": f"CPU={nodes} THREADS={nodes} GPU=({','.join(f'({i})' for i in range(nodes))})"}
            reports = [self.tenon(path, self.write(machine, "machine.json"), "-j") for _ in range(2)]
            self.assertEqual(reports[0], reports[1])
            report = json.loads(reports[0])
            self.assertLessEqual(report["makespan_per_bound"], 1.2)
            took[nodes] = report["makespan_ns"]
        self.assertLess(took[1000], 0.6 * took[500])

    def test_a_million_tasks_take_seconds(self):
        tasks = ",".join(f'{{"id":"t{i}","kind":"cpu"{f",{chr(34)}inputs{chr(34)}:[{chr(34)}t{i // 2}{chr(34)}]" if i > 0 else ""}}}'
                         for i in range(10**6))
        path = self.write('{"kinds":[{"name":"cpu","run_s":0.1}],"tasks":[' + tasks + "]}")
        report = json.loads(self.tenon(path, "-r", "CPU=100", "-j", seconds=120))
        self.assertEqual(report["tasks"], 10**6)
        self.assertEqual(report["bound_ns"], 1000 * 10**9)


def errors_of(value, schema, root):
    """What of a value is not as the schema says. Knows the keywords that our schemas use, and no other one."""
    types = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
    known = {"$schema", "title", "description", "default", "$defs", "$ref", "type", "enum", "required", "properties",
             "additionalProperties", "dependentSchemas", "items", "minItems", "maxItems", "minimum", "maximum"}
    if schema is False:
        return ["it must not be there"]
    errors = [f"the keyword {key} is not known" for key in set(schema) - known]
    if "$ref" in schema:
        errors += errors_of(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if kinds and not isinstance(value, tuple(types[kind] for kind in kinds)):
        return errors + [f"{value!r} is not {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        errors.append(f"{value!r} is not one of {schema['enum']}")
    if isinstance(value, (int, float)) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        errors.append(f"{value} is out of range")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            errors.append(f"there are {len(value)} items")
        errors += [e for item in value for e in errors_of(item, schema.get("items", {}), root)]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        errors += [f"{key} is missing" for key in schema.get("required", []) if key not in value]
        if schema.get("additionalProperties") is False:
            errors += [f"{key} is unknown" for key in value if key not in properties]
        errors += [e for key in value if key in properties for e in errors_of(value[key], properties[key], root)]
        errors += [e for key, its in schema.get("dependentSchemas", {}).items() if key in value
                   for e in errors_of(value, its, root)]
    return errors


class Schema(Case):
    def schema(self, name):
        with open(f"{SCHEMAS}/{name}.schema.json", encoding="utf-8") as file:
            return json.load(file)

    def errors(self, name, value):
        return errors_of(value, self.schema(name), self.schema(name))

    def test_the_examples_are_as_the_schemas_say(self):
        for name in "graph", "machine":
            with open(f"{EXAMPLES}/{name}.json", encoding="utf-8") as file:
                self.assertEqual(self.errors(name, json.load(file)), [])

    def test_the_program_takes_each_key_of_the_schemas(self):
        whole = {"$schema": "x", "kinds": [{"name": "a", "request": "CPU=1", "run_s": 1},
                                           {"name": "b", "affinity": "GPU", "variants": [{"request": "GPU=1", "run_s": 2}]}],
                 "tasks": [{"id": "x", "kind": "a", "inputs": [], "run_s": 3, "bytes": 4, "priority": 5}]}
        machine = {"$schema": "x", "resources": MACHINE, "memories": "GPU=1000", "links": "HOST=1000 PEER=2000",
                   "order": "rank", "skips": 8, "skew": 1}
        self.assertEqual(self.errors("graph", whole) + self.errors("machine", machine), [])
        schema = self.schema("graph")
        self.assertEqual(set(whole), set(schema["properties"]))
        for name, values in ("kind", whole["kinds"]), ("variant", whole["kinds"][1]["variants"]), ("task", whole["tasks"]):
            self.assertEqual({key for value in values for key in value}, set(schema["$defs"][name]["properties"]))
        self.assertEqual(set(machine), set(self.schema("machine")["properties"]))
        self.tenon(self.write(whole), self.write(machine, "machine.json"))

    def test_both_refuse_the_same_values(self):
        for value in ({}, {"kinds": []}, graph([], [{}]), graph([{}], []), graph([{"name": 1}], []),
                      graph([{"name": "a", "run_s": 0}], []), graph([{"name": "a", "run_s": 1e10}], []),
                      graph([{"name": "a", "run_s": "1"}], []), graph([{"name": "a", "variants": []}], []),
                      graph([{"name": "a", "variants": [{}] * 5}], []), graph([{"name": "a", "run_s": 1, "variants": [{}]}], []),
                      graph([{"name": "a", "request": "CPU=1", "variants": [{}]}], []),
                      graph([{"name": "a", "variants": [{"affinity": "GPU"}]}], []),
                      graph([CPU], [{"kind": "cpu", "inputs": [-1]}]), graph([CPU], [{"kind": "cpu", "inputs": [{}]}]),
                      graph([CPU], [{"kind": "cpu", "priority": 40000}]), graph([CPU], [{"kind": "cpu", "priority": 0.5}]),
                      graph([CPU], [{"kind": "cpu", "bytes": -1}]), graph([CPU], [{"kind": "cpu", "id": 1}])):
            self.assertNotEqual(self.errors("graph", value), [], value)
            self.tenon(self.write(value), "-r", MACHINE, expect=2)
        for value in ({}, {"resources": MACHINE, "skips": 0}, {"resources": MACHINE, "skips": 1.5},
                      {"resources": MACHINE, "skew": 0}, {"resources": MACHINE, "skew": 1001}, {"resources": MACHINE, "order": "x"}):
            self.assertNotEqual(self.errors("machine", value), [], value)
            self.tenon(self.write(graph([], [])), self.write(value, "machine.json"), expect=2)


if __name__ == "__main__":
    TENON, EXAMPLES, SCHEMAS = map(os.path.abspath, sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
