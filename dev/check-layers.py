#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the sources against src/LAYERS and against the limits of CONTRIBUTING.md.

A source includes only the doors (src/ROOM/ROOM.h) of rooms below its own, and a test only the doors of the rooms that
it may use. Each room is listed in src/LAYERS and has a unit test, each source is built and opens with its license
line, and only os includes the headers of system calls. Files, functions and names of tests keep within their limits.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
LICENSE = "SPDX-License-Identifier: Apache-2.0"
MAX_LINES = 600
MAX_TEST_LINES = 1000  # a file of tests is a list of functions that do not call each other
TEST = re.compile(r"^(?:[A-Z][A-Z_]+\((\w+)[,)]| *def test_(\w+))", re.M)  # TN_TEST(name), EACH_STRATEGY(name), ...
MAX_NAME = 60
# A function at the start of a line, its declaration or its definition.
FUNCTION = re.compile(
    r"^(?!typedef)[a-zA-Z_][\w *\n]*?\b(\w+)\(((?:[^()]|\([^()]*\))*)\)\s*(?:__attribute__\(\(.*?\)\)\s*)*[;{]", re.M
)
MAX_PARAMETERS = 5
# dev/check-symbols.py checks the calls themselves. <signal.h> is allowed, because it also has the names of signals.
# kill_point.c ends the process, and is in no release.
SYSTEM = re.compile(r"^(sys/(?!single_threaded)|linux/|unistd\.h|fcntl\.h|poll\.h|pthread\.h|threads\.h|sched\.h|dirent\.h)")
MAY_CALL_SYSTEM = {"src/base/kill_point.c"}

# Includes of tests that are no doors: the file or folder, the headers, and the reason.
INSIDE = [
    ("tests/model", "process/*.c reaper/*.c queue/*.c queue/*.h share/ticket.h store/*.c store/*.h channel/*.c channel/*.h", "the models run the shipped steps"),
    ("tests/fuzz/fuzz_environment.c", "backing/strategy.c", "each input needs the strategy read anew"),
    ("tests/fuzz/fuzz_view.c", "tensor/build.h", "the target is the decoder of untrusted views"),
    ("tests/abi/wire_test.c", "spawn/pool.h", "the test compares the messages of pools with a table"),
    ("tests/fakecuda", "device/cuda_api.h", "the fake of the driver has the driver's interface"),
    ("tests/fakecuda", "device/hip_api.h", "and the fake in its other dress that of HIP"),
    ("tests/gpu/facts", "device/cuda_api.h", "the questions are put to the driver itself"),
    ("tests/faults/state.c", "api/inspect.h", "the comparison of states reads the segment itself"),
    ("tests/fuzz/fuzz_domain.c", "api/inspect.h", "the target inspects a forged segment"),
    ("tests/process/crash_world.c", "api/inspect.h", "the test reads the segment after each death"),
    ("tests/process/namespace_test.c", "api/inspect.h", "the test lists the domains of other layouts too"),
    ("tests/soak/soak_kill.c", "api/inspect.h", "the soak reads the segment to choose its victims"),
    ("tests/threads/threads_reaper_test.c", "api/inspect.h", "the test reads the segment of an inspector"),
    ("tests/unit/inspect_test.c", "api/inspect.h", "api has no door, and this is its only header"),
    ("tests/hostile/forged_test.c", "queue/ring.h", "the test forges the slots of a ring"),
    ("tests/process/queue_world.h", "queue/ring.h", "the tests of queues read the slots of a ring"),
    ("tests/process/pool_test.c", "queue/ring.h spawn/pool.h", "the test reads the ring and the jobs of a pool"),
    ("tests/process/fork_spawn_test.c", "spawn/pool.h", "the test waits for the workers of a pool"),
    ("tests/process/forkserver_late_test.c", "spawn/child.h", "the test waits until a server is free"),
    ("tests/process/folder_test.c", "os/linux.h reaper/manager.h", "the test talks to tenond in its own messages"),
    ("tests/process/fork_in_hook_test.c", "object/registry.h", "the test holds the registry while it forks"),
    ("tests/process/recount_test.c", "reaper/recount.h", "the test stops a recount between its steps"),
    ("tests/sweep/sweep.c", "reaper/recount.h", "the sweep counts the records of a block"),
    ("tests/soak/soak_audit.c", "queue/ring.h", "the audit of the soak reads the slots of each ring"),
    ("tests/unit/audit_test.c", "queue/ring.h", "the test forges the slots of a ring"),
    ("tests/unit/damage_test.c", "queue/ring.h", "the test damages the slots of a ring"),
    ("tests/unit/reaper_audit_test.c", "queue/ring.h", "the test forges the slots of a ring"),
    ("tests/unit/object_life_test.c", "object/registry.h", "the unit is the registry"),
    ("tests/unit/object_names_test.c", "object/names.h", "the unit is the index of names"),
    ("tests/unit/os_socket_test.c", "os/linux.h", "the test changes the root of the sockets"),
    ("tests/unit/pool_jobs_test.c", "spawn/pool.h", "the unit is the list of jobs"),
    ("tests/unit/channel_damage_test.c", "channel/slots.h", "the test damages the ring of a channel"),
    ("tests/unit/store_change_test.c", "store/table.h", "the test takes the claim of a store"),
    ("tests/unit/store_damage_test.c", "store/table.h", "the test damages the table of a store"),
    ("tests/unit/queue_ring_test.c", "queue/ring.h", "the unit is the ring"),
    ("tests/unit/share_ticket_test.c", "share/ticket.h", "the unit is the ticket"),
    ("tests/unit/tensor_test.c", "tensor/build.h", "the test fails the allocations of TNI_TENSOR_CATCH()"),
]

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
                complain(path, f'includes "{name}": this folder may include only <tenon/...>')


