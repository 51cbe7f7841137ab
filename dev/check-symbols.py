#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that src/tenon.map, the public headers and a built library agree: check-symbols.py BUILD

The shared library exports the functions that the map lists, which are those that the headers declare. The static
library has no global symbol that does not begin with tn_ or tni_. Only the room os makes system calls, and no room
prints or ends the process. BUILD has no kill points and no link-time optimisation, since nm cannot read the objects
of such a build.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

SYSTEM_CALLS = set(
    """accept accept4 bind clone close connect dup dup2 dup3 execv execve execvp execvpe fcntl fork fstat ftruncate
    futex getpid getppid gettid kill listen lseek madvise memfd_create mkdir mmap mprotect mremap munmap nanosleep
    open open64 openat pipe pipe2 poll ppoll prctl pread pread64 pwrite pwrite64 read readlink readv recvmsg
    sched_yield select sendmsg setsid sigaction signal sleep socket stat statx syscall unlink usleep vfork wait
    waitid waitpid write writev""".split()
)
NEVER = set("abort exit _exit printf puts putchar fprintf vprintf vfprintf perror pthread_create __assert_fail".split())


def of_headers():
    names = set()
    for header in sorted((ROOT / "include" / "tenon").glob("*.h")):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        for declaration in re.findall(r"\bTN_API\b([^;{]*)", text):
            names.add(re.search(r"\b(\w+)\s*\(", declaration.replace("TN_NODISCARD", ""))[1])
    return names


def of_map():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "src" / "tenon.map").read_text(encoding="utf-8"), flags=re.S)
    return set(re.findall(r"\b(tn_\w+);", text))


def of_binary(path, *options):
    out = subprocess.run(["nm", *options, "--defined-only", str(path)], capture_output=True, text=True, check=True)
    lines = [line.split() for line in out.stdout.splitlines()]
    return {words[2].split("@")[0] for words in lines if len(words) == 3 and words[1] not in "AaUu"}


def calls_of(path):
    out = subprocess.run(["nm", "-u", str(path)], capture_output=True, text=True, check=True)
    names = [words[1] for words in map(str.split, out.stdout.splitlines()) if len(words) == 2]
    return {name.removesuffix("64") for name in names}  # mmap64 is mmap


def check_calls(source):
    wrong = False
    for room in (ROOT / "src" / "LAYERS").read_text(encoding="utf-8").split():
        calls = calls_of(source / f"libtenon_{room}.a")
        if room != "os":
            wrong = report(calls & SYSTEM_CALLS, f"a system call, made in {room}") or wrong
            wrong = report(calls & NEVER, f"not for a library, used in {room}") or wrong
    return wrong


def report(names, sentence):
    for name in sorted(names):
        print(f"{name}: {sentence}")
    return bool(names)


def main():
    source = pathlib.Path(sys.argv[1]) / "src"
    declared, listed = of_headers(), of_map()
    exported = of_binary(source / "libtenon.so", "-D", "-g")
    static = of_binary(source / "libtenon.a", "-g")
    wrong = [
        report(declared - listed, "declared in a header, not in src/tenon.map"),
        report(listed - declared, "in src/tenon.map, declared in no header"),
        report(listed - exported, "in src/tenon.map, not exported by libtenon.so"),
        report(exported - listed, "exported by libtenon.so, not in src/tenon.map"),
        report({name for name in static if not name.startswith(("tn_", "tni_"))}, "global in libtenon.a"),
        check_calls(source),
    ]
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
