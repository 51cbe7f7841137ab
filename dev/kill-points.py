#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""List every kill point of the sources, and check that docs/crash-tables.md describes it.

kill-points.py          print each point, its place, and the tests that name it
kill-points.py --check  fail if docs/crash-tables.md lacks one, names one that does not exist, or is
                        wrong about the points that no test names
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "crash-tables.md"
POINT = re.compile(r'\bTNI_KILL_POINT\("(\w+)"\)')
# In docs/crash-tables.md, a row of a table that opens with points is about them.
ROW = re.compile(r"^\|((?:\s*`\w+`,?)+)\s*\|", re.M)


def of_sources():
    points = {}
    for folder in ("src", "tools"):
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for name in POINT.findall(line):
                    points.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{number}")
    return points


def of_document():
    text = DOCUMENT.read_text(encoding="utf-8")
    return {name for row in ROW.findall(text) for name in re.findall(r"`(\w+)`", row)}


def of_untested():
    text = DOCUMENT.read_text(encoding="utf-8")
    match = re.search(r"<!-- untested -->(.*?)<!-- end -->", text, re.S)
    return set(re.findall(r"`(\w+)`", match[1])) if match else set()


def of_tests():
    named = {}
    for path in sorted((ROOT / "tests").rglob("*.[ch]")):
        for name in re.findall(r'"(\w+)"', path.read_text(encoding="utf-8")):
            named.setdefault(name, set()).add(path.stem)
    return named


def main():
    points = of_sources()
    twice = [name for name, places in points.items() if len(places) > 1]
    problems = [f"{name}: two places have this name: {' '.join(points[name])}" for name in twice]
    if sys.argv[1:] == ["--check"]:
        told = of_document()
        problems += [f"{name}: not in a table of docs/crash-tables.md" for name in sorted(points.keys() - told)]
        problems += [f"{name}: docs/crash-tables.md has it, no source does" for name in sorted(told - points.keys())]
        untested = points.keys() - of_tests().keys()
        problems += [f"{name}: no test names it, and docs/crash-tables.md does not say so" for name in sorted(untested - of_untested())]
        problems += [f"{name}: docs/crash-tables.md says that no test names it" for name in sorted(of_untested() - untested)]
    else:
        tests = of_tests()
        for name, places in points.items():
            print(f"{name:28} {places[0]:34} {' '.join(sorted(tests.get(name, ())))}")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
