#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the calls between files by the symbols of their objects: check-calls.py BUILD

A room calls only rooms below it in src/LAYERS. The files of a room, of the extension in python/core, of tenond and of
tenon do not call each other in circles. BUILD is a finished build without link-time optimisation, since nm cannot read
the objects of such a build.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OBJECT = re.compile(r"libtenon_(\w+)\.a\.p/\1_(.+)\.o$")
TOOL_OBJECT = re.compile(r"tools/(tenond?)/\1\.p/([\w]+)\.c\.o$")
EXTENSION_OBJECT = re.compile(r"_core\..+\.p/core_(.+)\.o$")


def find_objects(build):
    """@return {source file, from the root, with .c: its object}"""
    objects = {}
    for path in sorted((build / "src").glob("libtenon_*.a.p/*.o")):
        objects["/".join(("src", *OBJECT.search(str(path)).groups()))] = path
    for path in sorted((build / "python").glob("_core.*.p/core_*.o")):
        file = f"python/core/{EXTENSION_OBJECT.search(str(path)).group(1)}"
        if (ROOT / file).exists():  # an object of a file that is no more may lie there still
            objects[file] = path
    for path in sorted((build / "tools").glob("*/*.p/*.o")):
        match = TOOL_OBJECT.search(str(path))
        if match and (ROOT / (file := f"tools/{match[1]}/{match[2]}.c")).exists():
            objects[file] = path
    return objects


def read_symbols(build):
    """@return {file: symbols that it uses}, {symbol: file that defines it}"""
    objects = find_objects(build)
    uses, homes = {file: set() for file in objects}, {}
    files = {str(path): file for file, path in objects.items()}
    listing = subprocess.run(["nm", "-A", *files], check=True, capture_output=True, text=True).stdout if files else ""
    for line in listing.splitlines():
        path, symbol = line.split(":", 1)
        kind, name = symbol.split()[-2:]
        if kind == "U":
            uses[files[path]].add(name)
        elif kind in "TDBRVW":
            homes[name] = files[path]
    return uses, homes


def find_circles(calls):
    """Tarjan: groups of files of which each reaches each other."""
    order, low, stack, circles = {}, {}, [], []

    def visit(file):
        order[file] = low[file] = len(order)
        stack.append(file)
        for other in calls[file]:
            if other not in order:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == order[file]:
            group = stack[stack.index(file) :]
            del stack[stack.index(file) :]
            if len(group) > 1:
                circles.append(sorted(group))

    for file in sorted(calls):
        if file not in order:
            visit(file)
    return circles


def main():
    uses, homes = read_symbols(pathlib.Path(sys.argv[1]))
    if not uses:
        sys.exit(f"check-calls: {sys.argv[1]} holds no objects of the library: build it first")
    rank = {room: place for place, room in enumerate((ROOT / "src" / "LAYERS").read_text(encoding="utf-8").split())}
    rank["tenon"] = rank["tenond"] = -1
    rank["core"] = -1  # the extension calls the library, and nothing calls the extension
    calls = {file: collections.defaultdict(set) for file in uses}
    for file, symbols in uses.items():
        for name in symbols:
            if homes.get(name, file) != file:
                calls[file][homes[name]].add(name)
    problems = []
    for file in sorted(calls):
        for other, names in sorted(calls[file].items()):
            if rank[other.split("/")[1]] < rank[file.split("/")[1]]:
                problems.append(f"{file} calls up into {other}: {', '.join(sorted(names))}")
    for circle in find_circles(calls):
        problems.append(f"these files call each other in a circle: {', '.join(circle)}")
        for file in circle:
            for other in circle:
                if other in calls[file]:
                    problems.append(f"    {file} -> {other}: {', '.join(sorted(calls[file][other]))}")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
