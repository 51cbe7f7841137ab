#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that the first C example in README.md is examples/share.c, which is compiled and run.

The file's first line, its license, is not printed in README.md.
"""

import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```c\n(.*?)^```$", re.M | re.S)


def main():
    readme = ROOT / "README.md"
    example = ROOT / "examples" / "share.c"
    block = BLOCK.search(readme.read_text(encoding="utf-8"))
    if block is None:
        print("README.md: no block that begins with ```c", file=sys.stderr)
        return 1
    printed = block[1].splitlines()
    compiled = example.read_text(encoding="utf-8").splitlines()
    if compiled[:1] and "SPDX-License-Identifier" in compiled[0]:
        compiled = compiled[1:]
    differences = list(
        difflib.unified_diff(compiled, printed, "examples/share.c", "README.md", lineterm="")
    )
    for line in differences:
        print(line)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
