#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test what the command `tenon` prints about a domain with known content (cli_holder.c).

usage: cli_test.py TENON CLI_HOLDER CLI_BREAK TENOND [unittest arguments]
"""
import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

TIMEOUT_S = 60
TENON, HOLDER, BREAK, TENOND = "tenon", "cli_holder", "cli_break", "tenond"


class Domain:
    """A running cli_holder, and the pids that it printed."""

    def __init__(self, name, environment, *arguments, program=HOLDER):
        self.process = subprocess.Popen([program, name, *arguments], executable=HOLDER, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self.process.stdout.readline().split()
        if len(line) != 2:
            raise RuntimeError(f"cli_holder ended with {self.process.wait(TIMEOUT_S)}")
        self.parent, self.child = map(int, line)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(TIMEOUT_S)


class Case(unittest.TestCase):
    """A runtime folder and a tenond of its own for each test."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tenon-cli-")
        self.name = os.path.basename(self.folder) # other processes of this user may run these tests at the same time
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.files = tempfile.mkdtemp(prefix="tenon-cli-files-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.files, ignore_errors=True)
        self.environment = dict(os.environ, TENON_RUNTIME_DIR=self.folder, TENON_TENOND=TENOND,
                                TENON_SHM_DIR=self.files)

    def hold(self, name=None, *arguments, program=None):
        domain = Domain(name or self.name, self.environment, *arguments, program=program or HOLDER)
        self.addCleanup(lambda: self.assertEqual(domain.close(), 0))
        return domain

    def tenon(self, *arguments, expect=0):
        done = subprocess.run([TENON, *arguments], env=self.environment, text=True,
                              capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, expect, f"tenon {arguments}: {done.stdout}{done.stderr}")
        return done.stdout if expect in (0, 1) else done.stderr

    def json(self, *arguments, expect=0):
        return json.loads(self.tenon(*arguments, "--json", expect=expect))

    def gc(self):
        """What gc did in our domain and with our files: other domains of this user may be in any state."""
        done = subprocess.run([TENON, "gc", "--json"], env=self.environment, text=True,
                              capture_output=True, timeout=TIMEOUT_S, check=False)
        report = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1 if report["failures"] > 0 else 0)
        ours = [a for a in report["actions"]
                if f"domain {self.name}:" in a["what"] or self.files in a["what"]]
        self.assertEqual([a for a in ours if not a["done"]], [])
        return ours

    def block(self, dtype):
        found = [b for b in self.json("blocks", self.name) if b.get("dtype") == dtype]
        self.assertEqual(len(found), 1, dtype)
        return found[0]


class Help(Case):
    def test_h_is_help_as_elsewhere(self):
        for verb in ([], ["ls"], ["stat"], ["top"], ["blocks"], ["tickets"], ["gc"], ["doctor"], ["load"], ["unload"],
                     ["simulate"]):
            self.assertEqual(self.tenon(*verb, "-h"), self.tenon(*verb, "--help"))
            self.assertIn("Usage: tenon", self.tenon(*verb, "-h"))
            self.assertEqual(self.tenon("help", *verb), self.tenon(*verb, "-h"))
            self.assertIn("  -h, -?, --help  ", self.tenon(*verb, "-h"))
            self.assertNotIn("Mandatory or optional", self.tenon(*verb, "-h"))
        self.assertIn("no verb is called 'fly'", self.tenon("help", "fly", expect=2))
        self.assertIn("'ls' is one argument too many", self.tenon("help", "stat", "ls", expect=2))

    def test_an_option_before_the_verb_is_an_error_of_tenon(self):
        self.assertTrue(self.tenon("-j", "ls", expect=2).startswith("tenon: invalid option -- 'j'\n"))

    def test_tenond_has_h_too(self):
        runs = [subprocess.run([TENOND, option], text=True, capture_output=True,
                               timeout=TIMEOUT_S, check=True).stdout for option in ("-h", "--help")]
        self.assertEqual(*runs)
        self.assertIn("Usage: tenond", runs[0])
        self.assertIn("  -h, -?, --help  ", runs[0])

    def test_tenond_says_which_argument_is_too_many(self):
        done = subprocess.run([TENOND, "extra"], text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("'extra' is one argument too many", done.stderr)


class Ls(Case):
    def test_ls_lists_a_domain_with_its_seats_quota_and_creator(self):
        domain = self.hold()
        found = [d for d in self.json("ls") if d["name"] == self.name]
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0]["creator_pid"], domain.parent)
        self.assertEqual(found[0]["seats_used"], 2)
        self.assertEqual(found[0]["seats"], 15) # tenond has one
        self.assertEqual(found[0]["quota_bytes"], 256 << 20)
        self.assertEqual(found[0]["uid"], os.getuid())
        self.assertGreater(found[0]["committed_bytes"], 0)
        self.assertRegex(found[0]["id"], "^[0-9a-f]{32}$")

    def test_ls_prints_aligned_columns_with_units(self):
        domain = self.hold()
        lines = self.tenon("ls").splitlines()
        self.assertEqual(lines[0].split("  ")[0], "DOMAIN")
        self.assertEqual(lines[0].split(), "DOMAIN SEATS COMMITTED QUOTA AGE CREATOR PID RUNTIME FOLDER".split())
        line = next(l for l in lines if f" {domain.parent} " in l)
        self.assertRegex(line, rf"^{self.name} +2/15 +[0-9.]+ [KM]iB +256\.0 MiB +[0-9.]+ m?s +{domain.parent}  {self.folder}$")

    def test_an_anonymous_domain_is_shown_and_found_by_its_id(self):
        domain = self.hold("-")
        found = [d for d in self.json("ls") if d["creator_pid"] == domain.parent and d["name"] == ""]
        self.assertEqual(len(found), 1)
        self.assertIn(found[0]["id"], self.tenon("ls"))
        self.assertEqual(self.json("stat", found[0]["id"])["domain"]["creator_pid"], domain.parent)


