#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""py_start_*: what it takes to start, with tenon.multiprocessing and the standard library's, in turns.

Both sides run the same lines, with one of the two packages in each. Rates are in starts a second.

py_start_fork, _forkserver, _spawn   Process(target).start() and join(), of a function that does nothing
py_start_os_fork                     os.fork() of a process that has used the package, os._exit(), waitpid()
py_start_preexec                     subprocess.call(["true"]) with a preexec_fn, in such a process
py_start_import                      a new interpreter that imports the package, and what it takes to make a
                                     Process and a Queue
"""

import importlib
import os
import subprocess
import sys
import time

from common import measure, print_figure

ROUNDS = 15
STARTS = {"fork": 40, "forkserver": 10, "spawn": 3}  # of a round
FORKS = 60
CALLS = 20
IMPORTS = 3


def packages():
    return {"tenon": "tenon.multiprocessing", "standard": "multiprocessing"}


def nothing():
    pass


def rates(count, work):
    while True:
        begun = time.monotonic()
        for _ in range(count):
            work()
        yield count / (time.monotonic() - begun)


def processes(package, method):
    context = importlib.import_module(package).get_context(method)
    kept = context.Lock()  # shared memory, which most programs have by then
    kept.acquire()

    def work():
        child = context.Process(target=nothing)
        child.start()
        child.join()
        assert child.exitcode == 0

    return rates(STARTS[method], work)


def os_fork(package):
    kept = importlib.import_module(package).Lock()
    kept.acquire()

    def work():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0) == (pid, 0)

    return rates(FORKS, work)


def preexec(package):
    kept = importlib.import_module(package).Lock()
    kept.acquire()

    def work():
        assert subprocess.call(["true"], preexec_fn=nothing) == 0

    return rates(CALLS, work)


def imports(package):
    program = f"import {package} as mp; mp.Process; mp.Queue; import {package}.queues"
    return rates(IMPORTS, lambda: subprocess.check_call([sys.executable, "-c", program]))


def figures():
    """{name: side, which takes a package}"""
    for method in STARTS:
        yield method, lambda package, method=method: processes(package, method)
    yield "os_fork", os_fork
    yield "preexec", preexec
    yield "import", imports


def main():
    for name, side in figures():
        measured = measure(
            ROUNDS,
            **{key: lambda package=package, side=side: side(package) for key, package in packages().items()},
        )
        print_figure(f"py_start_{name}", "1/s", measured["tenon"], measured["standard"])


if __name__ == "__main__":
    main()
