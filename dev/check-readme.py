#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that the first examples in README.md, in C and in Python, are files of examples/, which are run.

A file's first line, its license, is not printed in README.md.
"""

import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = {"c": "share.c", "python": "frames.py"}


def compare(readme, language, name):
    """Print how the first block of a language differs from an example; return whether it does."""
    block = re.search(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S)
    if block is None:
        print(f"README.md: no block that begins with ```{language}", file=sys.stderr)
        return True
    printed = block[1].splitlines()
    lines = (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()
    if lines[:1] and "SPDX-License-Identifier" in lines[0]:
        lines = lines[1:]
    differences = list(difflib.unified_diff(lines, printed, f"examples/{name}", "README.md", lineterm=""))
    for line in differences:
        print(line)
    return bool(differences)


def main():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return 1 if any([compare(readme, *example) for example in EXAMPLES.items()]) else 0


if __name__ == "__main__":
    sys.exit(main())