class Bytes(Case):
    """Command lines and folders may have any bytes: half a character, invalid UTF-8, escape sequences."""

    PROGRAMS = {
        "x" * 62 + "\u00e9\u00e9": "x" * 62 + "?",
        b"holder \xe9\xff": "holder ??",
        "b\u00e9 \033[2J": "b\u00e9 ?[2J",
    }

    def test_every_holder_has_a_command_whatever_its_command_line_is(self):
        for program, shown in self.PROGRAMS.items():
            with self.subTest(program):
                domain = self.hold(f"{self.name}-{len(shown)}", program=program)
                name = f"{self.name}-{len(shown)}"
                seats = [s for s in self.json("stat", name)["seats"] if s["pid"] in (domain.parent, domain.child)]
                blocks = self.json("blocks", name)
                commands = [s["command"] for s in seats] + [h["command"] for b in blocks for h in b["holders"]]
                self.assertGreater(len(commands), 4)
                for command in commands:
                    self.assertTrue(command.startswith(shown), command)
                for verb in "stat", "blocks":
                    self.assertIn(shown, self.tenon(verb, name))

    def test_a_folder_whose_name_is_no_text_is_shown_all_the_same(self):
        folder = os.path.join(os.fsencode(self.folder), b"\xe9\033[2J")
        os.mkdir(folder, 0o700)
        self.environment["TENON_RUNTIME_DIR"] = os.fsdecode(folder)
        self.hold()
        self.assertEqual(self.json("stat", self.name)["domain"]["runtime_folder"], f"{self.folder}/??[2J")
        for verb in ["ls"], ["stat", self.name]:
            done = subprocess.run([TENON, *verb], env=self.environment, capture_output=True, timeout=TIMEOUT_S, check=True)
            self.assertIn(self.folder.encode() + b"/??[2J", done.stdout)


class Names(Case):
    """Processes of one user with different runtime folders, such as those of a shell and of a cron job."""

    def setUp(self):
        super().setUp()
        self.enter("one")

    def enter(self, session):
        folder = os.path.join(self.folder, session)
        os.makedirs(folder, 0o700, exist_ok=True)
        self.environment.pop("TENON_RUNTIME_DIR", None)
        self.environment["XDG_RUNTIME_DIR"] = folder
        return os.path.join(folder, "tenon")

    def test_a_domain_of_another_session_is_found_by_its_name(self):
        domain = self.hold()
        here = self.enter("two")
        stat = self.json("stat", self.name)["domain"]
        self.assertEqual(stat["creator_pid"], domain.parent)
        self.assertEqual(stat["runtime_folder"], os.path.join(self.folder, "one", "tenon"))
        line = next(l for l in self.tenon("ls").splitlines() if l.startswith(self.name))
        self.assertEqual(line.split()[-1], os.path.join(self.folder, "one", "tenon"))
        error = self.tenon("stat", self.name + "-not", expect=3)
        self.assertIn(here, error)
        self.assertIn("no other process of this user has one", error)

    def test_neither_of_two_domains_of_one_name_is_taken(self):
        self.hold()
        self.enter("two")
        self.hold()
        ids = {d["id"] for d in self.json("ls") if d["name"] == self.name}
        self.assertEqual(len(ids), 2)
        for session in "one", "two", "three":
            self.enter(session)
            error = self.tenon("stat", self.name, expect=2)
            self.assertEqual({i for i in ids if i in error}, ids, error)
        for which in ids:
            self.assertEqual(self.json("stat", which)["domain"]["id"], which)

    def test_an_error_names_two_of_three_domains_of_one_name(self):
        for session in "one", "two", "three":
            self.enter(session)
            self.hold()
        ids = {d["id"] for d in self.json("ls") if d["name"] == self.name}
        self.assertEqual(len(ids), 3)
        error = self.tenon("stat", self.name, expect=2)
        self.assertEqual(len([i for i in ids if i in error]), 2, error)

    def test_the_error_names_the_folder_that_has_the_name(self):
        domain = self.hold()
        self.environment["TENON_RUNTIME_DIR"] = os.path.join(self.folder, "chosen")
        error = self.tenon("stat", self.name, expect=3)
        self.assertIn(os.path.join(self.folder, "one", "tenon"), error)
        self.assertIn(self.environment["TENON_RUNTIME_DIR"], error)
        self.assertRegex(error, r"process \d+ has one")


