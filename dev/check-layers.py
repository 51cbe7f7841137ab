#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the house against its plan, src/LAYERS.

An #include goes only to a room further down, and only to its door, src/ROOM/ROOM.h. Every room is
listed, every source is built, every file opens with its license, system calls are made in os only.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
LICENSE = "SPDX-License-Identifier: Apache-2.0"
MAX_LINES = 1000
TEST = re.compile(r"^(?:[A-Z][A-Z_]+\((\w+)[,)]| *def test_(\w+))", re.M)  # TN_TEST(name), EACH_STRATEGY(name), ...
MAX_NAME = 60
# dev/check-symbols.py looks at the calls themselves; <signal.h> is also the names of signals.
# kill_point.c ends the process, and is in no release.
SYSTEM = re.compile(r"^(sys/(?!single_threaded)|linux/|unistd\.h|fcntl\.h|poll\.h|pthread\.h|threads\.h|sched\.h|dirent\.h)")
MAY_CALL_SYSTEM = {"src/base/kill_point.c"}

problems = []


def complain(path, sentence):
    problems.append(f"{path.relative_to(ROOT)}: {sentence}")


def sources(folder):
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h"))


def check_include(path, room, kind, name, rank):
    target = name.split("/")[0]
    if kind == "<" or target not in rank:
        if kind == "<" and room != "os" and SYSTEM.match(name) and str(path.relative_to(ROOT)) not in MAY_CALL_SYSTEM:
            complain(path, f"includes <{name}>: only os makes system calls")
        if kind == '"':
            complain(path, f'includes "{name}", which is in no room')
        return
    if target == room:
        return
    if name != f"{target}/{target}.h":
        complain(path, f'includes "{name}": the door of {target} is {target}/{target}.h')
    if rank[target] < rank[room]:
        complain(path, f'includes "{name}": {target} is above {room}')


def check_rooms(rooms):
    rank = {room: place for place, room in enumerate(rooms)}
    there = {p.name for p in (ROOT / "src").iterdir() if p.is_dir()}
    for room in sorted(there ^ set(rooms)):
        complain(ROOT / "src" / room, "is not both a folder and a line of src/LAYERS")
    for room in [room for room in rooms if room in there]:
        folder = ROOT / "src" / room
        build = (folder / "meson.build").read_text(encoding="utf-8")
        for path in sources(f"src/{room}"):
            if path.suffix == ".c" and f"'{path.name}'" not in build:
                complain(path, "is not in meson.build")
            for kind, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
                check_include(path, room, kind, name, rank)


def check_outside(folder, rooms):
    """What may see only the public headers."""
    for path in sources(folder):
        for _, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if name.split("/")[0] in rooms:
                complain(path, f'includes "{name}": only <tenon/...> here')


def check_tenond(rooms):
    for path in sources("tools/tenond"):
        for _, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            room = name.split("/")[0]
            if room in rooms and name != f"{room}/{room}.h":
                complain(path, f'includes "{name}": doors only')


def check_python():
    """A module that is not installed is missed only by those who installed the package."""
    build = (ROOT / "python" / "meson.build").read_text(encoding="utf-8")
    for path in sorted((ROOT / "python" / "tenon").rglob("*")):
        name = str(path.relative_to(ROOT / "python"))
        if path.suffix in (".py", ".pyi", ".typed") and f"'{name}'" not in build:
            complain(path, "is not in python/meson.build")


def check_files():
    folders = ("include", "src", "tools", "tests", "bench", "examples")
    foreign = ROOT / "include" / "tenon" / "dlpack.h"
    for path in [p for folder in folders for p in sources(folder) if p != foreign]:
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines or LICENSE not in lines[0]:
            complain(path, "does not open with its license line")
        if len(lines) > MAX_LINES:
            complain(path, f"has {len(lines)} lines: split it")


def check_test_names():
    for path in sorted(p for p in (ROOT / "tests").rglob("*") if p.suffix in (".c", ".cpp", ".py")):
        for names in TEST.findall(path.read_text(encoding="utf-8")):
            name = "".join(names)
            if len(name) > MAX_NAME:
                complain(path, f"the name of the test {name} has {len(name)} letters, more than {MAX_NAME}")


def main():
    rooms = (ROOT / "src" / "LAYERS").read_text(encoding="utf-8").split()
    check_rooms(rooms)
    for folder in ("include", "tools/tenon", "examples", "tests/outside"):
        check_outside(folder, rooms)
    check_tenond(rooms)
    check_python()
    check_files()
    check_test_names()
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
