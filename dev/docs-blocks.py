#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that code blocks of the documents are parts of programs that the tests run; --write puts them in.

A block that stands below <!-- docs/examples/guide_queues.c: consume --> is what stands in that file
between the marks `show: consume` and `end`; several names show several parts, and `all` the whole file
without its license and marks. Every block of C, Python or shell of README.md, the guides and the tutorial
has such a line; README.md may name its own files, which dev/check-readme.py compares. A block that is
meant to be text (`text`, `ini`) is not code.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^<!-- ((?:docs|examples)/\S+): ([\w ]+) -->\n(```\w+\n)(.*?)^```$", re.M | re.S)
# Code that no test can run: a command for root, or one that installs.
WHOLE = ["guide/*.md", "tutorial*.md"]


def part_of(name, mark):
    source = (ROOT / name).read_text(encoding="utf-8")
    is_c = pathlib.Path(name).suffix in (".c", ".h", ".cpp", ".hpp")
    begin, end = (r"/\* show: {} \*/", r"/\* end \*/") if is_c else (r"# show: {}", r"# end")
    if mark == "all":
        lines = [line for line in source.split("\n") if "SPDX-License-Identifier" not in line and not line.startswith("#!")]
        lines = [line for line in lines if not re.fullmatch(rf" *(?:{begin.format(r'[^*]+')}|{end})", line)]
        return re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines)).strip("\n") + "\n"
    found = re.search(rf"^ *{begin.format(mark)}\n(.*?)^ *{end}$", source, re.M | re.S)
    if not found:
        raise SystemExit(f"{name} shows no {mark}")
    return textwrap.dedent(found[1]).strip("\n") + "\n"


def fill(found):
    gap = "\n\n" if found[1].endswith(".py") else "\n"
    parts = gap.join(part_of(found[1], mark) for mark in found[2].split())
    return f"<!-- {found[1]}: {found[2]} -->\n{found[3]}{parts}```"


def check_whole(page, text):
    """A reader copies the blocks of a program one after the other: together they are the program."""
    problems = []
    shown = {}
    for name, marks, _, _ in BLOCK.findall(text):
        shown.setdefault(name, []).extend(marks.split())
    for name, marks in shown.items():
        parts = "".join(part_of(name, mark) for mark in marks)
        if "docs/tutorial/" in name and parts.split() != part_of(name, "all").split():
            problems.append(f"{page}: the blocks of {name} are not the whole program")
    return problems


def main():
    problems = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        here = path.relative_to(ROOT)
        new = BLOCK.sub(fill, text)
        if new != text and sys.argv[1:] == ["--write"]:
            path.write_text(new, encoding="utf-8")
        elif new != text:
            problems.append(f"{here}: a block differs from its example: dev/docs-blocks.py --write")
        problems += check_whole(here, new)
    for path in sorted(path for pattern in WHOLE for path in (ROOT / "docs").glob(pattern)):
        bare = BLOCK.sub("", path.read_text(encoding="utf-8"))
        for block in re.findall(r"^```(?:c|cpp|python|sh)\n(.*)$", bare, re.M):
            problems.append(f"{path.relative_to(ROOT)}: no program that runs has the block `{block}`")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