class Stat(Case):
    def test_stat_counts_deaths(self):
        domain = self.hold()
        before = self.json("stat", self.name)
        self.assertEqual((before["deaths"], before["manager_starts"]), (0, 1))
        os.kill(domain.child, signal.SIGKILL)
        self.gc()
        self.assertEqual(self.json("stat", self.name)["deaths"], 1)
        self.assertIn("1 process ended without leaving, tenond started 1 time", self.tenon("stat", self.name))

    def test_a_broken_barrier_is_shown_as_broken(self):
        self.hold(self.name, "0", "break")
        barrier = next(o for o in self.json("stat", self.name)["objects"] if o["kind"] == "barrier")
        self.assertEqual((barrier["broken"], barrier["count"]), (True, 0))
        self.assertRegex(self.tenon("stat", self.name), r"(?m)^barrier +meet +0 +4 .* broken$")

    def test_a_message_that_was_put_back_is_counted(self):
        self.hold(self.name, "0", "break")
        queue = next(o for o in self.json("stat", self.name)["objects"] if o["kind"] == "queue")
        self.assertEqual((queue["redelivered"], queue["redeliveries"]), (1, 1))

    def test_stat_counts_memory_and_tables(self):
        self.hold()
        stat = self.json("stat", self.name)
        # In the arena: matrix 48, bytes 1000, the child's tensor 48, scalar 8, the queued tensor 140, and the queue's
        # ring. Outside of the arena: 32, 6 and 200, each in an object of two pages.
        tensors = 48 + 1000 + 48 + 8 + 140 + 32 + 6 + 200
        self.assertGreater(stat["memory"]["live_bytes"], tensors)
        self.assertEqual(stat["memory"]["outside_count"], 3)
        self.assertEqual(stat["memory"]["outside_bytes"], 3 * 2 * os.sysconf("SC_PAGESIZE"))
        self.assertEqual(stat["memory"]["watermark_bytes"], 1 << 20)
        self.assertGreater(stat["memory"]["free_bytes"], 0)
        self.assertGreaterEqual(stat["memory"]["committed_bytes"],
                                stat["memory"]["live_bytes"])
        self.assertGreater(stat["memory"]["control_bytes"], 0)
        self.assertEqual(stat["blocks_live"], len(self.json("blocks", self.name)))
        self.assertEqual(stat["objects_used"], 5)
        self.assertEqual(stat["tickets_used"], 2)
        self.assertGreater(stat["manager_pid"], 0)

    def test_stat_names_each_seat_with_its_process_and_what_it_holds(self):
        domain = self.hold()
        seats = {s["pid"]: s for s in self.json("stat", self.name)["seats"] if not s["is_manager"]}
        self.assertEqual(set(seats), {domain.parent, domain.child})
        for seat in seats.values():
            self.assertEqual(seat["state"], "alive")
            self.assertIn("cli_holder", seat["command"])
        # Parent and child hold matrix and bytes. The child made one tensor more. The parent made the scalar and the
        # tensors outside of the arena after the fork.
        self.assertEqual(seats[domain.child]["bytes_held"], 48 + 1000 + 48)
        self.assertEqual(seats[domain.child]["blocks_held"], 3)
        self.assertEqual(seats[domain.parent]["bytes_held"], 48 + 1000 + 8 + 32 + 6 + 200)

    def test_stat_shows_what_every_kind_of_object_is_at(self):
        domain = self.hold()
        objects = {o["name"]: o for o in self.json("stat", self.name)["objects"]}
        self.assertEqual({n: o["kind"] for n, o in objects.items()},
                         {"work": "queue", "go": "event", "room": "semaphore", "mutex": "lock",
                          "meet": "barrier"})
        self.assertEqual(objects["work"]["count"], 2)
        self.assertEqual(objects["work"]["capacity"], 8)
        self.assertEqual(objects["work"]["pushed"], 2)
        self.assertEqual(objects["work"]["producers"], 1)
        self.assertEqual(objects["go"]["count"], 1)
        self.assertEqual(objects["room"]["count"], 3)
        self.assertEqual(objects["mutex"]["count"], 1)
        self.assertEqual(objects["mutex"]["owner_pid"], domain.parent)
        seat = next(s["seat"] for s in self.json("stat", self.name)["seats"] if s["pid"] == domain.parent)
        self.assertEqual([(o["seat"], o["pid"]) for o in objects["mutex"]["owners"]], [(seat, domain.parent)])
        self.assertIn("cli_holder", objects["mutex"]["owners"][0]["command"])
        self.assertEqual(objects["work"]["owners"], [])
        self.assertEqual(objects["meet"]["capacity"], 4)
        self.assertEqual(objects["meet"]["count"], 0)

    def test_stat_shows_a_store(self):
        self.hold(None, "0", "store")
        store = next(o for o in self.json("stat", self.name)["objects"] if o["kind"] == "store")
        self.assertEqual((store["name"], store["count"], store["capacity"]), ("models", 1, 100))
        self.assertEqual(store["budget_bytes"], 1 << 20)
        self.assertGreater(store["bytes"], 1000)
        line = next(l for l in self.tenon("stat", self.name).splitlines() if l.startswith("models"))
        self.assertEqual(line.split()[1:3], ["1", "100"])

    def test_blocks_names_the_store_and_the_key_that_keep_a_block(self):
        self.hold(None, "0", "store")
        blocks = {(b["kind"], b["bytes"]): b for b in self.json("blocks", self.name) if b["store"] == "models"}
        tensor = blocks["tensor", 1000]
        self.assertEqual((tensor["key"], tensor["holders"]), ("small/layer.0.weight", []))
        self.assertEqual({kind for kind, _ in blocks}, {"tensor", "message", "store"})
        self.assertIn("store models: small/layer.0.weight", self.tenon("blocks", self.name))

    def test_stat_prints_sums_seats_and_objects_as_text(self):
        domain = self.hold()
        text = self.tenon("stat", self.name)
        for expected in (rf"^domain +{self.name}$", r"committed +.* of 256\.0 MiB", r"^ +seats +2 of 15$",
                         r"huge pages .* policy is",
                         r"^ +outside +[0-9.]+ KiB in 3 objects outside of the arena$", rf"^ +\d+ +{domain.child} +alive .* 1\.1 KiB ",
                         r"^queue +work +2 +8 +0 +2 "):
            self.assertRegex(text, f"(?m){expected}")
        self.assertRegex(text, rf"(?m)^lock +mutex +1 .* {domain.parent} \(seat 0\) +open$")
        self.assertRegex(text, r"(?m)^semaphore +room +3 .* - +open$")


