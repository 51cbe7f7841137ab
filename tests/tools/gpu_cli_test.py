#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test what the command `tenon` prints about a domain with memory on a device of the fake driver (gpu_holder.c).

usage: gpu_cli_test.py TENON GPU_HOLDER CLI_BREAK TENOND FAKE_UNIVERSE [unittest arguments]

TENON_CUDA_LIBRARY names the fake driver. The command itself needs no driver, and gets none.
"""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TIMEOUT_S = 60
TENON, HOLDER, BREAK, TENOND, UNIVERSE = "tenon", "gpu_holder", "cli_break", "tenond", "fake_universe"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UUID = r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class Case(unittest.TestCase):
    """A universe of the fake driver, a tenond and a domain of its own for each test."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tenon-gpu-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.name = os.path.basename(self.folder)
        self.environment = dict(os.environ, TENON_RUNTIME_DIR=self.folder, TENON_TENOND=TENOND)
        library = self.environment.pop("TENON_CUDA_LIBRARY")
        universe = os.path.join(self.folder, "universe")
        self.with_driver = dict(self.environment, TENON_CUDA_LIBRARY=library, TENON_FAKECUDA=universe)
        self.run_with_driver(UNIVERSE, "make", universe)
        self.addCleanup(self.run_with_driver, UNIVERSE, "end", universe)
        self.process = subprocess.Popen([HOLDER, self.name], env=self.with_driver, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.addCleanup(self.end)
        line = self.process.stdout.readline().split()
        self.assertEqual(len(line), 2, "gpu_holder has ended")
        self.parent, self.child = map(int, line)

    def run_with_driver(self, *arguments):
        done = subprocess.run(arguments, env=self.with_driver, text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.assertEqual(self.process.wait(TIMEOUT_S), 0)

    def tenon(self, *arguments, expect=0):
        done = subprocess.run([TENON, *arguments], env=self.environment, text=True, capture_output=True, timeout=TIMEOUT_S,
                              check=False)
        self.assertEqual(done.returncode, expect, f"tenon {arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *arguments, expect=0):
        return json.loads(self.tenon(*arguments, "--json", expect=expect))

    def expect_devices(self, devices):
        """The one device, as ls, stat and top have it."""
        self.assertEqual(len(devices), 1)
        device = devices[0]
        self.assertRegex(device["uuid"], f"^{UUID}$")
        self.assertEqual({key: device[key] for key in ("quota_bytes", "objects", "tensors", "live_bytes", "unheld_bytes")},
                         {"quota_bytes": GIB, "objects": 3, "tensors": 3, "live_bytes": 4 * MIB + 4 * KIB,
                          "unheld_bytes": MIB})
        self.assertGreaterEqual(device["bytes"], 3 * 62 * MIB) # slabs of three sizes
        self.assertEqual([(h["pid"], h["tensors"], h["bytes"]) for h in device["holders"]],
                         [(self.parent, 2, 3 * MIB + 4 * KIB), (self.child, 1, 4 * KIB)])
        self.assertIn("gpu_holder", device["holders"][0]["command"])

    def holders(self):
        """The holders of the device, as text has them."""
        return (rf"{self.parent} \S*gpu_holder \S+ \(3\.0 MiB\), {self.child} \S*gpu_holder \S+ \(4\.0 KiB\), "
                r"messages and tickets \(1\.0 MiB\)")


class Shown(Case):
    def test_ls_shows_memory_of_devices_and_its_holders(self):
        ours = [d for d in self.json("ls") if d["name"] == self.name]
        self.expect_devices(ours[0]["devices"])
        text = self.tenon("ls")
        self.assertRegex(text, r"(?m)^\nDOMAIN +DEVICE +LIVE +TENSORS +TAKEN +QUOTA +HOLDERS$")
        self.assertRegex(text, rf"(?m)^{self.name} +{UUID} +4\.0 MiB +3 +[0-9.]+ MiB +1\.0 GiB +{self.holders()}$")

    def test_stat_shows_memory_of_devices_and_its_holders(self):
        stat = self.json("stat", self.name)
        self.expect_devices(stat["devices"])
        self.assertEqual({s["pid"]: s["device_bytes_held"] for s in stat["seats"] if not s["is_manager"]},
                         {self.parent: 3 * MIB + 4 * KIB, self.child: 4 * KIB})
        text = self.tenon("stat", self.name)
        self.assertRegex(text, rf"(?m)^devices\n  {UUID}: 4\.0 MiB in 3 tensors, of [0-9.]+ MiB taken in 3 allocations, at most "
                               rf"1\.0 GiB\n    held by {self.holders()}$")
        self.assertRegex(text, r"(?m)^SEAT +PID +STATE +AGE +BLOCKS HELD +BYTES HELD +ON DEVICES +COMMAND$")
        self.assertRegex(text, rf"(?m)^ +\d+ +{self.child} +alive .* 4\.0 KiB  \S*gpu_holder")

    def test_top_shows_memory_of_devices_and_its_holders(self):
        frame = json.loads(self.tenon("top", self.name, "-1", "-d", "0.1", "--json"))
        self.expect_devices(frame[0]["devices"])
        text = self.tenon("top", self.name, "-1", "-d", "0.1")
        self.assertRegex(text, r"(?m)^ +PID +BYTES HELD +BLOCKS HELD +STATE +AGE +ON DEVICES +COMMAND$")
        self.assertRegex(text, rf"(?m)^ +{self.parent} .* 3\.0 MiB  \S*gpu_holder")
        self.assertRegex(text, rf"(?m)^ +{UUID} +4\.0 MiB +3 +[0-9.]+ MiB +1\.0 GiB +{self.holders()}$")

    def test_blocks_names_the_device_of_each_block(self):
        uuid = self.json("stat", self.name)["devices"][0]["uuid"]
        blocks = [b for b in self.json("blocks", self.name) if b["device"] is not None]
        self.assertEqual({b["device"] for b in blocks}, {uuid})
        self.assertEqual(sorted((b["kind"], b["bytes"]) for b in blocks if b["kind"] == "tensor"),
                         [("tensor", 4 * KIB), ("tensor", MIB), ("tensor", 3 * MIB)])


    def test_blocks_says_which_tensor_is_a_copy_of_other_memory(self):
        blocks = [b for b in self.json("blocks", self.name) if b["is_copy"]]
        self.assertEqual([(b["kind"], b["bytes"]) for b in blocks], [("tensor", 3 * MIB)])
        for arguments in ((), ("--long",)):
            lines = self.tenon("blocks", self.name, *arguments).splitlines()
            copies = [line for line in lines if "cuda_vmm, copy " in line]
            self.assertEqual(len(copies), 1, lines)
            self.assertRegex(copies[0], r"^[0-9a-f]{8} +3\.0 MiB +tensor ")


class Doctor(Case):
    def test_doctor_finds_nothing_and_then_a_span_without_its_slab(self):
        self.assertEqual(self.tenon("doctor", self.name), f"{self.name}: 0 discrepancies\n")
        block = next(b["block"] for b in self.json("blocks", self.name) if b["kind"] == "tensor" and b["bytes"] == 4 * KIB)
        command = [BREAK, self.name, block]
        slab = subprocess.run([*command, "123"], env=self.environment, text=True, capture_output=True, timeout=TIMEOUT_S,
                              check=True).stdout.strip()
        found = [f["what"] for f in self.json("doctor", self.name, expect=1)[0]["findings"]]
        self.assertIn(f"the span of block {block} names block 00000123 as its slab, which is none; it cannot be repaired",
                      found)
        self.assertIn("1 blocks in use have no bytes, because their span has no slab, such as block "
                      f"{block}; it cannot be repaired", found)
        self.assertIn(f"block {slab}: count 1, but nothing names it", found)
        text = self.tenon("doctor", self.name, expect=1)
        self.assertTrue(re.search(f"(?m)^{self.name}: 3 discrepancies$", text), text)
        subprocess.run([*command, slab], env=self.environment, text=True, capture_output=True, timeout=TIMEOUT_S, check=True)
        self.assertEqual(self.tenon("doctor", self.name), f"{self.name}: 0 discrepancies\n")

    def test_doctor_counts_what_a_tenond_that_does_not_answer_has(self):
        manager = self.json("stat", self.name)["manager_pid"]
        os.kill(manager, signal.SIGSTOP)
        try:
            text, report = self.tenon("doctor", self.name), self.json("doctor", self.name)[0]
        finally:
            os.kill(manager, signal.SIGCONT)
        self.assertRegex(text, f"^{self.name}: 0 discrepancies; [1-9][0-9]* blocks? (was|were) not checked: in use all the "
                               "time, or tenond does not answer\n$")
        self.assertEqual(report["findings"], [])
        self.assertGreater(report["unchecked"], 0)
        self.assertEqual(self.json("doctor", self.name)[0]["unchecked"], 0)


class Rocm(unittest.TestCase):
    def test_doctor_lists_devices_of_rocm(self):
        fake = ctypes.CDLL(os.environ["TENON_TEST_FAKEHIP"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "universe")
            self.assertEqual(fake.fake_make(path.encode(), None), 0)
            environment = dict(os.environ, TENON_HIP_LIBRARY=os.environ["TENON_TEST_FAKEHIP"], TENON_FAKECUDA=path,
                               TENON_CUDA_LIBRARY="/no/driver.so", TENON_RUNTIME_DIR=folder)
            run = {"env": environment, "text": True, "capture_output": True, "timeout": TIMEOUT_S, "check": False}
            # It looks at the domains of other tests, too, which may have damage, so its exit code means nothing here.
            text = subprocess.run([TENON, "doctor"], **run).stdout
            self.assertRegex(text, rf"(?m)^cuda: none: /no/driver.so.*\nrocm:0: Fake device 0, {UUID}, 1.0 GiB, ROCm 7.13$")
            report = json.loads(subprocess.run([TENON, "doctor", "--json"], **run).stdout)
            devices = next(r["devices"] for r in report if "devices" in r)
            self.assertEqual([(d["type"], d["id"]) for d in devices], [("rocm", 0)])


if __name__ == "__main__":
    TENON, HOLDER, BREAK, TENOND, UNIVERSE = map(os.path.abspath, sys.argv[1:6])
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]], verbosity=2)
