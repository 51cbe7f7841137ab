#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bash and zsh complete after `tenon`, in a real shell on a terminal.

usage: completion_test.py TENON CLI_HOLDER TENOND COMPLETION-FOLDER [unittest arguments]

A program called tenon stands in front of the real one: it prints what it was started with, so that a test sees what
the shell made of the keys.
"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TIMEOUT_S = 30
TENON, HOLDER, TENOND, FOLDER = "tenon", "cli_holder", "tenond", "completion"
VERBS = ["ls", "stat", "top", "blocks", "tickets", "gc", "doctor", "load", "unload", "simulate"]


class Shell:
    def __init__(self, argv, environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, environment)
        self.text = ""

    def read_until(self, text):
        end = time.monotonic() + TIMEOUT_S
        while text not in self.text:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"no {text!r} in {self.text!r}")
            self.text += os.read(self.fd, 4096).decode(errors="replace")
        before, _, self.text = self.text.partition(text)
        return before

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class Case:
    """Of both shells."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tenon-completion-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.name = "named-" + os.path.basename(self.folder)[-8:]
        stub = os.path.join(self.folder, "tenon")
        with open(stub, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nif test "$1" = ls; then exec "{TENON}" "$@"; fi\necho "RAN[$*]NAR"\n')
        os.chmod(stub, 0o755)
        self.environment = dict(os.environ, TENON_RUNTIME_DIR=os.path.join(self.folder, "run"), TENON_TENOND=TENOND,
                                PATH=self.folder + ":" + os.environ["PATH"], HOME=self.folder, TERM="dumb", LC_ALL="C.UTF-8")
        self.environment.pop("LD_PRELOAD", None)
        self.holder = subprocess.Popen([HOLDER, self.name], env=self.environment, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        self.addCleanup(self.holder.communicate)
        self.assertEqual(len(self.holder.stdout.readline().split()), 2)
        self.shell = Shell(self.argv, self.environment)
        self.addCleanup(self.shell.close)
        self.shell.type("PS1='READ''Y> '\n" + self.setup + "\n")
        self.shell.read_until("READY> ")
        self.shell.type("echo SE''T\n")
        self.shell.read_until("SET\r\n")

    def run_keys(self, keys):
        """What the stub was started with after these keys and a new line."""
        self.shell.type(keys)
        self.shell.type("\n")
        self.shell.read_until("RAN[")
        return self.shell.read_until("]NAR").split()

    def test_a_verb_is_completed(self):
        for keys, verb in (("bl", "blocks"), ("ti", "tickets"), ("g", "gc"), ("doc", "doctor"), ("st", "stat"), ("to", "top"),
                           ("si", "simulate")):
            self.assertEqual(self.run_keys(f"tenon {keys}\t"), [verb])

    def test_a_domain_is_completed_where_the_verb_takes_one(self):
        for verb in "stat", "top", "blocks", "tickets", "doctor":
            self.assertEqual(self.run_keys(f"tenon {verb} {self.name[:-2]}\t"), [verb, self.name])
        self.assertEqual(self.run_keys(f"tenon gc {self.name[:-2]}\t"), ["gc", self.name[:-2]])

    def test_options_are_those_of_the_verb(self):
        for verb, keys, option in (("blocks", "--lo", "--long"), ("top", "--o", "--once"), ("doctor", "--f", "--fix"),
                                   ("stat", "--j", "--json"), ("gc", "--j", "--json"), ("gc", "--fi", "--fi")):
            self.assertEqual(self.run_keys(f"tenon {verb} {keys}\t"), [verb, option])

    def test_the_key_of_sort_is_completed(self):
        ran = self.run_keys(f"tenon blocks -s by\t {self.name[:-2]}\t")
        self.assertEqual(ran, ["blocks", "-s", "bytes", self.name])
        ran = self.run_keys(f"tenon blocks --sort=by\t {self.name[:-2]}\t")
        self.assertEqual(ran, ["blocks", "--sort=bytes", self.name])

    def test_a_second_domain_is_not_completed(self):
        other = self.name[:-2]
        for words in ["stat", self.name], ["blocks", "--limit=3", self.name], ["top", self.name, "-d", "2"]:
            self.assertEqual(self.run_keys(f"tenon {' '.join(words)} {other}\t"), [*words, other])

    def test_the_files_of_simulate_are_completed(self):
        with open(os.path.join(self.folder, "graph one.json"), "w", encoding="utf-8"):
            pass
        graph = os.path.join(self.folder, "graph")
        name = graph + " one.json"
        self.assertEqual(" ".join(self.run_keys(f"tenon simulate {graph}\t {graph}\t")), f"simulate {name} {name}")
        self.assertEqual(" ".join(self.run_keys(f"tenon simulate --json -t {graph}\t")), f"simulate --json -t {name}")

    def test_help_is_completed_with_a_verb(self):
        self.assertEqual(self.run_keys("tenon he\t bl\t"), ["help", "blocks"])


class Bash(Case, unittest.TestCase):
    argv = ["bash", "--noprofile", "--norc", "-i"]

    @property
    def setup(self):
        return f"bind 'set enable-bracketed-paste off' 2>/dev/null; source {FOLDER}/tenon.bash"

    def test_an_equals_sign_and_nothing_more_lists_the_keys(self):
        self.shell.type("bind 'set show-all-if-ambiguous on'; echo DO''NE\n")
        self.shell.read_until("DONE\r\n")
        self.shell.type("tenon blocks --sort=\t")
        self.shell.read_until("age")
        self.shell.read_until("bytes")


@unittest.skipIf(shutil.which("zsh") is None, "there is no zsh")
class Zsh(Case, unittest.TestCase):
    argv = ["zsh", "-f", "-i"]

    @property
    def setup(self):
        return f"unset zle_bracketed_paste; PROMPT_EOL_MARK=; fpath=({FOLDER} $fpath); autoload -U compinit; compinit -u -D"


class Agreement(unittest.TestCase):
    def test_both_know_every_verb_and_every_option(self):
        for file in "tenon.bash", "_tenon":
            with open(os.path.join(FOLDER, file), encoding="utf-8") as stream:
                text = stream.read()
            for verb in VERBS:
                self.assertRegex(text, rf"\b{verb}\b")
                usage = subprocess.run([TENON, verb, "--help"], text=True, capture_output=True, timeout=TIMEOUT_S, check=True)
                self.assertRegex(text, r"\bhelp\b")
                for option in set(re.findall(r"--[a-z]+", usage.stdout)) - {"--usage"}:
                    self.assertIn(option, text, verb)


if __name__ == "__main__":
    TENON, HOLDER, TENOND, FOLDER = map(os.path.abspath, sys.argv[1:5])
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