def wait_until_full(pipe):
    """Wait until the process that writes to the pipe waits for a reader."""
    waiting = bytearray(4)
    before = -1
    while True:
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        count = int.from_bytes(waiting, sys.byteorder)
        if count > 40000 and count == before:
            return
        before = count
        select.select([], [], [], 0.05)


def private_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


def has_sanitizer(program):
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


class Blocks(Case):
    def test_blocks_takes_no_more_memory_for_more_blocks(self):
        if has_sanitizer(TENON):
            self.skipTest("the address sanitizer takes memory of its own")
        self.hold(self.name, "100000")
        for arguments in ([], ["--json"]):
            command = subprocess.Popen([TENON, "blocks", self.name, *arguments], env=self.environment,
                                       stdout=subprocess.PIPE)
            wait_until_full(command.stdout)
            self.assertLess(private_kib(command.pid), 4096)
            text = command.stdout.read().decode()
            self.assertEqual(command.wait(TIMEOUT_S), 0)
            command.stdout.close()
            self.assertGreater(len(text.splitlines()), 100000)
            if arguments:
                self.assertGreater(len(json.loads(text)), 100000)

    def test_blocks_has_type_shape_bytes_and_holders(self):
        domain = self.hold()
        matrix = self.block("float32")
        self.assertEqual((matrix["bytes"], matrix["ndim"], matrix["shape"]), (48, 2, [3, 4]))
        self.assertEqual(sorted(h["pid"] for h in matrix["holders"]),
                         sorted([domain.parent, domain.child]))
        self.assertEqual(matrix["references"], 2)
        self.assertEqual(matrix["creator_pid"], domain.parent)
        self.assertIn("cli_holder", matrix["holders"][0]["command"])
        own = self.block("bfloat16")
        self.assertEqual([h["pid"] for h in own["holders"]], [domain.child])
        self.assertEqual(own["shape"], [2, 3, 4])
        self.assertEqual(self.block("float64")["shape"], [])

    def test_blocks_counts_references_in_messages_and_in_tickets(self):
        self.hold()
        queued = self.block("int32")
        self.assertEqual((queued["references"], queued["in_messages"], queued["holders"]), (1, 1, []))
        exported = self.block("uint8")
        self.assertEqual((exported["references"], exported["in_tickets"], exported["in_messages"]),
                         (3, 1, 0))

    def test_blocks_has_strategy_object_and_file(self):
        self.hold()
        object_bytes = 2 * os.sysconf("SC_PAGESIZE")
        keys = ("strategy", "bytes", "object_bytes", "is_write_once", "shape")
        described = {dtype: tuple(self.block(dtype)[k] for k in keys)
                     for dtype in ("float16", "int16", "uint16", "float32")}
        self.assertEqual(described, {
            "float16": ("file_descriptor", 32, object_bytes, False, [4, 4]),
            "int16": ("file_descriptor", 6, object_bytes, True, [3]),
            "uint16": ("file_system", 200, object_bytes, False, [100]),
            "float32": ("arena", 48, 0, False, [3, 4])})
        path = self.block("uint16")["path"]
        self.assertEqual(os.path.dirname(path), self.files)
        self.assertEqual(os.stat(path).st_size, object_bytes)
        self.assertIsNone(self.block("float16")["path"])

    def test_blocks_names_the_attributes_that_a_tensor_was_sent_with(self):
        self.hold()
        self.assertEqual(self.block("float16")["attributes"], ["requires_grad", "parameter", "name"])
        self.assertEqual(self.block("float32")["attributes"], [])

    def test_blocks_sorts_limits_and_filters(self):
        domain = self.hold()
        sizes = [b["bytes"] for b in self.json("blocks", self.name, "--sort", "bytes")]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        ages = [b["age_ns"] for b in self.json("blocks", self.name, "--sort=age")]
        self.assertEqual(ages, sorted(ages, reverse=True))
        self.assertEqual([b["bytes"] for b in self.json("blocks", self.name, "-s", "bytes", "-n2")],
                         sizes[:2])
        self.assertEqual(len(self.json("blocks", self.name, "--limit", "1")), 1)
        held = self.json("blocks", self.name, "--holder", str(domain.child))
        self.assertEqual(sorted(b["dtype"] for b in held), ["bfloat16", "float32", "uint8"])

    def test_blocks_prints_a_line_for_each_block(self):
        domain = self.hold()
        lines = self.tenon("blocks", self.name).splitlines()
        self.assertEqual(len(lines), 1 + len(self.json("blocks", self.name)))
        self.assertRegex("\n".join(lines), rf"48 B +tensor +float32\[3, 4\] .* arena +{domain.parent} ")
        self.assertRegex("\n".join(lines), r"uint16\[100\] .* file_system +\d")
        # All columns but the holders' commands fit in 100 columns.
        self.assertLess(lines[0].index("HOLDERS"), 92)

    def test_blocks_long_adds_the_strategy_attributes_and_file(self):
        domain = self.hold()
        text = self.tenon("blocks", self.name, "--long")
        self.assertRegex(text, rf"float16\[4, 4\] .* file_descriptor +8\.0 KiB +requires_grad "
                               rf"parameter name +- +{domain.parent} ")
        self.assertRegex(text, rf"uint16\[100\] .* file_system +8\.0 KiB +- +{self.files}/tenon-")
        self.assertRegex(text, r"int16\[3\] .* file_descriptor, write once ")


