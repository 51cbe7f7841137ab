#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write which errors each public function documents: documented.py MAP HEADERS > faults_documented.h

The functions are those of the version script. A function documents the errors that its comment
names, those of every function that the comment refers to ("as tn_x()"), and those that a comment
on the whole header or on the group names. A declaration without a comment has that of the one before it.
"""

import pathlib
import re
import sys

TOKEN = re.compile(r"/\*.*?\*/|\bTN_API\b[^;{]*;|^\s*#.*?$", re.S | re.M)
ERROR = re.compile(r"\bTN_ERR_([A-Z_]+)\b")
CALL = re.compile(r"\b(tn_\w+)\(\)")


def read(header):
    """Yield (function, comment of it, comments of the header)."""
    text = pathlib.Path(header).read_text(encoding="utf-8")
    whole, comment, is_used = "", "", False
    for token in TOKEN.findall(text):
        token = token.strip()
        if token.startswith("/**"):
            # Two comments with no function between them: the first is of a type.
            if comment and not is_used:
                whole += comment
            comment, is_used = token, False
        elif token.startswith("/*"):
            whole += token
        elif token.startswith("TN_API"):
            name = re.search(r"\b(tn_\w+)\s*\(", token.replace("TN_NODISCARD", ""))
            if name:
                yield name[1], comment, whole
                is_used = True


def shorthand(text, names):
    """Names that stand without TN_ERR_, as in "After INVALID or VERSION"."""
    return {name for name in names if re.search(rf"\b{name}\b", text)}


def main():
    script, *headers = sys.argv[1:]
    functions = sorted(set(re.findall(r"\b(tn_\w+);", pathlib.Path(script).read_text(encoding="utf-8"))))
    status = next(h for h in headers if h.endswith("status.h"))
    names = re.findall(r"^\s*X\((\w+), -\d+", pathlib.Path(status).read_text(encoding="utf-8"), re.M)
    comments = {}
    for header in headers:
        for name, comment, whole in read(header):
            comments[name] = comment + " " + whole

    def errors_of(name, seen):
        if name in seen or name not in comments:
            return set()
        seen.add(name)
        found = {error for error in ERROR.findall(comments[name]) if error in names}
        found |= shorthand(comments[name], names)
        for other in CALL.findall(comments[name]):
            found |= errors_of(other, seen)
        return found

    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by documented.py: the errors that the headers document, a bit each. */")
    print("#include <stdint.h>\n#include <tenon/status.h>\n")
    print("struct faults_documented {\n    const char *function;\n    uint64_t errors;\n};")
    print("static const struct faults_documented documented[] = {")
    for name in functions:
        bits = " | ".join(f"UINT64_C(1) << -TN_ERR_{e}" for e in sorted(errors_of(name, set()))) or "0"
        print(f'    {{"{name}", {bits}}},')
    print("};")


if __name__ == "__main__":
    main()
