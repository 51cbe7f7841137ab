#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What TENON_LOG=LEVEL[:FILE] has programs and tenond write.

usage: log_test.py TENON CLI_HOLDER TENOND [unittest arguments]
"""
import datetime
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import tty
import unittest

TIMEOUT_S = 60
TENON, HOLDER, TENOND = "tenon", "cli_holder", "tenond"
LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([\w-]+)\[(\d+)\] (error|warning|info|debug): (.+)")


class Holder:
    """A program with a domain, which ends when close() is called."""

    def __init__(self, name, environment, **arguments):
        self.process = subprocess.Popen([HOLDER, name], env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, **arguments)
        self.parent, self.child = map(int, self.process.stdout.readline().split())

    def close(self):
        """Its exit status, and what it wrote to standard error if that is a pipe."""
        _, errors = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, errors


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tenon-log-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.name = os.path.basename(self.folder)
        self.file = os.path.join(self.folder, "log")
        self.environment = dict(os.environ, TENON_RUNTIME_DIR=os.path.join(self.folder, "run"), TENON_TENOND=TENOND)
        self.environment.pop("TENON_LOG", None)

    def hold(self, log, name=None, **arguments):
        if log is not None:
            self.environment["TENON_LOG"] = log
        return Holder(name or self.name, self.environment, **arguments)

    def lines(self, text=None):
        """Each line as time, program, pid, level, text; a line of another form fails."""
        if text is None:
            with open(self.file, encoding="utf-8") as file:
                text = file.read()
        found = [(line, LINE.fullmatch(line)) for line in text.splitlines()]
        self.assertEqual([line for line, match in found if match is None], [])
        return [(m[1], m[2], int(m[3]), m[4], m[5]) for _, m in found]


class Silence(Case):
    def test_nothing_is_written_without_the_variable(self):
        for log in (None, ""):
            holder = self.hold(log, stderr=subprocess.PIPE)
            self.assertEqual(holder.close(), (0, ""))
            self.assertEqual(os.listdir(self.folder), ["run"])

    def test_a_level_holds_back_the_lines_above_it(self):
        holder = self.hold("warning", stderr=subprocess.PIPE)
        self.assertEqual(holder.close(), (0, ""))


class Lines(Case):
    def test_standard_error_has_time_program_pid_level_and_event(self):
        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
        holder = self.hold("info", stderr=subprocess.PIPE)
        status, text = holder.close()
        self.assertEqual(status, 0)
        lines = self.lines(text)
        self.assertIn(f"made domain '{self.name}' in seat 0", [line[4] for line in lines])
        self.assertIn(f"leaving domain '{self.name}', seat 0", [line[4] for line in lines])
        for when, program, pid, level, _ in lines:
            self.assertEqual((program, level), ("cli_holder", "info"))
            self.assertIn(pid, (holder.parent, holder.child))
            time = datetime.datetime.strptime(when, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
            self.assertLess(before, time)
            self.assertLess(time, datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1))

    def test_each_process_says_that_it_joined(self):
        holder = self.hold(f"info:{self.file}")
        self.assertEqual(holder.close(), (0, None))
        lines = {(line[2], line[4]) for line in self.lines()}
        self.assertIn((holder.parent, f"made domain '{self.name}' in seat 0"), lines)
        joined = f"joined domain '{self.name}' in seat 2, as a child of process {holder.parent}"
        self.assertIn((holder.child, joined), lines)

    def test_a_domain_without_a_name_has_its_id_in_the_lines(self):
        holder = self.hold(f"info:{self.file}", "-")
        self.assertEqual(holder.close(), (0, None))
        lines = [line[4] for line in self.lines()]
        made = [line for line in lines if re.fullmatch(r"made domain [0-9a-f]{32} in seat 0", line)]
        self.assertEqual(len(made), 1, lines)
        self.assertIn(f"leaving domain {made[0].split()[2]}, seat 0", lines)

    def test_levels_are_names_or_numbers(self):
        for level, has_failures in ("0", False), ("1", False), ("2", False), ("info", False), ("3", True), ("debug", True):
            self.environment["TENON_LOG"] = level
            done = subprocess.run([TENON, "stat", "no-such-domain"], env=self.environment, text=True, capture_output=True,
                                  timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 3)
            self.assertEqual("debug: TN_ERR_NOT_FOUND: no " in done.stderr, has_failures, done.stderr)

    def test_a_file_has_the_lines_of_the_program_and_of_tenond(self):
        holder = self.hold(f"info:{self.file}", stderr=subprocess.PIPE)
        os.kill(holder.child, signal.SIGKILL)
        self.wait_for(f"process {holder.child} ")
        self.assertEqual(holder.close(), (0, ""))
        lines = self.lines()
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        self.assertEqual({line[2] for line in lines if line[1] == "cli_holder"}, {holder.parent, holder.child})
        of_tenond = [line for line in lines if line[1] == "tenond"]
        self.assertEqual(len({line[2] for line in of_tenond}), 1)
        self.assertTrue(any(f"domain '{self.name}'" in line[4] for line in of_tenond), of_tenond)
        death = [line for line in lines if f"process {holder.child} " in line[4]]
        self.assertEqual(len(death), 1, lines)
        self.assertRegex(death[0][4], r"reclaimed seat 2: .*\d+ blocks")

    def wait_for(self, text):
        """Until tenond has written it; the test's own time limit ends this."""
        with subprocess.Popen(["tail", "-n", "+1", "-F", "-s", "0.05", self.file], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as tail:
            for line in tail.stdout:
                if text in line:
                    break
            tail.kill()

    def test_a_file_name_that_is_relative_is_the_same_for_tenond(self):
        holder = self.hold("info:log", cwd=self.folder)
        self.assertEqual(holder.close(), (0, None))
        self.assertEqual({line[1] for line in self.lines()}, {"cli_holder", "tenond"})

    def test_a_file_that_is_renamed_is_made_again(self):
        holder = self.hold(f"info:{self.file}")
        os.rename(self.file, self.file + ".1")
        self.assertEqual(holder.close(), (0, None))
        self.assertIn(f"leaving domain '{self.name}', seat 0", [line[4] for line in self.lines()])


class Harm(Case):
    """The log must not disturb the program."""

    def descriptors(self, pid):
        folder = f"/proc/{pid}/fd"
        return sorted(os.readlink(os.path.join(folder, fd)).split(":")[0] for fd in os.listdir(folder))

    def test_the_program_has_no_descriptor_more(self):
        found = []
        for log in None, f"debug:{self.file}":
            holder = self.hold(log)
            found.append(self.descriptors(holder.parent))
            holder.close()
        self.assertEqual(*found)
        self.assertNotIn(self.file, found[1])

    def test_a_standard_error_that_is_closed_is_left_alone(self):
        holder = self.hold("debug", preexec_fn=lambda: os.close(2))
        self.assertEqual(holder.close()[0], 0)

    def fill(self, writer):
        """Write until no byte fits, and leave the descriptor as it was. Each write is of a page, as a pipe counts."""
        os.set_blocking(writer, False)
        for size in 4096, 1:
            try:
                while True:
                    os.write(writer, b"x" * size)
            except BlockingIOError:
                pass
        os.set_blocking(writer, True)

    def drain(self, reader):
        os.set_blocking(reader, False)
        read = b""
        try:
            while part := os.read(reader, 1 << 16):
                read += part
        except BlockingIOError:
            pass
        return read.decode().lstrip("x")

    def holds_with_a_full(self, reader, writer):
        self.fill(writer)
        holder = self.hold("debug", stderr=writer)
        self.assertEqual(self.drain(reader), "")
        self.assertEqual(holder.close()[0], 0)
        os.close(writer)
        texts = [line[4] for line in self.lines(self.drain(reader)) if line[2] == holder.parent]
        os.close(reader)
        self.assertRegex(texts[0], r"[1-9]\d* lines were dropped: they could not be written")
        self.assertIn(f"leaving domain '{self.name}', seat 0", texts)

    def test_a_full_pipe_drops_lines_and_blocks_no_process(self):
        self.holds_with_a_full(*os.pipe())

    def test_a_full_socket_drops_lines_and_blocks_no_process(self):
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.holds_with_a_full(*(end.detach() for end in ends))

    def test_a_stopped_terminal_drops_lines_and_blocks_no_process(self):
        reader, writer = os.openpty()
        tty.setraw(writer)
        termios.tcflow(writer, termios.TCOOFF)
        holder = self.hold("debug", stderr=writer)
        self.assertEqual(holder.close()[0], 0)
        os.close(writer)
        os.close(reader)

    def test_lines_and_output_of_the_program_share_a_regular_file(self):
        with open(self.file, "w", encoding="utf-8") as errors:
            script = "import os; os.write(2, b'first\\n'); import subprocess, sys; " \
                     "subprocess.run([sys.argv[1], 'ls']); os.write(2, b'last\\n')"
            self.environment["TENON_LOG"] = "debug"
            subprocess.run([sys.executable, "-c", script, TENON], env=self.environment, stdout=subprocess.PIPE,
                           stderr=errors, timeout=TIMEOUT_S, check=True)
        with open(self.file, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.startswith("first\n") and text.endswith("last\n"), text)

    def test_closed_standard_streams_do_not_become_the_file(self):
        self.environment["TENON_LOG"] = f"debug:{self.file}"
        with open(os.path.join(self.folder, "errors"), "w", encoding="utf-8") as errors:
            done = subprocess.run([TENON, "ls"], env=self.environment, stderr=errors, timeout=TIMEOUT_S, check=False,
                                  preexec_fn=lambda: (os.close(0), os.close(1)))
        self.assertEqual(done.returncode, 1) # it cannot print
        with open(self.file, encoding="utf-8") as file:
            self.assertNotIn("DOMAIN", file.read())

    def test_a_pipe_without_a_reader_does_not_end_the_program(self):
        reader, writer = os.pipe()
        os.close(reader)
        holder = self.hold("debug", stderr=writer)
        os.close(writer)
        self.assertEqual(holder.close()[0], 0)

    def test_a_named_pipe_without_a_reader_does_not_stop_the_program(self):
        os.mkfifo(self.file)
        holder = self.hold(f"debug:{self.file}", stderr=subprocess.PIPE)
        status, text = holder.close()
        self.assertEqual(status, 0)
        self.assertIn("because the file cannot be opened: No such device or address: " + self.file, text)

    def test_a_limit_of_the_size_of_files_does_not_end_the_program(self):
        with open(self.file, "w", encoding="utf-8") as file:
            file.write("x" * 4096)
        self.environment["TENON_LOG"] = f"debug:{self.file}"
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = subprocess.run([TENON, "ls"], env=self.environment, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=False,
                              preexec_fn=limit)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(os.stat(self.file).st_size, 4096)

    def test_a_bad_level_makes_no_file_and_is_told_of_once(self):
        sentence = ("TENON_LOG: no event is logged, because the level 'loud' is none of error, warning, info, debug and 0 "
                    "to 3")
        holder = self.hold("loud", stderr=subprocess.PIPE)
        status, text = holder.close()
        self.assertEqual((status, [line[4] for line in self.lines(text)]), (0, [sentence]))
        for level in "loud", "":
            self.environment["TENON_LOG"] = f"{level}:{self.file}"
            done = subprocess.run([TENON, "ls"], env=self.environment, text=True, capture_output=True, timeout=TIMEOUT_S,
                                  check=True)
            self.assertEqual([line[4] for line in self.lines(done.stderr)], [sentence.replace("loud", level)])
            self.assertFalse(os.path.exists(self.file))

    def test_a_dash_for_the_file_is_standard_error(self):
        self.environment["TENON_LOG"] = "debug:-"
        done = subprocess.run([TENON, "stat", "no-such-domain"], env=self.environment, text=True, capture_output=True,
                              timeout=TIMEOUT_S, check=False, cwd=self.folder)
        self.assertIn("debug: TN_ERR_NOT_FOUND: no ", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "-")))

    def test_a_log_file_that_cannot_be_opened_is_reported_once(self):
        for file in f"{self.folder}/none/log", self.folder, f"{self.folder}/{'x' * 2000}":
            holder = self.hold(f"debug:{file}", f"{self.name}-{len(file)}", stderr=subprocess.PIPE)
            status, text = holder.close()
            self.assertEqual(status, 0)
            self.assertEqual(len(text.splitlines()), 1, text)
            self.assertIn("TENON_LOG: no event is logged, because the file cannot be opened: ", text)


class Tenond(Case):
    def test_foreground_writes_the_same_lines(self):
        environment = dict(self.environment, TENON_LOG=f"debug:{self.file}")
        tenond = subprocess.Popen([TENOND, "--foreground"], env=environment, text=True, stderr=subprocess.PIPE)
        _, text = tenond.communicate(timeout=TIMEOUT_S) # it ends when it has no domain for two seconds
        self.assertEqual(tenond.returncode, 0)
        lines = self.lines(text)
        self.assertTrue(lines[0][4].startswith("tenond "), lines)
        self.assertEqual({line[1:3] for line in lines}, {("tenond", tenond.pid)})
        self.assertEqual({line[3] for line in lines}, {"info"})


if __name__ == "__main__":
    TENON, HOLDER, TENOND = map(os.path.abspath, sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
