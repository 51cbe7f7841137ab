#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the tutorial's fourth program and the commands of its fifth step: docs-terminal.py BUILD [--write]

Checks that the tables of docs/tutorial-terminal.md have the columns that `tenon` prints today; --write puts in
what it printed. Both run in a process namespace of their own, where no other domain is seen.
"""

import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial-terminal.md"
BLOCK = re.compile(r"^<!-- terminal: ([\w ]+) -->\n```text\n(.*?)^```$", re.M | re.S)
COMMANDS = {
    "ls": "ls",
    "stat": "stat factory",
    "top": "top --once factory",
    "blocks": "blocks factory",
    "doctor": "doctor factory",
}
LONGEST = 12  # lines of a block


def run(build, folder):
    """What each command printed: {name: text}."""
    environment = dict(os.environ, TENON_RUNTIME_DIR=folder, TENON_TENOND=str(build / "tools/tenond/tenond"))
    tool = str(build / "tools/tenon/tenon")
    link = pathlib.Path(folder) / "step4"
    link.symlink_to(build / "docs/tutorial/tutorial_step4")
    program = subprocess.Popen(["./step4", "100000"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(re.search(r"process (\d+)", program.stdout.readline())[1]) for _ in range(3)]
        time.sleep(2)  # some frames are read, so that the tables have figures
        for pid in pids[1:]:
            os.kill(pid, signal.SIGKILL)
            if select.select([program.stdout], [], [], 5)[0]:
                break  # a frame was read again; else the worker had none
        printed = {}
        for name, arguments in COMMANDS.items():
            done = subprocess.run([tool, *arguments.split()], env=environment, capture_output=True, text=True, check=False)
            said = (done.stdout + done.stderr).replace(folder, "/run/user/1000/tenon")
            lines = said.replace(environment["TENON_TENOND"], "/usr/local/libexec/tenond").splitlines()
            more = [] if len(lines) <= LONGEST or name == "stat" else ["..."]
            lines = lines if name == "stat" else lines[:LONGEST]
            printed[name] = "\n".join([f"$ tenon {arguments}", *(line.rstrip() for line in lines), *more]) + "\n"
        return printed
    finally:
        program.kill()
        program.wait()


def columns(text):
    return [line.split() for line in text.splitlines() if re.match(r"[A-Z][A-Z/]+  ", line)]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if "DOCUMENTED_ALONE" not in os.environ:
        for options in ("-pf", "-rpf"):
            command = ["unshare", options, "--mount-proc"]
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                os.environ["DOCUMENTED_ALONE"] = "1"
                os.execvp("unshare", [*command, sys.executable, *sys.argv])
        print("unshare makes no process namespace here, and domains of others would be seen")
        return 77
    with tempfile.TemporaryDirectory(prefix="tenon-terminal-") as folder:
        printed = run(build, folder)
    text = PAGE.read_text(encoding="utf-8")
    if sys.argv[2:] == ["--write"]:
        text = BLOCK.sub(lambda found: f"<!-- terminal: {found[1]} -->\n```text\n{printed[found[1]]}```", text)
        PAGE.write_text(text, encoding="utf-8")
        return 0
    wrong = [name for name, shown in BLOCK.findall(text) if columns(shown) != columns(printed[name])]
    for name in wrong:
        print(f"{PAGE.name}: `tenon {COMMANDS[name]}` has other columns now: dev/docs-terminal.py {sys.argv[1]} --write")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
