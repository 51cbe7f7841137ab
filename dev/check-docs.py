#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that the tests, files, rooms and functions that the documents name exist."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = ROOT / "tests" / "fakecuda" / "README.md"
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), RULES]
FOLDERS = "src|include|docs|dev|tests|bench|examples|tools"
# Made by a build, or to be filled in by a person.
NOT_CHECKED = {"docs/figures.md", "docs/gpu-report.md"}


def read(paths):
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def check_sentences(problems):
    """The sentences of docs/errors.md are the library's: what stands between their dots is in the sources."""
    name = "docs/errors.md"
    sources = re.sub(r'"\s*"', "", read(sorted([*(ROOT / "src").rglob("*.c"), *(ROOT / "python" / "core").glob("*.c")])))
    tables = (ROOT / name).read_text(encoding="utf-8").split("## By sentence")[1]
    for sentence in re.findall(r"^\| `([^`]+)` \|", tables, re.M):
        # A number or a name, which may end the part, is a format in the source.
        parts = [re.sub(r"^\W+|\W+$", "", part) for part in sentence.split("...")]
        for part in parts:
            if len(part.split()) > 1 and part not in sources:
                problems.append(f"{name}: no source says '{part}'")


def check_commands(problems):
    """docs/install.md, which dev/bare-root runs, has each command of README.md."""
    there, wanted = (
        [line for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
         for line in block.splitlines()] for name in ("docs/install.md", "README.md"))
    problems += [f"docs/install.md: README.md has the command `{line}`" for line in wanted if line not in there]


def check_rules(problems):
    """Each rule of the fake driver has a row with a test, and each number that its sources name is a rule."""
    text = RULES.read_text(encoding="utf-8")
    rows = re.findall(r"^\| R(\d+) \|.*\| ([^|]*) \|$", text, re.M)
    if [int(number) for number, _ in rows] != list(range(len(rows))):
        problems.append("tests/fakecuda/README.md: the rules are not R0, R1 and so on")
    problems += [f"tests/fakecuda/README.md: no test shows R{number}" for number, shown in rows if "`" not in shown]
    for test in re.findall(r"`([a-z0-9_]+)`", " ".join(shown for _, shown in rows)):
        if not re.search(rf"\b{test}\b", read(RULES.parent.glob("*_test.c"))):
            problems.append(f"tests/fakecuda/README.md: no test is called {test}")
    named = set(re.findall(r"\bR(\d+)\b", read(RULES.parent.glob("*.[ch]"))))
    problems += [f"tests/fakecuda/README.md: there is no rule R{n}" for n in sorted(named - {n for n, _ in rows}, key=int)]


def main():
    tests = read([*(ROOT / "tests").rglob("*.c"), *(ROOT / "tests").rglob("*.py")])
    headers = read((ROOT / "include").rglob("*.h"))
    rooms = (ROOT / "src" / "LAYERS").read_text(encoding="utf-8").split()
    problems = []
    for document in sorted(DOCUMENTS):
        text = document.read_text(encoding="utf-8")
        here = document.relative_to(ROOT)
        # A name of six words or more is a test.
        for name in set(re.findall(r"`((?:[a-z0-9]+_){5,}[a-z0-9]+)`", text)):
            if not re.search(rf"\b{name}\b", tests):
                problems.append(f"{here}: no test is called {name}")
        for path in set(re.findall(rf"`((?:{FOLDERS})/[\w./-]*\w)`", text)) - NOT_CHECKED:
            if not (ROOT / path).exists() and "ROOM" not in path:
                problems.append(f"{here}: there is no {path}")
        for path in set(re.findall(r"`decisions/(\d{4})`", text)):
            if not list((ROOT / "docs" / "decisions").glob(f"{path}-*.md")):
                problems.append(f"{here}: there is no decision {path}")
        for name in set(re.findall(r"`(tn_\w+)\(\)`", text)):
            if f"{name}(" not in headers:
                problems.append(f"{here}: no header declares {name}()")
    check_sentences(problems)
    check_commands(problems)
    check_rules(problems)
    name = "docs/architecture.md"
    block = re.findall(r"^ *(\w+) {2,}\S", (ROOT / name).read_text(encoding="utf-8"), re.M)
    if not any(block[i : i + len(rooms)] == rooms for i in range(len(block))):
        problems.append(f"{name}: the rooms are not those of src/LAYERS, in that order")
    lines = (ROOT / "README.md").read_text(encoding="utf-8").count("\n")
    if lines > 120:
        problems.append(f"README.md has {lines} lines: 120 are enough for a first screen and where to read on")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