class Tickets(Case):
    def test_tickets_names_the_block_uses_end_and_issuer_of_each(self):
        domain = self.hold()
        tickets = {t["block"]: t for t in self.json("tickets", self.name)}
        self.assertRegex(next(iter(tickets)), "^[0-9a-f]{8}$")
        self.assertEqual(set(tickets), {self.block("uint8")["block"], self.block("float16")["block"]})
        one = tickets[self.block("uint8")["block"]]
        self.assertEqual((one["bytes"], one["uses_left"], one["remaining_ns"]), (1000, 1, None))
        two = tickets[self.block("float16")["block"]]
        self.assertEqual((two["bytes"], two["uses_left"], two["issuer_pid"]), (32, 2, domain.parent))
        self.assertLessEqual(two["remaining_ns"], 3600 * 10**9)
        self.assertGreater(two["remaining_ns"], 3000 * 10**9)

    def test_tickets_prints_a_line_for_each_ticket(self):
        domain = self.hold()
        lines = self.tenon("tickets", self.name).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex("\n".join(lines), rf"32 B +2 +5\dm\d\ds +\d+ +{domain.parent}\n")
        self.assertRegex("\n".join(lines), rf"1000 B +1 +- +\d+ +{domain.parent}")


class Top(Case):
    def test_top_once_shows_seats_by_bytes_and_queues(self):
        domain = self.hold()
        text = self.tenon("top", self.name, "--once", "--delay", "0.1")
        self.assertLess(text.index(f" {domain.parent} "), text.index(f" {domain.child} "))
        self.assertRegex(text, r"(?m)^ +0 +2/8 +0 +0 +1 +0 +work$")
        self.assertIn("  deaths 0  ", text)

    def test_top_json_has_a_rate_for_each_queue(self):
        self.hold()
        frame = json.loads(self.tenon("top", self.name, "-1", "-d", "0.1", "--json"))
        self.assertEqual(len(frame), 1)
        self.assertEqual(frame[0]["domain"]["name"], self.name)
        self.assertEqual([q["pushes_per_s"] for q in frame[0]["queues"]], [0])

    def test_top_once_shows_what_tasks_of_a_scheduler_wait_for(self):
        domain = self.hold(None, "0", "schedule")
        text = self.tenon("top", self.name, "--once", "--delay", "0.1")
        self.assertRegex(text, r"(?m)^ +PID +TASKS/S +TASKS +READY +RUNNING +CHANGED +WAITING FOR +IN USE +SCHEDULER$")
        self.assertRegex(text, rf"(?m)^ +{domain.parent} +0 +5 +3 +2 +[0-9.]+ m?s +GPU 3 +CPU 0/3, GPU 2/2, MEM 0\.5/1\.5"
                               r" +pipeline$")
        frame = json.loads(self.tenon("top", self.name, "-1", "-d", "0.1", "--json"))
        scheduler = frame[0]["schedulers"][0]
        self.assertEqual({key: scheduler[key] for key in ("pid", "name", "tasks", "ended", "tasks_per_s", "ready", "running")},
                         {"pid": domain.parent, "name": "pipeline", "tasks": 5, "ended": 0, "tasks_per_s": 0, "ready": 3,
                          "running": 2})
        self.assertEqual({r["name"]: (r["total"], r["free"], r["waiting"]) for r in scheduler["resources"]},
                         {"CPU": (3, 3, 0), "THREADS": (64, 64, 0), "GPU": (2, 0, 3), "MEM": (1.5, 1, 0)})
        self.assertIn(("scheduler", [domain.parent]), [(b["kind"], [h["pid"] for h in b["holders"]])
                                                       for b in self.json("blocks", self.name)])

    def test_top_shows_no_schedulers_where_there_are_none(self):
        self.hold()
        self.assertNotIn("SCHEDULER", self.tenon("top", self.name, "--once", "--delay", "0.1"))

    def top_on_terminal(self, columns, terminal="xterm"):
        """All that `tenon top` prints on a terminal until q ends it."""
        try:
            ours, theirs = pty.openpty()
        except OSError as error:
            self.skipTest(f"this machine gives out no terminal: {error}")
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.environment["TERM"] = terminal
        top = subprocess.Popen([TENON, "top", self.name], env=self.environment, stdin=theirs, stdout=theirs)
        os.close(theirs)
        seen = b""
        while b"work" not in seen:
            self.assertTrue(select.select([ours], [], [], TIMEOUT_S)[0], seen)
            seen += os.read(ours, 65536)
        os.write(ours, b"q")
        with contextlib.suppress(OSError): # EIO: no process has the terminal any more
            while select.select([ours], [], [], TIMEOUT_S)[0]:
                seen += os.read(ours, 65536)
        self.assertEqual(top.wait(TIMEOUT_S), 0)
        os.close(ours)
        return seen.decode()

    def test_top_ends_with_q_and_restores_the_screen(self):
        self.hold()
        self.assertTrue(self.top_on_terminal(80).endswith("\x1b[?1049l"))

    def test_a_dumb_terminal_gets_no_escape_sequences(self):
        self.hold()
        for terminal in "dumb", "":
            self.assertNotIn("\x1b", self.top_on_terminal(80, terminal))

    def test_a_narrow_terminal_shows_whole_numbers_and_names(self):
        domain = self.hold()
        for columns in 200, 100, 80, 60, 40:
            text = re.sub(r"\x1b\[[?0-9]*[A-Za-z]|\r", "", self.top_on_terminal(columns))
            lines = text.splitlines()
            self.assertLessEqual(max(map(len, lines)), columns, text)
            heading = next(line for line in lines if line.startswith(self.name + "  up"))
            self.assertRegex(heading, rf"^{self.name}  up [0-9.]+ m?s"
                                      r"(  seats 2)?(  deaths 0)?(  committed [0-9.]+ [KM]iB of 256\.0 MiB)?"
                                      r"(  live [0-9.]+ [KM]iB)?(  free [0-9.]+ [KM]iB)?(  blocks \d+)?$")
            self.assertEqual("committed" in heading, columns >= 100, heading)
            self.assertRegex(text, rf"(?m)^ +{domain.parent} .*/.*cli_holder|^ +{domain.parent} .* /\S*\.\.\.")
            self.assertRegex(text, r"(?m)^ +PID .*COMMAND$")
            self.assertRegex(text, r"(?m)^ .*QUEUE$")


