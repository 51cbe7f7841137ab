# SPDX-License-Identifier: Apache-2.0
"""Read the public headers: comments, functions, structs, enums, constants, in their order.

This is no compiler. It reads the C that include/tenon is written in, and stops with an error that
names the line where it meets anything else.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
# DLPack's own header, and the one that includes all others.
NOT_DOCUMENTED = {"dlpack.h", "tenon.h"}
HIDDEN_MACROS = re.compile(r"TENON_\w+_H|TN_BEGIN_DECLS|TN_END_DECLS|TN_API|TN_NODISCARD|TN_STATUS_\w+|TN_DTYPE_\w+")
STATUS = re.compile(r'X\((\w+), (-\d+), "([^"]*)", (\w+)\)')


class Item:
    """One declaration with its comment.

    kind is section, prose, function, struct, type, enum, macro, variable or status; text is the
    declaration as Sphinx's C domain reads it; members are (declaration, comment) of a struct or enum.
    """

    def __init__(self, kind, name="", text="", comment="", members=(), line=0):
        self.kind, self.name, self.text, self.comment = kind, name, text, comment
        self.members, self.line = list(members), line


class Header:
    def __init__(self, path):
        self.path = path
        self.stem = path.stem
        self.items = read_items(path)
        self.functions = [item for item in self.items if item.kind == "function"]

    def names(self):
        """Each name that the header declares, with the role of the C domain that refers to it."""
        roles = {"function": "func", "struct": "struct", "type": "type", "macro": "macro", "variable": "var"}
        for item in self.items:
            if item.kind in roles:
                yield item.name, roles[item.kind]
            elif item.kind in ("enum", "status"):
                for text, _ in item.members:
                    yield text.split()[0], "enumerator"


def read_headers():
    paths = sorted((ROOT / "include" / "tenon").glob("*.h"))
    return [Header(path) for path in paths if path.name not in NOT_DOCUMENTED]


def clean_comment(comment):
    """The text of a comment, without its stars; indentation within it is kept."""
    text = re.sub(r"^/\*+|\*/$", "", comment)
    lines = [re.sub(r"^\s*\* ?", "", line) if i else line.strip() for i, line in enumerate(text.split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip("\n").rstrip()


def read_items(path):
    source = path.read_text(encoding="utf-8")
    items = []
    comment = ""
    at = 0
    while at < len(source):
        blank = re.compile(r"\s*").match(source, at)
        if comment and blank[0].count("\n") > 1:
            items.append(make_prose(comment))
            comment = ""
        at = blank.end()
        if at == len(source):
            break
        line = source.count("\n", 0, at) + 1
        if source.startswith("/*", at):
            if comment:
                items.append(make_prose(comment))
            end = source.index("*/", at) + 2
            comment = source[at:end]
        elif source[at] == "#":
            end = re.compile(r"(?:[^\n]*\\\n)*[^\n]*").match(source, at).end()
            items += read_macro(source[at:end], comment, line)
            comment = ""
        elif re.compile(r"TN_(BEGIN|END)_DECLS").match(source, at):
            end = at + len("TN_END_DECLS") + (source[at + 3] == "B") * 2
        else:
            end = find_end(source, at, path, line)
            # A page's introduction stands before its types, and is no part of the first one.
            if re.match(r"/\*(?!\*).*\n", comment) and source.startswith("typedef", at):
                items.append(make_prose(comment))
                comment = ""
            items += read_declaration(source[at:end], clean_comment(comment) if comment else "", path, line)
            comment = ""
        at = end
    return [item for item in items if item is not None]


def find_end(source, at, path, line):
    """Behind the semicolon that ends the declaration at this place."""
    depth = 0
    for part in re.compile(r"/\*.*?\*/|[{};]", re.S).finditer(source, at):
        depth += {"{": 1, "}": -1}.get(part[0], 0)
        if part[0] == ";" and depth == 0:
            return part.end()
    raise SystemExit(f"{path}:{line}: a declaration without an end")


def make_prose(comment):
    text = clean_comment(comment)
    if text.startswith("SPDX"):
        return None
    section = re.fullmatch(r"-{3,} (.*?) -{3,}", text)
    return Item("section", text=section[1]) if section else Item("prose", comment=text)


def read_macro(text, comment, line):
    name = re.match(r"#\s*define (\w+)(\([^)]*\))?", text)
    comment = clean_comment(comment) if comment else ""
    if name and name[1] == "TN_STATUS_TABLE":
        rows = [(f"TN_ERR_{row[0]} = {row[1]}", f"{row[2]}. In Python: `{row[3]}`.") for row in STATUS.findall(text)]
        return [Item("status", comment=comment, members=rows, line=line)]
    if not name or HIDDEN_MACROS.fullmatch(name[1]):
        return []
    return [Item("macro", name[1], name[1] + (name[2] or ""), comment, line=line)]


def squeeze(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"\s+", " ", text).strip()


def read_declaration(text, comment, path, line):
    plain = squeeze(text)
    if "TN_STATUS_ENUM" in plain or re.fullmatch(r"struct \w+;", plain):
        return []
    if plain.startswith("enum {"):
        body = text[text.index("{") + 1 : text.rindex("}")]
        return [Item("enum", comment=comment, members=read_members(body, ","), line=line)]
    opened = re.match(r"typedef struct (\w+) \{", plain)
    if opened:
        body = text[text.index("{") + 1 : text.rindex("}")]
        return [Item("struct", opened[1], opened[1], comment, read_members(body, ";"), line)]
    opaque = re.fullmatch(r"typedef struct (\w+) \1;", plain)
    if opaque:
        return [Item("type", opaque[1], opaque[1], comment, line=line)]
    typedef = re.fullmatch(r"typedef (.*?(\w+)(?:\(.*\))?);", plain)
    if typedef:
        return [Item("type", typedef[2], typedef[1], comment, line=line)]
    variable = re.fullmatch(r"static (const \w+ (\w+))(?: __attribute__\(\(unused\)\))? = .*;", plain)
    if variable:
        return [Item("variable", variable[2], variable[1], comment, line=line)]
    function = re.fullmatch(r"TN_API (?:TN_NODISCARD )?(.*?(\w+)\(.*?\))(?: __attribute__.*)?;", plain)
    if function:
        return [Item("function", function[2], function[1], comment, line=line)]
    raise SystemExit(f"{path}:{line}: neither an enum, a struct, a type nor a function: {plain[:60]}")


def read_members(body, separator):
    """The members of a struct or an enum, each with its comment.

    A comment belongs to the member that stands before it on its line; else to the next one.
    """
    members = []
    text = comment = ""
    for part in re.finditer(r"/\*.*?\*/|[^/,;]+|[/,;]", body, re.S):
        if part[0].startswith("/*"):
            said = " ".join(clean_comment(part[0]).split())
            line = body[body.rfind("\n", 0, part.start()) + 1 : part.start()].strip()
            if line and not text.strip() and members:
                members[-1] = (members[-1][0], f"{members[-1][1]} {said}".strip())
            else:
                comment = f"{comment} {said}".strip()
        elif part[0] == separator and text.count("(") == text.count(")"):
            members.append((squeeze(text), comment))
            text = comment = ""
        else:
            text += part[0]
    if text.strip():
        members.append((squeeze(text), comment))
    return members
