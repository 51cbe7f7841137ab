#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lay out what Sphinx reads: docs-site.py FOLDER.

Copies the pages of docs/, and CHANGELOG.md and its like. Where they name another page, as in
`docs/crash.md` or decision 0040, the copy has a link; where they name a function, one to the reference;
where a guide names an example or a header, one to a copy of that file.
Makes the index of decisions of docs/decisions/README.md, and adds the contents.
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
    "Tutorial": ["tutorial", "tutorial-python", "tutorial-c", "tutorial-cpp", "tutorial-terminal", "tutorial-exercises"],
    "Begin": ["install", "overview", "glossary"],
    "Guides": ["guide/queues", "guide/store", "guide/channel", "guide/children", "guide/pools", "guide/scheduling", "guide/names", "guide/operations", "guide/bindings",
               "guide/README", "guide/arena", "guide/file_descriptor", "guide/file_system", "guide/costs", "guide/lifetimes",
               "guide/python-names", "guide/python-multiprocessing", "guide/python-torch", "guide/python-dataloader"],
    "Reference": ["reference/c/index", "reference/cpp", "reference/python/index", "errors", "tool", "limits"],
    "How it works": ["promises", "architecture", "crash", "crash-tables", "layout", "namespaces", "system-calls",
                     "figures", "checklist", "decisions/index"],
    "The project": ["CHANGELOG", "CONTRIBUTING", "style", "SECURITY"],
}
# Pages beside the guides and the tutorial whose names of functions lead to the reference.
REFERRING = ["errors", "limits", "overview", "install"]


def link(text, here, pages, folder):
    """Turn names of pages into links; code blocks stay as they are."""

    def to(target, shown):
        away = os.path.relpath(target, here.parent)
        return f"[{shown}]({away})"

    def page(found):
        name = found[1].removeprefix("docs/")
        known = name in pages and pathlib.Path(name) != here
        target = name.replace("decisions/README", "decisions/index")
        return to(target, title_of(name, pages)) if known else found[0]

    def decision(found):
        name = next((name for name in pages if name.startswith(f"decisions/{found[2]}-")), None)
        return to(name, found[0].strip("`")) if name and pathlib.Path(name) != here else found[0]

    def file(found):
        """A file that is no page: the site has a copy of it."""
        source = ROOT / found[1]
        if not source.is_file():
            return found[0]
        copy = folder / "files" / found[1]
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
        return f"{{download}}`{found[1]} </files/{found[1]}>`"

    def manual(found):
        return to(pathlib.Path(f"reference/c/{found[1]}.rst"), found[0].strip("`"))

    is_for_users = here.parts[0] == "guide" or here.stem.startswith("tutorial") or here.stem in REFERRING
    parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"`tenon_(\w+)\(3\)`", manual, parts[i])
        if is_for_users:
            parts[i] = re.sub(r"`(tn_\w+)\(\)`", r"{c:func}`\1`", parts[i])
            parts[i] = re.sub(r"`(tenon\.[A-Za-z]\w*)(?:\(\))?`", r"{py:obj}`\1`", parts[i])
        parts[i] = re.sub(r"(?<!\[)`((?:docs/)?[\w/-]+\.md)`(?!\])", page, parts[i])
        parts[i] = re.sub(r"`((?:examples|include)/[\w/.-]+\.\w+)`", file, parts[i]) if is_for_users else parts[i]
        parts[i] = re.sub(r"(?<![\w/])(`?decisions?[ /])(\d{4})(?![-\d])`?", decision, parts[i])
    return "".join(parts)


def title_of(name, pages):
    title = re.search(r"^# +(.*)$", pages[name], re.M)
    return title[1] if title else name


def write_decisions(pages, folder):
    """The index: docs/decisions/README.md, with links, and what it does not list yet by its title."""
    names = sorted(name for name in pages if re.match(r"decisions/\d", name))
    by_number = {pathlib.Path(name).name[:4]: name for name in names}
    index = pages["decisions/README.md"]
    for number in re.findall(r"^- (\d{4}):", index, re.M):
        if number not in by_number:
            raise SystemExit(f"docs/decisions/README.md lists {number}, which is not there")
    lost = [number for number in by_number if f"- {number}:" not in index]
    if lost:
        index += "\n## Newer\n\n" + "".join(
            f"- {number}: {re.sub(r'^[0-9]{4}:? *', '', title_of(by_number[number], pages))}\n" for number in lost)
    index = re.sub(r"^- (\d{4}):", lambda found: f"- [{found[1]}]({pathlib.Path(by_number[found[1]]).name}):", index, flags=re.M)
    index += "\n".join(["", "```{toctree}", ":hidden:", "", *(pathlib.Path(name).stem for name in names), "```", ""])
    (folder / "decisions" / "index.md").write_text(index, encoding="utf-8")
    (folder / "decisions" / "README.md").unlink()


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
        target.write_text(link(text, pathlib.Path(name), pages, folder), encoding="utf-8")
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
