# SPDX-License-Identifier: Apache-2.0
"""Read the headers for C++: classes, their public members, functions, constants, each with its comment.

This is no compiler. It reads the C++ that include/tenon is written in: what stands in the namespace
tenon, without tenon::detail, private members, friends, deleted functions, and copies and moves.
"""

import re

from docs_headers import ROOT, clean_comment, squeeze

# In the order in which a reader meets them.
ORDER = ["domain", "tensor", "queue", "object", "sync", "process", "pool", "error"]
SPACE = re.compile(r"\s+|#[^\n]*|//[^\n]*")
LEFT_OUT = re.compile(r"friend |using error::|static_assert|~|.*= delete$|.*\boperator=\(|struct by_id|protected:|(?:explicit )?(\w+)\(\1 &&|"
                      r"(\w+)\(const \2 &|template <> |template <tn_dtype |enum \{|.*[^:]\bdetail::")


class Entry:
    """kind is class, struct, function, member, type or prose; entries are the members of a class."""

    def __init__(self, kind, text="", comment="", entries=()):
        self.kind, self.text, self.comment, self.entries = kind, text, comment, list(entries)


def end_of_braces(source, at):
    """Behind the brace that closes the one at this place."""
    depth = 0
    for part in re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"])*\"|[{}]", re.S).finditer(source, at):
        depth += {"{": 1, "}": -1}.get(part[0], 0)
        if part[0] == "}" and depth == 0:
            return part.end()
    raise SystemExit("a brace without an end: " + source[at : at + 60])


def declaration_at(source, at):
    """The text from here to the `{` or `;` outside of parentheses that ends it, and where that stands."""
    depth = 0
    for part in re.compile(r"/\*.*?\*/|[(){};]", re.S).finditer(source, at):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth == 0 and part[0] in "{;":
            return source[at : part.start()], part.start()
    raise SystemExit("a declaration without an end: " + source[at : at + 60])


def signature(text):
    """A declaration without what only its definition needs."""
    text = squeeze(text)
    # The initializers of a constructor stand behind its parameters.
    depth = 0
    for i, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth == 0 and char == ")" and re.match(r"\)( noexcept)? : ", text[i:]):
            text = text[: i + 1] + (" noexcept" if " noexcept" == text[i + 1 : i + 10] else "")
            break
    return re.sub(r"^(inline |constexpr )+", "", text).removesuffix(" =").strip()


def read_scope(source, is_public=True):
    """The entries of a namespace or a class, of which only the body is given."""
    entries, comment, at = [], "", 0

    def add(entry):
        if is_public and not LEFT_OUT.match(entry.text):
            entries.append(entry)

    while at < len(source):
        blank = SPACE.match(source, at)
        if blank:
            if comment and not comment.startswith("/**") and blank[0].count("\n") > 1:
                add(Entry("prose", "", clean_comment(comment)))
                comment = ""
            at = blank.end()
            continue
        access = re.compile(r"(public|private|protected):").match(source, at)
        if source.startswith("/*", at):
            end = source.index("*/", at) + 2
            comment = source[at:end]
        elif access:
            is_public, end = access[1] == "public", access.end()
        else:
            text, stop = declaration_at(source, at)
            said = clean_comment(comment) if comment.startswith("/**") else ""
            body = source[stop + 1 : end_of_braces(source, stop) - 1] if source[stop] == "{" else ""
            end = end_of_braces(source, stop) if source[stop] == "{" else stop + 1
            end = re.compile(r"[ \n]*;|").match(source, end).end() if body or source[stop] == "{" else end
            aside = re.compile(r" */\*(.*?)\*/").match(source, end)  # what stands behind a member
            if aside and not said:
                said, end = " ".join(squeeze(re.sub(r"\n *\*?", " ", aside[1])).split()), aside.end()
            kind = re.match(r"(?:template <[^{]*> )?(class|struct) ", squeeze(text))
            if kind:
                add(Entry(kind[1], squeeze(text), said, read_scope(body, kind[1] == "struct")))
            else:
                plain = signature(text)
                add(Entry("type" if re.match(r"(template <.*?> )?using ", plain) else "function" if "(" in plain else "member", plain, said))
            comment = ""
        at = end
    return entries


def read_header(path):
    source = path.read_text(encoding="utf-8")
    entries = []
    for found in re.finditer(r"^namespace tenon\n\{\n", source, re.M):
        body = source[found.end() : end_of_braces(source, found.end() - 2) - 1]
        while (inner := re.search(r"namespace detail\n?\s*\{", body)) is not None:
            body = body[: inner.start()] + body[end_of_braces(body, inner.end() - 1) :]
        entries += read_scope(body)
    return entries


def text_of(site, comment, indent):
    pad = " " * indent
    comment = re.sub(r"@return\s+", "Returns ", comment)
    lines = []
    for paragraph in comment.split("\n\n"):
        if paragraph.strip():
            paragraph = paragraph.rstrip().removesuffix(".") + "."
            lines += [pad + line.strip() for line in site.lines(paragraph, 0)] + [""]
    return lines


def entry_lines(site, entry, indent):
    pad = " " * indent
    if entry.kind == "prose":
        return text_of(site, entry.comment, indent)
    directive = {"class": "class", "struct": "struct", "function": "function", "member": "member", "type": "type"}[entry.kind]
    text = re.sub(r"^(template <.*?> )?(class|struct|using) ", lambda found: found[1] or "", entry.text)
    out = [f"{pad}.. cpp:{directive}:: {text}", ""] + text_of(site, entry.comment, indent + 3)
    for member in entry.entries:
        out += entry_lines(site, member, indent + 3)
    return out


def write_cpp(site, path):
    """One page for Sphinx, with the directives of its C++ domain. `site` makes references of names of C."""
    title = "The C++ headers"
    out = [title, "=" * len(title), "", "``<tenon/tenon.hpp>`` includes them all. Everything is in the namespace ``tenon``. "
           "Each class calls functions of :doc:`the C library <c/index>`, whose pages say more: a function that has no text here "
           "does what the function of C with its name does. A call that fails throws :cpp:class:`tenon::error`. "
           ":doc:`/tutorial-cpp` uses most of the classes.", "", ".. cpp:namespace:: tenon", ""]
    known = {path.stem for path in (ROOT / "include" / "tenon").glob("*.hpp")} - {"tenon"}
    if known != set(ORDER):
        raise SystemExit(f"dev/docs_cpp.py lists other headers than there are: {sorted(known ^ set(ORDER))}")
    for stem in ORDER:
        name = f"{stem}.hpp"
        out += [name, "-" * len(name), ""]
        for entry in read_header(ROOT / "include" / "tenon" / name):
            out += entry_lines(site, entry, 0)
    path.write_text("\n".join(out) + "\n", encoding="utf-8")
