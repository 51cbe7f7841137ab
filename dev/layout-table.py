#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the byte tables of docs/layout.md with the compiler.

layout-table.py          print every table
layout-table.py --check  fail if a table in docs/layout.md differs from the printed one
layout-table.py --write  put the tables into docs/layout.md, between their markers

The script reads the fields and their comments from the sources. For offsets and sizes it makes a program that prints
them, compiles it and runs it.

--check also fails if a word whose bits are fields, such as {class:8, index:24}, is documented in
docs/layout.md or in a source of the library, and is not a row of the table in
tests/abi/words_test.c, which compares each row with the code.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "layout.md"

# Struct, the file that declares it.
STRUCTS = [
    ("tni_header", "src/layout/layout.h"),
    ("tni_seat", "src/layout/layout.h"),
    ("tni_announce", "src/layout/layout.h"),
    ("tni_class", "src/layout/layout.h"),
    ("tni_desc", "src/layout/layout.h"),
    ("tni_view", "src/layout/layout.h"),
    ("tni_attribute", "src/layout/layout.h"),
    ("tni_attribute_part", "src/layout/layout.h"),
    ("tni_backing", "src/layout/layout.h"),
    ("tn_storage_header", "include/tenon/share.h"),
    ("tni_records", "src/layout/layout.h"),
    ("tni_seat_set", "src/layout/layout.h"),
    ("tni_object", "src/layout/layout.h"),
    ("tni_slot", "src/layout/layout.h"),
    ("tni_channel", "src/layout/channels.h"),
    ("tni_subscriber", "src/layout/channels.h"),
    ("tni_channel_slot", "src/layout/channels.h"),
    ("tni_store", "src/layout/stores.h"),
    ("tni_store_change", "src/layout/stores.h"),
    ("tni_store_entry", "src/layout/stores.h"),
    ("tni_store_item", "src/layout/stores.h"),
    ("tni_ticket", "src/layout/layout.h"),
    ("tni_timeline", "src/layout/devices.h"),
    ("tni_loss", "src/layout/devices.h"),
    ("tni_lease", "src/layout/devices.h"),
    ("handle_head", "src/share/handle.c"),
    ("packet_head", "src/tensor/packet.c"),
    ("tni_request", "src/reaper/reaper.h"),
    ("tni_reply", "src/reaper/reaper.h"),
]
# Structs that no header declares: their text goes into the program.
COPIED = {"handle_head", "packet_head"}
# The example of a domain's geometry: the defaults, and a quota of 16 GiB.
QUOTA_BYTES = 16 << 30

# {name:bits, ...}; in a comment of several lines a star may stand in the middle.
WORD = re.compile(r"\{[\w' *-]+:\s?\d+(?:,[\w' *\n-]+:\s?\d+)+\}")
WORDS_TABLE = ROOT / "tests" / "abi" / "words_test.c"
# Words that are not in the shared memory of a domain.
OTHER_WORDS = {"{waits:28, doubt:4}", "{request:62, claim:2}", "{start time:42, pid:22}"}

FIELD = re.compile(
    r"^\s*(?:_Alignas\(\d+\)\s*)?(?P<type>(?:struct\s+)?_?[A-Za-z]\w*(?:\s+\w+)?)\s+"
    r"(?P<name>\w+)(?P<array>\[[^\]]*\])?;\s*(?:/\*\s*(?P<what>.*?)\s*\*/)?\s*$"
)


def body_of(struct, text):
    match = re.search(r"^(?:typedef )?struct " + struct + r" \{\n(.*?)^\}[^;]*;", text, re.M | re.S)
    if match is None:
        sys.exit(f"no struct {struct}")
    return match[0], match[1]


def fields_of(struct, body):
    """[(name, type as written, comment)]; a comment of several lines belongs to the field below it."""
    fields, above = [], ""
    for line in re.sub(r"/\*(?:[^*]|\*(?!/))*?\*/", lambda m: m[0].replace("\n", "\0"), body).splitlines():
        line = line.replace("\0", "\n")
        if "\n" in line and ";" not in line:
            above = " ".join(part.strip(" */") for part in line.split("\n")).strip()
            continue
        if line.strip().startswith("/*") or not line.strip():
            continue
        match = FIELD.match(line)
        if match is None:
            sys.exit(f"struct {struct}: cannot read {line!r}")
        shown = re.sub(r"^_Atomic ", "atomic ", match["type"]) + (match["array"] or "")
        what = re.sub(r"\s+", " ", match["what"] or above)
        fields.append((match["name"], shown, what))
        above = ""
    return fields


def program(structs):
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "reaper/reaper.h"']
    lines += [text for name, (text, _) in structs.items() if name in COPIED]
    lines.append("int main(void)\n{")
    for name, (_, fields) in structs.items():
        lines.append(f'printf("{name} - %zu 0\\n", sizeof(struct {name}));')
        for field, shown, _ in fields:
            size = "(size_t)0" if shown.endswith("[]") else f"sizeof(((struct {name} *)0)->{field})"
            lines.append(f'printf("{name} {field} %zu %zu\\n", offsetof(struct {name}, {field}), {size});')
    lines.append(
        f"""
    struct tni_geometry g;
    const struct tni_limits limits = {{256, 1u << 20, 1024, 65536, UINT64_C({QUOTA_BYTES})}};
    if (tni_geometry_init(&limits, 4096, &g) != 0)
        return 1;
#define SECTION(name, from, to) printf("section " name " %llu %llu\\n", (unsigned long long)(from), (unsigned long long)(to))
    SECTION("header", 0, g.seats_off);
    SECTION("seats", g.seats_off, g.announces_off);
    SECTION("announces", g.announces_off, g.classes_off);
    SECTION("classes", g.classes_off, g.words_off);
    SECTION("words", g.words_off, g.descs_off);
    SECTION("descs", g.descs_off, g.hints_off);
    SECTION("hints", g.hints_off, g.suspects_off);
    SECTION("suspects", g.suspects_off, g.rows_off);
    SECTION("rows", g.rows_off, g.objects_off);
    SECTION("objects", g.objects_off, g.tickets_off);
    SECTION("tickets", g.tickets_off, g.names_off);
    SECTION("names", g.names_off, g.opens_off);
    SECTION("opens", g.opens_off, g.loose_off);
    SECTION("loose", g.loose_off, g.issues_off);
    SECTION("issues", g.issues_off, g.control_bytes);
    SECTION("arena", 0, g.arena_bytes);
    for (uint32_t c = 1; c < g.class_count; c++)
        printf("sizeclass %u %llu %u %u %llu\\n", c, (unsigned long long)g.classes[c].size_bytes,
               g.classes[c].capacity, g.classes[c].span, (unsigned long long)g.classes[c].arena_off);
    return 0;
}}"""
    )
    return "\n".join(lines)