class Repair(Case):
    def copy_of_another_domain(self, path):
        """Make a file as a domain that has ended leaves it."""
        copy = path.replace(self.json("stat", self.name)["domain"]["id"][:16], "0123456789abcdef")
        self.assertNotEqual(copy, path)
        shutil.copyfile(path, copy)
        with open(copy, "r+b") as file: # another start time, as if its maker had died
            file.seek(80)
            file.write((1).to_bytes(8, "little"))
        return copy

    def test_gc_reclaims_a_killed_child_and_its_blocks_are_gone(self):
        domain = self.hold()
        os.kill(domain.child, signal.SIGKILL)
        self.gc()
        stat = self.json("stat", self.name)
        self.assertEqual(stat["domain"]["seats_used"], 1)
        blocks = self.json("blocks", self.name)
        self.assertNotIn("bfloat16", [b.get("dtype") for b in blocks])
        self.assertEqual(self.block("float32")["references"], 1)
        self.assertEqual([a for a in self.gc() if "reclaimed" in a["what"]], [])

    def test_gc_removes_only_the_files_of_a_dead_tenond(self):
        files = ["tenond-10.2.lock", "tenond-10.2.sock"]
        for name in files:
            with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
                pass
        self.gc()
        self.assertEqual(os.listdir(self.folder), [])
        self.hold()
        self.gc()
        self.assertEqual([f for f in sorted(os.listdir(self.folder)) if f in files], files)

    def test_gc_removes_what_a_dead_tenond_of_another_version_left(self):
        def names(version):
            return [f"tenond-{version}.lock", f"tenond-{version}.sock", f"vault-{version}.sock"]

        foreign = ["notes", "tenond-1.sock", "tenond-1.1.sock.old", "tenond-01.1.lock"]
        for name in names("2.1") + names("900.7") + names("4.1") + ["vault-5.1.sock"] + foreign:
            with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
                pass
        with open(os.path.join(self.folder, "tenond-4.1.lock"), encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX) # as a living tenond of that version does
            self.gc()
            self.assertEqual(sorted(os.listdir(self.folder)), sorted(names("4.1") + foreign))
        self.gc()
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(foreign))

    def test_gc_looks_at_the_files_of_every_version(self):
        living = [f"tenond-{version}.1.lock" for version in range(100, 140)]
        dead = [[f"tenond-{version}.1.lock" for version in some] for some in (range(80, 100), range(140, 160))]
        with contextlib.ExitStack() as held:
            for name in dead[0] + living + dead[1]: # in any order in which the folder may be read
                file = held.enter_context(open(os.path.join(self.folder, name), "w", encoding="utf-8"))
                if name in living:
                    fcntl.flock(file, fcntl.LOCK_EX)
            self.gc()
            self.assertEqual(sorted(os.listdir(self.folder)), sorted(living))

    def test_gc_removes_a_file_that_no_living_domain_owns(self):
        self.hold()
        path = self.block("uint16")["path"]
        orphan = self.copy_of_another_domain(path)
        done = self.gc()
        self.assertIn({"what": f"removed {orphan}: its domain has ended", "done": True}, done)
        self.assertEqual(os.listdir(self.files), [os.path.basename(path)])

    def test_all_is_seen_and_reclaimed_without_tenond(self):
        domain = self.hold()
        manager = self.json("stat", self.name)["manager_pid"]
        os.kill(manager, signal.SIGKILL)
        os.kill(domain.child, signal.SIGKILL)
        self.assertEqual(self.json("stat", self.name)["domain"]["creator_pid"], domain.parent)
        self.gc()
        self.assertEqual(self.json("stat", self.name)["domain"]["seats_used"], 1)
        self.tenon("doctor", self.name)

    def test_doctor_finds_nothing_in_a_domain_at_rest(self):
        self.hold()
        self.assertEqual(self.tenon("doctor", self.name), f"{self.name}: 0 discrepancies\n")
        report = self.json("doctor", self.name)[0]
        self.assertEqual((report["findings"], report["unchecked"]), ([], 0))
        everything = subprocess.run([TENON, "doctor"], env=self.environment, text=True,
                                    capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertIn(f"{self.name}: 0 discrepancies\n", everything.stdout)
        self.assertIn(everything.returncode, (0, 1)) # other domains of this user may be in any state
        self.assertNotIn("files:", everything.stdout)

    def test_a_tenond_that_does_not_answer_is_waited_for_and_that_is_said(self):
        self.hold()
        manager = self.json("stat", self.name)["manager_pid"]
        os.kill(manager, signal.SIGSTOP)
        try:
            done = subprocess.run([TENON, "doctor", self.name], env=self.environment, text=True, capture_output=True,
                                  timeout=TIMEOUT_S, check=False)
        finally:
            os.kill(manager, signal.SIGCONT)
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.name}: 0 discrepancies\n"))
        self.assertRegex(done.stderr, "^tenon: the search for the domain takes long; a tenond that does not answer .*\n$")

    def test_doctor_says_why_there_is_no_device(self):
        self.hold()
        self.environment["TENON_CUDA_LIBRARY"] = "/no/driver.so"
        done = subprocess.run([TENON, "doctor"], env=self.environment, text=True,
                              capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertIn("cuda: none: /no/driver.so: cannot open shared object file", done.stdout)
        done = subprocess.run([TENON, "doctor", "--json"], env=self.environment, text=True,
                              capture_output=True, timeout=TIMEOUT_S, check=False)
        report = [r for r in json.loads(done.stdout) if "devices" in r]
        self.assertEqual([(r["discrepancies"], r["devices"]) for r in report], [(0, [])])
        self.assertIn("/no/driver.so", report[0]["no_devices"])

    def test_doctor_says_that_a_removed_file_cannot_be_repaired(self):
        self.hold()
        path = self.block("uint16")["path"]
        os.unlink(path)
        report = self.json("doctor", self.name, "--fix", expect=1)[0]
        self.assertEqual((report["discrepancies"], report["repaired"], report["left"]), (1, 0, 1))
        self.assertIn(f"its file {path} was removed; it cannot be repaired",
                      report["findings"][0]["what"])

    def test_doctor_names_a_file_that_no_living_domain_owns(self):
        self.hold()
        path = self.block("uint16")["path"]
        orphan = self.copy_of_another_domain(path)
        done = subprocess.run([TENON, "doctor"], env=self.environment, text=True,
                              capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"files: {orphan} is of no living domain, and nobody holds it\n", done.stdout)
        self.assertIn("files: 1 discrepancy\n", done.stdout)
        report = [r for r in self.json("doctor", expect=1) if r["domain"] is None and "devices" not in r]
        self.assertEqual([(r["discrepancies"], r["left"]) for r in report], [(1, 1)])
        self.assertNotIn(path, report[0]["findings"][0]["what"])

    def test_doctor_finds_and_repairs_a_count_that_is_too_high(self):
        self.hold()
        block = self.block("float32")["block"]
        subprocess.run([BREAK, self.name, str(block)], env=self.environment, check=True,
                       timeout=TIMEOUT_S)
        self.assertEqual(self.block("float32")["references"], 3)
        report = self.json("doctor", self.name, expect=1)[0]
        self.assertEqual((report["discrepancies"], report["repaired"], report["left"]), (1, 0, 1))
        self.assertTrue(report["findings"][0]["what"].startswith(f"block {block}: "))
        self.assertIn(f"\n{block} ", self.tenon("blocks", self.name))
        self.assertRegex(self.tenon("doctor", self.name, expect=1), f"{self.name}: 1 discrepancy\n$")
        self.assertRegex(self.tenon("doctor", self.name, "--fix"), r"\(repaired\)\n.*1 repaired\n$")
        self.assertEqual(self.block("float32")["references"], 2)
        self.tenon("doctor", self.name)


class Usage(Case):
    def test_an_unknown_domain_is_exit_code_3(self):
        for verb in ("stat", "blocks", "tickets", "doctor"):
            self.assertRegex(self.tenon(verb, "no-such-domain", expect=3),
                             rf"^tenon {verb}: no-such-domain: .")
        self.tenon("top", "no-such-domain", "--once", expect=3)

    def test_wrong_usage_is_exit_code_2(self):
        for arguments in ([], ["fly"], ["ls", "extra"], ["stat"], ["stat", "a", "b"], ["blocks"],
                          ["tickets"], ["tickets", "a", "b"], ["ls", "--long"],
                          ["stat", "bad/name"], ["stat", ""], ["stat", "x" * 64],
                          ["blocks", "x", "--limit", "0"], ["blocks", "x", "--limit", "-1"],
                          ["blocks", "x", "--sort", "shape"], ["blocks", "x", "--holder", "me"],
                          ["top", "--delay", "0"], ["top", "--delay", "nan"], ["gc", "extra"],
                          ["doctor", "a", "b"], ["ls", "--no-such-option"], ["simulate"], ["simulate", "a", "b", "c"]):
            self.assertNotEqual(self.tenon(*arguments, expect=2), "", arguments)

    def test_help_and_version_are_exit_code_0(self):
        self.assertRegex(self.tenon("--version"), r"^tenon \d+\.\d+\.\d+\n$")
        for verb in ("ls", "stat", "top", "blocks", "tickets", "gc", "doctor", "load", "unload", "simulate"):
            self.assertIn(verb, self.tenon("--help"))
            self.assertIn("--json", self.tenon(verb, "--help"))

    def test_a_failed_write_is_an_error(self):
        for arguments in ["ls"], ["ls", "--json"], ["--help"], ["ls", "--help"], ["-h"], ["--version"], ["--usage"]:
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([TENON, *arguments], env=self.environment, stdout=full, text=True,
                                      stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertEqual(done.stderr, "tenon: standard output cannot be written: No space left on device\n")

    def test_a_failed_write_of_long_output_is_an_error_with_its_reason(self):
        self.hold(self.name, "100")
        for arguments in (["stat"], ["blocks"], ["blocks", "-s", "age"], ["tickets"], ["doctor"], ["top"], ["top", "-1", "-d", "0.1"]):
            for json_option in [], ["-j"]:
                with self.subTest(arguments=arguments + json_option), open("/dev/full", "w", encoding="utf-8") as full:
                    done = subprocess.run([TENON, *arguments, self.name, *json_option], env=self.environment, stdout=full,
                                          text=True, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
                    self.assertEqual(done.stderr, "tenon: standard output cannot be written: No space left on device\n")
                    self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    TENON, HOLDER, BREAK, TENOND = map(os.path.abspath, sys.argv[1:5])
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
