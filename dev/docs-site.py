#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lay out what Sphinx reads: docs-site.py FOLDER.

Copies the pages of docs/, and CHANGELOG.md and its like. Where they name another page, as in
`docs/crash.md` or decision 0040, the copy has a link. Adds the index of decisions, and the contents.
"""

import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ABOUT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
# The contents of the site, in the order of its menu. A page that is not there yet is left out.
CONTENTS = {
    "Begin": ["install", "tutorial", "tutorial-python", "tutorial-c", "tutorial-terminal", "tutorial-exercises", "overview",
              "glossary"],
    "Guides": ["guide/queues", "guide/children", "guide/pools", "guide/names", "guide/operations", "guide/README",
               "guide/arena", "guide/file_descriptor", "guide/file_system", "guide/costs", "guide/lifetimes",
               "guide/python-names", "guide/python-multiprocessing", "guide/python-torch", "guide/python-dataloader"],
    "Reference": ["reference/c/index", "reference/python/index", "errors", "tool", "limits"],
    "How it works": ["promises", "architecture", "crash", "crash-tables", "layout", "namespaces", "system-calls",
                     "figures", "checklist", "decisions/index"],
    "The project": ["CHANGELOG", "CONTRIBUTING", "style", "SECURITY"],
}


def link(text, here, pages):
    """Turn names of pages into links; code blocks stay as they are."""

    def to(target, shown):
        away = os.path.relpath(target, here.parent)
        return f"[{shown}]({away})"

    def page(found):
        name = found[1].removeprefix("docs/")
        known = name in pages and pathlib.Path(name) != here
        return to(name, title_of(name, pages)) if known else found[0]

    def decision(found):
        name = next((name for name in pages if name.startswith(f"decisions/{found[2]}-")), None)
        return to(name, found[0].strip("`")) if name and pathlib.Path(name) != here else found[0]

    parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"(?<!\[)`((?:docs/)?[\w/-]+\.md)`(?!\])", page, parts[i])
        parts[i] = re.sub(r"(?<![\w/])(`?decisions?[ /])(\d{4})(?![-\d])`?", decision, parts[i])
    return "".join(parts)


def title_of(name, pages):
    title = re.search(r"^# +(.*)$", pages[name], re.M)
    return title[1] if title else name


def write_decisions(pages, folder):
    names = sorted(name for name in pages if name.startswith("decisions/"))
    lines = ["# Decisions", "", "What was decided about how tenon works, and why. A page that was replaced by a later one "
             "says so. Numbers that are missing were never given to a page.", ""]
    for name in names:
        number, title = re.match(r"(\d{4}):? *(.*)", title_of(name, pages)).groups()
        lines.append(f"- [{number}]({pathlib.Path(name).name}): {title[0].lower() + title[1:] if title[1:2].islower() else title}")
    lines += ["", "```{toctree}", ":hidden:", *(pathlib.Path(name).stem for name in names), "```", ""]
    (folder / "decisions" / "index.md").write_text("\n".join(lines), encoding="utf-8")


def contents(folder):
    out = []
    for caption, names in CONTENTS.items():
        there = [name for name in names if list(folder.glob(f"{name}.*"))]
        out += ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *there, "```"]
    return "\n".join(out) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    paths = {str(path.relative_to(ROOT / "docs")): path for path in (ROOT / "docs").rglob("*.md")}
    paths.update((name, ROOT / name) for name in ABOUT)
    pages = {name: path.read_text(encoding="utf-8") for name, path in sorted(paths.items())}
    for name, text in pages.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(link(text, pathlib.Path(name), pages), encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "_static", folder / "_static", dirs_exist_ok=True)
    shutil.copy(ROOT / "docs" / "conf.py", folder)
    shutil.copy(ROOT / "meson.build", folder / "version.txt")
    write_decisions(pages, folder)
    with (folder / "index.md").open("a", encoding="utf-8") as index:
        index.write(contents(folder))
    listed = {name for names in CONTENTS.values() for name in names} | {"index"}
    lost = [name for name in pages if name[:-3] not in listed and not name.startswith("decisions/")]
    print("".join(f"dev/docs-site.py: the contents do not list {name}\n" for name in lost), end="")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
