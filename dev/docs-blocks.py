#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that code blocks of the documents are parts of programs that the tests run; --write puts them in.

A block that stands below <!-- docs/examples/guide_queues.c: consume --> is what stands in that file
between the marks `show: consume` and `end`.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^<!-- (docs/examples/\S+): (\w+) -->\n(```\w+\n)(.*?)^```$", re.M | re.S)
# Guides of which every block has such a line.
WHOLE = ["queues", "children", "pools", "names", "operations"]


def part_of(name, mark):
    source = (ROOT / name).read_text(encoding="utf-8")
    begin, end = (r"/\* show: {} \*/", r"/\* end \*/") if name.endswith(".c") else (r"# show: {}", r"# end")
    found = re.search(rf"^ *{begin.format(mark)}\n(.*?)^ *{end}$", source, re.M | re.S)
    if not found:
        raise SystemExit(f"{name} shows no {mark}")
    return textwrap.dedent(found[1]).strip("\n") + "\n"


def main():
    problems = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        here = path.relative_to(ROOT)
        new = BLOCK.sub(lambda found: f"<!-- {found[1]}: {found[2]} -->\n{found[3]}{part_of(found[1], found[2])}```", text)
        if new != text and sys.argv[1:] == ["--write"]:
            path.write_text(new, encoding="utf-8")
        elif new != text:
            problems.append(f"{here}: a block differs from its example: dev/docs-blocks.py --write")
    for name in WHOLE:
        text = (ROOT / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8")
        bare = BLOCK.sub("", text)
        for language in re.findall(r"^```(c|python|sh)$", bare, re.M):
            problems.append(f"docs/guide/{name}.md: a block of {language} is part of no program that runs")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