def ask_compiler(source):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "main.c").write_text(source, encoding="utf-8")
        rooms = [str(ROOT / "src" / name) for name in
                 ("layout/geometry.c", "base/hook.c", "base/log.c", "base/status.c", "base/text.c")]
        flags = ["-std=c11", "-D_GNU_SOURCE", "-w", f"-I{ROOT}/src", f"-I{ROOT}/include"]
        subprocess.run(
            [*compiler, *flags, str(path / "main.c"), *rooms, "-o", str(path / "main")], check=True
        )
        return subprocess.run([str(path / "main")], check=True, capture_output=True, text=True).stdout


def human(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            break
        count /= 1024
    else:
        unit = "TiB"
    return f"{count:.0f} {unit}" if count == int(count) else f"{count:.1f} {unit}"


def struct_table(name, fields, answers):
    size = answers[name, "-"][0]
    rows = [f"`struct {name}`, {size} bytes", "", "| at | bytes | field | type | |", "| ---: | ---: | --- | --- | --- |"]
    at = 0
    for field, shown, what in fields:
        offset, size_bytes = answers[name, field]
        if offset > at:
            rows.append(f"| {at} | {offset - at} | | | (nothing) |")
        shown_size = "" if shown.endswith("[]") else size_bytes
        rows.append(f"| {offset} | {shown_size} | `{field}` | `{shown}` | {what.replace('|', '&#124;')} |")
        at = offset + size_bytes
    if at < size:
        rows.append(f"| {at} | {size - at} | | | (nothing) |")
    return "\n".join(rows)


def geometry_tables(lines):
    sections = ["| section | begins at | address space |", "| --- | ---: | ---: |"]
    classes = ["| class | block | blocks | committed together | begins at |", "| ---: | ---: | ---: | ---: | ---: |"]
    for words in lines:
        if words[0] == "section":
            begin, end = int(words[2]), int(words[3])
            if words[1] != "arena":
                sections.append(f"| {words[1]} | {begin} | {human(end - begin)} |")
            else:
                total = f"The control segment takes up {human(last)} of address space, the arena {human(end)}."
            last = end
        elif words[0] == "sizeclass":
            number, size, capacity, span, begin = map(int, words[1:])
            together = "what is asked for" if span == 1 else f"{span} blocks, {human(span * size)}"
            kind = human(size) + (", messages" if number <= 5 else ", storages outside" if number == 6 else "")
            classes.append(f"| {number} | {kind} | {capacity} | {together} | {human(begin)} |")
    return "\n".join([*sections, "", total]), "\n".join(classes)


def tables():
    structs = {}
    for name, path in STRUCTS:
        text, body = body_of(name, (ROOT / path).read_text(encoding="utf-8"))
        structs[name] = text, fields_of(name, body)
    lines = [line.split() for line in ask_compiler(program(structs)).splitlines()]
    answers = {(words[0], words[1]): (int(words[2]), int(words[3])) for words in lines if words[0] in structs}
    result = {name: struct_table(name, fields, answers) for name, (_, fields) in structs.items()}
    result["sections"], result["classes"] = geometry_tables(lines)
    return result


def filled(document, made):
    def fill(match):
        if match[2] not in made:
            sys.exit(f"docs/layout.md: no table is called {match[2]}")
        return f"{match[1]}\n{made[match[2]]}\n{match[3]}"

    pattern = re.compile(r"(<!-- table (\w+) -->)\n.*?(<!-- end -->)", re.S)
    missing = set(made) - {match[2] for match in pattern.finditer(document)}
    if missing:
        sys.exit("docs/layout.md: no place for " + ", ".join(sorted(missing)))
    return pattern.sub(fill, document)


def words_of(text):
    return {re.sub(r"[\s*]+", " ", match[0]) for match in WORD.finditer(text)}


def unknown_words():
    known = words_of(WORDS_TABLE.read_text(encoding="utf-8")) | OTHER_WORDS
    paths = [DOCUMENT, *sorted((ROOT / "src").rglob("*.[ch]"))]
    return [
        f"{path.relative_to(ROOT)}: {word} is not in the table of tests/abi/words_test.c"
        for path in paths
        for word in sorted(words_of(path.read_text(encoding="utf-8")) - known)
    ]


def main():
    made = tables()
    if len(sys.argv) == 1:
        print("\n\n".join(made.values()))
        return 0
    document = DOCUMENT.read_text(encoding="utf-8")
    wanted = filled(document, made)
    if sys.argv[1] == "--write":
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif wanted != document:
        print("docs/layout.md: a table is not what the sources say: dev/layout-table.py --write")
        return 1
    elif unknown_words():
        print("\n".join(unknown_words()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
