#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the reference of the C library from include/tenon and docs/examples, and that of the C++ headers.

docs-reference.py                check that each function of src/tenon.map has a comment and an example
docs-reference.py --site FOLDER  write one page a header for Sphinx, with the directives of its C domain,
                                 and beside FOLDER the page of the headers for C++
docs-reference.py --man FOLDER   write one manual page a header, tenon_queue.3 and so on
docs-reference.py --man-list     print the names of those pages
"""

import pathlib
import re
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from docs_cpp import write_cpp  # noqa: E402
from docs_headers import ROOT, read_headers  # noqa: E402

TITLES = {
    "attribute": "what frameworks know of a tensor",
    "deadline": "when a wait ends",
    "device": "the host, and cards with memory of their own",
    "domain": "the processes that share, with their memory",
    "handle": "tensors as plain bytes",
    "inspect": "who holds what, and the audit",
    "object": "what queues, locks and the like have in common",
    "pool": "worker processes with leased jobs",
    "process": "child processes that are members",
    "queue": "bounded queues of messages",
    "sched": "tasks that run when their resources are free",
    "sched_data": "what tasks read and write, and where it is",
    "share": "strategies, write-once arenas, and tensors beyond the domain",
    "status": "errors, the log, and interrupts",
    "store": "a map from keys to messages",
    "channel": "each message goes to every subscriber",
    "sync": "events, semaphores, locks, conditions, barriers",
    "tensor": "typed, strided views of shared memory",
    "version": "versions, and structs of options",
}
# In the order in which a reader meets them.
ORDER = ["domain", "tensor", "queue", "channel", "store", "object", "sync", "process", "pool", "sched", "sched_data", "handle", "share", "attribute",
         "device", "status", "deadline", "inspect", "version"]
LABEL = re.compile(r"(?:^|(?<=\s))(Threads|Blocks|Fork|Crash): ", re.M)


# ---- examples

def read_examples(stem):
    """The part of a header's program for each function that it shows, by the function's name."""
    path = ROOT / "docs" / "examples" / f"{stem}.c"
    source = path.read_text(encoding="utf-8")
    shown = {}
    for names, part in re.findall(r"^ */\* show: ([\w\s]+?) \*/\n(.*?)^ */\* end \*/$", source, re.M | re.S):
        for name in names.split():
            if not re.search(rf"\b{name}\(", part):
                raise SystemExit(f"docs/examples/{stem}.c: what is shown for {name} does not call it")
            shown[name] = textwrap.dedent(part).rstrip()
    return shown


def first_with(shown, name):
    """The function at which an example that serves several of them is printed."""
    return next(other for other in shown if shown[other] == shown[name])


def check(headers):
    exported = set(re.findall(r"^\s+(tn_\w+);", (ROOT / "src" / "tenon.map").read_text(encoding="utf-8"), re.M))
    declared = set()
    problems = []
    for header in headers:
        shown = read_examples(header.stem)
        names = {function.name for function in header.functions}
        declared |= names
        for name in sorted(shown.keys() - names):
            problems.append(f"docs/examples/{header.stem}.c shows {name}, which {header.path.name} does not declare")
        for function in header.functions:
            if function.name not in shown:
                problems.append(f"docs/examples/{header.stem}.c shows no example of {function.name}()")
            if not function.comment:
                problems.append(f"{header.path.name}:{function.line}: {function.name}() has no comment")
    problems += [f"no header declares {name}()" for name in sorted(exported - declared)]
    problems += [f"src/tenon.map lacks {name}" for name in sorted(declared - exported)]
    return problems


# ---- comments

def split_comment(text):
    """Split a comment into (kind, name, text): text, code, param, return or label, in their order."""
    parts = []
    for chunk in re.split(r"\n(?=@)|\n\n", text):
        tag = re.match(r"@(param|return) *", chunk)
        if tag and tag[1] == "param":
            name, _, rest = re.match(r"((?:\w+, )*\w+)(\s+)(.*)", chunk[tag.end() :], re.S).groups()
            parts += split_labels(rest, ["param", name])
        elif tag:
            parts += split_labels(chunk[tag.end() :], ["return", ""])
        elif parts and parts[-1][0] in ("param", "return") and chunk.startswith("  "):
            parts[-1][2] += "\n" + chunk
        elif chunk.startswith("    "):
            if parts and parts[-1][0] == "code":
                parts[-1][2] += "\n\n" + chunk
            else:
                parts.append(["code", "", chunk])
        else:
            parts += split_labels(chunk, ["text", ""])
    return parts


def split_labels(chunk, kind):
    """A paragraph of this kind and name, and what begins with Threads:, Blocks:, Fork: or Crash: in it."""
    pieces = LABEL.split(chunk)
    parts = [[*kind, pieces[0].rstrip()]] if pieces[0].strip() else []
    for label, text in zip(pieces[1::2], pieces[2::2]):
        parts.append(["label", label, " ".join(text.split())])
    # What the return comment holds in the middle ("@return 0, or ... @param") was split before.
    return [part for part in parts if part[2]]


def split_list(text):
    """Split a text into (lead, [(name, cause)]): rows of names, a gap, and a cause.

    The rows stand below each other as a table does, or begin with TN_ERR_ in lines of their own.
    """
    lead, rows = [], []
    indent = None
    for line in text.split("\n"):
        row = re.match(r"( *)([A-Z][A-Z_]{2,}(?:, [A-Z][A-Z_]+)*)(?: {2,}(\S.*)|$)", line)
        plain = re.match(r"( *)(TN_ERR_\w+.*)", line)
        if row and (row[3] or rows) and (indent is None or len(row[1]) == indent):
            indent = len(row[1])
            rows.append([row[2], row[3] or ""])
        elif plain and rows and len(plain[1]) == indent and not (rows[-1][1] + rows[-1][0]).rstrip().endswith(","):
            rows.append(["", plain[2]])
        elif rows and (not line.strip() or len(line) - len(line.lstrip()) > indent or not rows[-1][1]
                       or rows[-1][1].endswith(",")):
            rows[-1][1] = f"{rows[-1][1]} {line.strip()}".strip()
        elif rows:
            rows.append(["", line.strip()])
        else:
            lead.append(line.strip())
    return " ".join(" ".join(lead).split()), rows


def summarize(comment):
    """The first sentence of a comment, without what Sphinx would take for markup."""
    first = re.split(r"\n\n|\n@|(?<!\b[A-Z])(?<!\.)\.\s", comment.strip() + "\n\n", maxsplit=1)[0]
    first = re.sub(r"^@(return|param \w+) *", "", " ".join(first.split()))
    return LABEL.split(first)[0].rstrip(". ") + "."


# ---- the pages of the site

class Site:
    """Text for Sphinx: names of the library become references."""

    def __init__(self, headers):
        self.roles = {name: role for header in headers for name, role in header.names()}

    def refer(self, text):
        out = ""
        for token in re.split(r"(`[^`]+`|docs/[\w/-]+\.md|(?<!\w)\*\w+\*|\$?\b[A-Za-z_]\w*(?:\(\)|\*)?|\s+)", text):
            marked = self.mark(token)
            # Markup begins behind a space and ends before one, or at a backslash with a space.
            if marked != token and marked[0] in ":`" and re.search(r"[\w/=]$", out):
                out += "\\ "
            elif re.search(r"(?<!`)`{1,2}$", out) and re.match(r"[\w=\[(<|]", token):
                out += "\\ "
            out += marked
        return out

    def mark(self, token):
        name = token.removesuffix("()")
        if re.fullmatch(r"docs/[\w/-]+\.md", token):
            return f":doc:`/{token[5:-3]}`"
        role = self.roles.get(name.strip("`"))
        if role and (role == "func") == (token != name):
            return f":c:{role}:`{name}`"
        if token.startswith("`"):
            role = self.roles.get(token.strip("`()"))
            return f":c:{role}:`{token.strip('`')}`" if role else f"`{token}`"
        if re.fullmatch(r"\$?[A-Z]+_\w*\*?|\w+\(\)", token):
            return f"``{token}``"
        return token if re.fullmatch(r"\*\w+\*", token) else re.sub(r"([\\*`|]|_(?!\w))", r"\\\1", token)

    def lines(self, text, indent):
        pad = " " * indent
        flat = " ".join(text.split())
        return [pad + line for line in textwrap.wrap(self.refer(flat), 110 - indent, break_long_words=False,
                                                     break_on_hyphens=False)] or [""]

    def block(self, text, indent):
        """A paragraph, or a paragraph and a list."""
        lead, rows = split_list(text)
        out = self.lines(lead, indent) + [""] if lead else []
        for name, cause in rows:
            row = f"{name}: {cause}" if name and cause else name or cause
            first, *more = self.lines(row, 0)
            out += [" " * indent + "* " + first, *(" " * (indent + 2) + line for line in more)]
        return out + [""] if rows else out

    def comment(self, comment, indent):
        out, fields = [], []
        for kind, name, text in split_comment(comment):
            pad = " " * indent
            if kind == "text":
                out += self.block(text, indent)
            elif kind == "code":
                out += [f"{pad}.. code-block:: c", ""]
                out += [f"{pad}   {line}".rstrip() for line in textwrap.dedent(text).split("\n")] + [""]
            elif kind == "param":
                for one in name.split(", "):
                    fields += [f"{pad}:param {one}:"] + self.block(text, indent + 4)
            elif kind == "return":
                fields += [f"{pad}:returns:"] + self.block(text, indent + 4)
            else:
                fields += [f"{pad}:{name}:"] + self.lines(text, indent + 4) + [""]
        return out + fields

    def page(self, header):
        shown = read_examples(header.stem)
        title = f"{header.stem}.h: {TITLES[header.stem]}"
        out = [title, "=" * len(title), "", ".. code-block:: c", "", f"   #include <tenon/{header.path.name}>", ""]
        if header.functions:
            out += [".. list-table::", "   :class: summary", ""]
            for function in header.functions:
                out += [f"   * - :c:func:`{function.name}`", *self.first_line(function)]
            out.append("")
        for item in header.items:
            out += self.item(item, shown)
        return "\n".join(out) + "\n"

    def first_line(self, function):
        line = self.refer(summarize(function.comment))
        return [f"     - {line}"]

    def item(self, item, shown):
        if item.kind == "section":
            title = item.text[0].upper() + item.text[1:]
            return [title, "-" * len(title), ""]
        if item.kind == "prose":
            return self.comment(item.comment, 0)
        if item.kind in ("enum", "status"):
            out = self.comment(item.comment, 0)
            for text, comment in item.members:
                out += [f".. c:enumerator:: {text}", ""] + (self.lines(comment, 3) + [""] if comment else [])
            return out
        directive = {"function": "function", "struct": "struct", "type": "type", "macro": "macro", "variable": "var"}
        out = [f".. c:{directive[item.kind]}:: {item.text}", ""]
        out += self.comment(item.comment, 3)
        for text, comment in item.members:
            out += [f"   .. c:member:: {text}", ""] + (self.lines(comment, 6) + [""] if comment else [])
        if item.kind == "function" and item.name in shown:
            first = first_with(shown, item.name)
            if first != item.name:
                return out + [f"   An example stands at :c:func:`{first}`.", ""]
            out += ["   .. code-block:: c", "      :class: example", ""]
            out += [f"      {line}".rstrip() for line in shown[item.name].split("\n")] + [""]
        return out


def write_site(headers, folder):
    site = Site(headers)
    folder.mkdir(parents=True, exist_ok=True)
    for header in headers:
        (folder / f"{header.stem}.rst").write_text(site.page(header), encoding="utf-8")
    title = "The C library"
    out = [title, "=" * len(title), "", "Each header has a page; ``<tenon/tenon.h>`` includes them all. ",
           "The examples are parts of programs that the tests compile and run: ``docs/examples``.", "",
           "Functions return 0 or a count, or a negative ``TN_ERR_*``; :c:func:`tn_error_detail` says more.",
           "The lines at the end of a function's text say: *Threads*, which threads may call it;",
           "*Blocks*, how long it may take; *Fork*, whether a forked child may call it; *Crash*, what others see if",
           "the caller dies inside of it.", "", ".. toctree::", "   :maxdepth: 1", ""]
    out += [f"   {stem}" for stem in ORDER]
    (folder / "index.rst").write_text("\n".join(out) + "\n", encoding="utf-8")
    write_cpp(site, folder.parent / "cpp.rst")


# ---- manual pages

def man_text(text):
    flat = " ".join(text.replace("`", "").split())
    flat = flat.replace("\\", "\\e").replace("-", "\\-")
    flat = re.sub(r"(?<!\w)\*(\w+)\*", r"\\fI\1\\fP", re.sub(r"\b(tn_\w+)\(\)", r"\\fB\1\\fP()", flat))
    return ("\\&" if flat[:1] in ".'" else "") + flat


def man_code(text):
    lines = [line.replace("\\", "\\e").replace("-", "\\-") for line in text.split("\n")]
    return [".PP", ".in +4n", ".nf", *["\\&" + line if line[:1] in (".", "'") else line for line in lines], ".fi", ".in"]


def man_comment(comment):
    out = []
    for kind, name, text in split_comment(comment):
        if kind == "code":
            out += man_code(textwrap.dedent(text))
            continue
        lead, rows = split_list(text)
        head = {"param": name, "return": "Returns", "label": name}.get(kind)
        if head:
            out += [".TP", f".I {head}", man_text(lead) or "one of:"]
        elif lead:
            out += [".PP", man_text(lead)]
        if rows:
            out.append(".RS")
            for row, cause in rows:
                out += [".TP", f".B {row}", man_text(cause) or "\\&"] if row else [".PP", man_text(cause)]
            out.append(".RE")
    return out


def man_page(header, version):
    shown = read_examples(header.stem)
    out = [f'.TH tenon_{header.stem} 3 "" "tenon {version}"', ".nh", ".ad l", ".SH NAME"]
    names = [function.name for function in header.functions]
    out += [f"{', '.join([f'tenon_{header.stem}', *names])} \\- {TITLES[header.stem]}", ".SH SYNOPSIS", ".nf",
            f"#include <tenon/{header.path.name}>", ".PP"]
    for function in header.functions:
        # Lines break between parameters.
        text = function.text.replace(" ", "\0").replace(",\0", ", ") + ";"
        lines = [line.replace("\0", " ") for line in textwrap.wrap(text, 62, break_on_hyphens=False)]
        out += [man_text(lines[0]), *["        " + man_text(line) for line in lines[1:]]]
    out += [".fi", ".PP", "Link with \\fI\\-ltenon\\fP.", ".SH DESCRIPTION"]
    for item in header.items:
        if item.kind == "section":
            out += [f".SH {item.text.upper()}"]
            continue
        if item.kind == "function":
            out += [f'.SS "{man_text(item.name)}()"']
        elif item.kind in ("struct", "type"):
            out += [f'.SS "{man_text(item.text if item.kind == "type" else "struct " + item.name)}"']
        out += man_comment(item.comment)
        for text, comment in item.members:
            out += [".TP", f".B {man_text(text)}", man_text(comment)] if comment else [".PP", f".B {man_text(text)}"]
        if item.kind == "macro" or item.kind == "variable":
            out += [".PP", f".B {man_text(item.text)}"]
        if item.name in shown:
            first = first_with(shown, item.name)
            out += man_code(shown[first]) if first == item.name else [".PP", f"An example stands at \\fB{first}\\fP()."]
    out += [".SH SEE ALSO"]
    others = [f".BR tenon_{stem} (3)" for stem in ORDER if stem != header.stem]
    out += [line + "," for line in others] + [".BR tenon (1),", ".BR tenond (8)"]
    return "\n".join(out) + "\n"


def write_man(headers, folder):
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    folder.mkdir(parents=True, exist_ok=True)
    for header in headers:
        (folder / f"tenon_{header.stem}.3").write_text(man_page(header, version), encoding="utf-8")


def main():
    headers = read_headers()
    if sys.argv[1:] == ["--man-list"]:
        print("\n".join(f"tenon_{header.stem}.3" for header in headers))
    elif sys.argv[1:2] == ["--man"]:
        write_man(headers, pathlib.Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--site"]:
        write_site(headers, pathlib.Path(sys.argv[2]))
    problems = check(headers) if len(sys.argv) == 1 else []
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
