#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tenon load and tenon unload: load_test.py TENON TENOND."""

import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

TENON, TENOND = (os.path.abspath(path) for path in sys.argv[1:3])
TIMEOUT_S = 60


def write_model(path, tensors):
    """Write a file of the format safetensors; tensors: {name: list of float32}."""
    header, data = {}, b""
    for name, numbers in tensors.items():
        raw = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": [len(numbers)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tenon-load-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = dict(os.environ, TENON_RUNTIME_DIR=os.path.join(self.folder, "run"), TENON_TENOND=TENOND)
        os.mkdir(self.environment["TENON_RUNTIME_DIR"], 0o700)
        self.model = self.write("net", {"a": [1, 2, 3], "b": range(1000)})

    def write(self, name, tensors):
        path = os.path.join(self.folder, name + ".safetensors")
        write_model(path, tensors)
        return path

    def write_zeros(self, size):
        """A file whose data takes no room on the disk."""
        path = os.path.join(self.folder, "big.safetensors")
        text = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + size)
        return path

    def start(self, *arguments):
        return subprocess.Popen([TENON, *arguments], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def tenon(self, *arguments, expect=0):
        done = self.start(*arguments)
        output, error = done.communicate(timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, expect, f"tenon {arguments}: {output}{error}")
        return output if expect == 0 else error

    def json(self, *arguments):
        return json.loads(self.tenon(*arguments, "--json"))

    def load(self, *arguments, expect=0):
        output = self.tenon("load", *arguments, expect=expect)
        self.addCleanup(self.unload, arguments[0])
        return output

    def unload(self, name):
        self.start("unload", name).communicate(timeout=TIMEOUT_S)

    def kept(self):
        """The blocks of tensors that models keep, by key."""
        return {b["key"]: b for b in self.json("blocks", "models") if b["key"] and b["kind"] == "tensor"}

    def domains(self):
        """The domains of this test: other processes of this user may have models, too."""
        return [d for d in self.json("ls") if d["runtime_folder"] == self.environment["TENON_RUNTIME_DIR"]]

    def tenond(self):
        """A descriptor that is readable when the tenond of the models has ended."""
        fd = os.pidfd_open(self.json("stat", "models")["manager_pid"])
        self.addCleanup(os.close, fd)
        return fd

    def await_end(self, tenond):
        """tenond ends when it has no domain any more."""
        self.assertTrue(select.select([tenond], [], [], TIMEOUT_S)[0])
        self.assertEqual(os.listdir(self.environment["TENON_RUNTIME_DIR"]), [])

    def test_a_model_stays_when_no_process_has_it(self):
        self.assertEqual(self.load("net", self.model), "net is loaded: 2 tensors, 4.0 KiB\n")
        block = self.kept()["net"]
        self.assertEqual(block["holders"], [])
        self.assertTrue(block["is_write_once"])
        store = next(o for o in self.json("stat", "models")["objects"] if o["kind"] == "store")
        self.assertEqual((store["openers"], store["count"], store["is_kept"]), (0, 1, True))
        self.assertEqual(self.domains()[0]["seats_used"], 0)

    def test_a_second_load_of_the_same_files_loads_nothing(self):
        self.load("net", self.model)
        block = self.kept()["net"]["block"]
        self.assertIn("was loaded before", self.tenon("load", "net", self.model))
        self.assertEqual(self.kept()["net"]["block"], block)

    def test_other_files_under_a_name_that_exists_are_refused(self):
        self.load("net", self.model)
        other = self.write("other", {"a": [1]})
        self.assertIn("tenon unload net", self.tenon("load", "net", other, expect=1))

    def test_a_file_that_changed_is_not_the_same(self):
        self.load("net", self.model)
        self.write("net", {"a": [4, 5]})
        self.assertIn("before they changed", self.tenon("load", "net", self.model, expect=1))

    def test_a_name_in_two_files_is_an_error_that_names_both(self):
        other = self.write("other", {"b": [1]})
        error = self.tenon("load", "net", self.model, other, expect=1)
        self.assertIn("'b'", error)
        self.assertIn(self.model, error)
        self.assertIn(other, error)

    def test_several_files_are_one_model(self):
        other = self.write("other", {"c": [1]})
        self.assertIn("3 tensors", self.load("net", self.model, other))

    def test_a_truncated_file_loads_nothing(self):
        os.truncate(self.model, os.path.getsize(self.model) - 1)
        self.assertIn(self.model, self.tenon("load", "net", self.model, expect=1))
        self.assertEqual(self.domains(), [])

    def test_unload_removes_it_and_the_domain_ends(self):
        self.load("net", self.model)
        tenond = self.tenond()
        self.tenon("unload", "net")
        self.await_end(tenond)
        self.assertIn("models", self.tenon("unload", "net", expect=3))

    def test_unload_of_another_name_says_so(self):
        self.load("net", self.model)
        self.assertIn("'other'", self.tenon("unload", "other", expect=1))

    def test_a_model_with_a_time_ends_by_itself(self):
        self.tenon("load", "--for", "1s", "net", self.model)
        self.await_end(self.tenond())

    def test_eight_loaders_at_once_load_once(self):
        loaders = [self.start("load", "net", self.model) for _ in range(8)]
        outputs = [loader.communicate(timeout=TIMEOUT_S)[0] for loader in loaders]
        self.addCleanup(self.unload, "net")
        self.assertEqual([loader.returncode for loader in loaders], [0] * 8)
        self.assertEqual(sorted("is loaded" in output for output in outputs), [False] * 7 + [True])

    def test_of_two_files_at_once_under_a_name_one_is_loaded(self):
        other = self.write("other", {"a": [7]})
        loaders = [self.start("load", "net", path) for path in (self.model, other) * 4]
        ends = [(*loader.communicate(timeout=TIMEOUT_S), loader.returncode) for loader in loaders]
        self.addCleanup(self.unload, "net")
        self.assertEqual(sorted(code for _, _, code in ends), [0] * 4 + [1] * 4)
        self.assertEqual(len({code for _, _, code in ends[::2]}), 1)  # all loaders of one file are told the same
        self.assertEqual(sum("is loaded" in output for output, _, _ in ends), 1)
        self.assertEqual(sum("tenon unload net" in error for _, error, _ in ends), 4)

    def test_a_terminal_shows_the_progress(self):
        shown = []
        for quiet in ([], ["--quiet"]):
            try:
                ours, theirs = pty.openpty()
            except OSError as error:
                self.skipTest(f"this machine gives out no terminal: {error}")
            loader = subprocess.Popen([TENON, "load", *quiet, "net", self.model], env=self.environment,
                                      stdout=subprocess.DEVNULL, stderr=theirs)
            os.close(theirs)
            self.assertEqual(loader.wait(TIMEOUT_S), 0)
            try:
                shown.append(os.read(ours, 1 << 16).decode())
            except OSError:  # nobody has written
                shown.append("")
            os.close(ours)
            self.unload("net")
        self.assertRegex(shown[0], r"net: 100 %, 4\.0 KiB of 4\.0 KiB, \S+ \w+/s")
        self.assertEqual(shown[0].split("\r")[-1], "")  # the line is cleared in the end
        self.assertEqual(shown[1], "")

    def test_a_model_without_tensors_and_without_numbers(self):
        self.assertIn("0 tensors", self.load("none", self.write("none", {})))
        self.assertIn("1 tensor,", self.load("empty", self.write("empty", {"a": []})))

    def test_json_says_whether_it_is_new(self):
        self.addCleanup(self.unload, "net")
        first, second = (self.json("load", "net", self.model) for _ in range(2))
        self.assertEqual((first["is_new"], second["is_new"]), (True, False))
        self.assertEqual((first["name"], first["domain"], first["tensors"]), ("net", "models", 2))
        self.assertEqual(self.json("unload", "net"), {"name": "net", "domain": "models"})

    def test_wrong_usage_is_exit_code_2(self):
        for arguments in (["load"], ["load", "net"], ["unload"], ["unload", "a", "b"],
                          ["load", "--for", "soon", "net", self.model], ["load", "--for", "0s", "net", self.model]):
            self.tenon(*arguments, expect=2)

    def test_a_killed_loader_leaves_nothing_under_the_name(self):
        big = self.write_zeros(256 << 20)
        loader = self.start("load", "net", big)
        while not self.domains() and loader.poll() is None:
            pass
        loader.kill()
        loader.communicate()
        self.assertIn("is loaded", self.load("net", self.model)) # unless it was loaded by then

    def test_a_file_that_changes_while_it_is_read_is_not_loaded(self):
        """A loader that has read all of it by then is started again."""
        big = self.write_zeros(256 << 20)
        for number in range(1, 50):
            loader = self.start("load", "net", big)
            while not self.domains() and loader.poll() is None:
                pass
            os.utime(big, (number, number))
            _, error = loader.communicate()
            if loader.returncode != 0:
                break
            self.unload("net")
        self.assertIn("net: a file was changed while it was read", error)
        self.assertIn("is loaded", self.load("net", self.model))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