def read_lists(path, name):
    """The lists and the dictionary of lists, of literals only, that a meson.build assigns to `name`."""
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    return ast.literal_eval(re.search(rf"^{name} = ([\[{{].*?^[\]}}])", text, re.M | re.S)[1])


def check_test_include(path, name, used):
    """Whether a test may include a header that is no door: used collects the lines of INSIDE that say so."""
    for line in INSIDE:
        place = ROOT / line[0]
        if (path == place or place in path.parents) and any(pathlib.PurePath(name).match(one) for one in line[1].split()):
            used.add(line)
            return
    complain(path, f'includes "{name}", which is not the door of {name.split("/")[0]}')


def check_tests(rooms):
    rank = {room: place for place, room in enumerate(rooms)}
    programs = read_lists(ROOT / "tests" / "unit" / "meson.build", "unit_tests")
    room_of = {f"{name}.c": room for room, names in programs.items() for name in names}
    elsewhere = {"device"}  # tests/gpu/device_test.c, which runs with a driver
    for room in sorted(room for room in rooms if room not in {*programs, *elsewhere} and not any(n.startswith(f"{room}_") for n in room_of)):
        complain(ROOT / "src" / room, "has no test in tests/unit/meson.build: neither a list of its own nor a program named after it")
    used = set()
    for path in sources("tests") + sources("bench"):
        room = room_of.get(path.name) if path.parent.name == "unit" else None
        for _, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            target = name.split("/")[0]
            if target not in rank or not (ROOT / "src" / name).exists():
                continue
            if name != f"{target}/{target}.h":
                check_test_include(path, name, used)
            if room is not None and rank[target] < rank[room]:
                complain(path, f'includes "{name}": {target} is above {room}, whose test this is')
    for line in sorted(set(INSIDE) - used):
        complain(ROOT / line[0], f"includes none of {line[1]}: remove its line from INSIDE")


def check_functions():
    """A comment that excuses a function stands before its declaration or before its definition."""
    many, excused = {}, set()
    for folder in ("include", "src", "tools", "python/core"):
        for path in sources(folder):
            text = path.read_text(encoding="utf-8")
            for match in FUNCTION.finditer(text):
                count = re.sub(r"\([^()]*\)", "", match[2]).count(",") + 1
                if count > MAX_PARAMETERS:
                    before = text[: match.start()].rstrip()
                    many[match[1]] = (path, count)
                    if before.endswith("*/") and "parameters" in before[before.rfind("/*") :]:
                        excused.add(match[1])
    for name in sorted(set(many) - excused):
        path, count = many[name]
        complain(path, f"{name}() has {count} parameters, more than {MAX_PARAMETERS}: let its comment say why")


def check_tenond(rooms):
    for path in sources("tools/tenond"):
        for _, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            room = name.split("/")[0]
            if room in rooms and name != f"{room}/{room}.h":
                complain(path, f'includes "{name}": doors only')


def check_python():
    """Each module is in meson.build. Only users of an installed package would miss it."""
    build = (ROOT / "python" / "meson.build").read_text(encoding="utf-8")
    for path in sorted((ROOT / "python" / "tenon").rglob("*")):
        name = str(path.relative_to(ROOT / "python"))
        if path.suffix in (".py", ".pyi", ".typed") and f"'{name}'" not in build:
            complain(path, "is not in python/meson.build")


def check_files():
    folders = ("include", "src", "tools", "python", "tests", "bench", "examples")
    foreign = ROOT / "include" / "tenon" / "dlpack.h"
    for path in [p for folder in folders for p in sources(folder) if p != foreign]:
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines or LICENSE not in lines[0]:
            complain(path, "does not open with its license line")
        if len(lines) > (MAX_TEST_LINES if path.is_relative_to(ROOT / "tests") else MAX_LINES):
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
    check_tests(rooms)
    check_functions()
    check_python()
    check_files()
    check_test_names()
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
