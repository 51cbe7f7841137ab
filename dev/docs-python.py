#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the reference of the Python package from its sources and stubs, without importing it.

docs-python.py                check that each name of tenon.__all__ can be described
docs-python.py --site FOLDER  write the pages for Sphinx, with the directives of its Python domain
"""

import ast
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "tenon"
# Of tenon.multiprocessing: what differs from the standard library's class of that name.
CLASSES = {
    "queues.py": ["Queue", "JoinableQueue", "SimpleQueue"],
    "synchronize.py": ["Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Event", "Barrier"],
    "process.py": ["Process"],
    "pool.py": ["Pool", "WorkerDied"],
    "spawn.py": ["ProcessContext", "SpawnContext", "ProcessException", "ProcessExitedException",
                 "ProcessRaisedException", "start_processes", "spawn"],
}
GROUPS = {
    "Where tensors live": ["domain", "Domain", "devices", "Device"],
    "Tensors": ["empty", "zeros", "full", "asarray", "numpy_allocator", "share", "from_dlpack", "from_cuda_array", "Tensor"],
    "Meeting by name": ["Queue", "Message", "Lock", "Event", "Semaphore"],
    "One copy for all processes": ["Store", "StoreEntry", "StoreInfo"],
    "One message to every subscriber": ["Channel", "ChannelInfo"],
    "Weights once a host": ["load", "load_file", "publish", "unload", "Model"],
    "Who holds what": ["inspect", "Report"],
    "Scheduling": ["resources", "resource_id", "secede", "set_options", "Executor", "trace"],
    "Errors": [],
}
# Methods that the C library has under another name.
C_NAMES = {
    "Domain.create": "tn_domain_open", "Domain.join": "tn_domain_open", "Domain.empty": "tn_tensor_create",
    "Domain.zeros": "tn_tensor_create", "Domain.load_handle": "tn_handle_import", "Domain.quota_bytes": "tn_domain_get_info",
    "Tensor.size": "tn_tensor_count", "Tensor.copy_from": "tn_tensor_copy", "Tensor.to": "tn_tensor_to",
}
# What needs no sentence where it is written, and one in the reference.
SAID = {
    "Domain.name": "Empty if the domain is anonymous.",
    "Domain.closed": "Whether this process has left the domain.",
    "Domain.seat": "The number of this process's seat, as errors and the tool show it.",
    "Domain.member": "A number that no other process of the domain ever has.",
    "Tensor.strides": "In elements.",
    "Tensor.itemsize": "Bytes of one element.",
    "Tensor.nbytes": "Bytes of all elements.",
    "Tensor.storage_bytes": "Bytes of the whole storage, of which the tensor may be a part.",
    "Tensor.is_shared": "Whether the storage is in shared memory.",
    "Tensor.is_contiguous": "Whether the elements lie in row-major order without gaps.",
    "Tensor.readonly": "Whether this process may only read the elements.",
    "Tensor.path": "The file of a `file_system` tensor, else None.",
    "Tensor.domain": "The domain that the storage is shared in, or None.",
    "Tensor.T": "The tensor with its axes reversed, as a view.",
    "Tensor.requires_grad": "As of PyTorch; it travels with the tensor.",
    "Tensor.name": "A name that travels with the tensor, or None.",
    "Tensor.axis_names": "Names of the axes, or None.",
    "Tensor.lod": "Levels of detail, as PaddlePaddle has them, or None.",
    "Tensor.tobytes": "A copy of the elements in row-major order.",
    "Tensor.tolist": "Nested lists of the elements; a number if there are no axes.",
    "Tensor.item": "The element of a tensor that has one.",
    "Queue.capacity": "How many messages the queue holds.",
    "Report.name": "The domain's name, or its id if it has none.",
    "Report.live_bytes": "Bytes of all blocks that are in use.",
    "Error.seat": "The seat of the process that died, where that is the error.",
    "WorkerDied.pid": "The process number of the last worker that died of the task.",
    "ProcessContext.pids": "The process numbers of all processes.",
    "ProcessException.pid": "The process number of the process that failed.",
}


class Source:
    """A module's syntax tree, and its text for the comments at the ends of lines."""

    def __init__(self, path):
        self.lines = path.read_text(encoding="utf-8").split("\n")
        self.tree = ast.parse("\n".join(self.lines))
        self.doc = ast.get_docstring(self.tree) or ""
        self.nodes = {node.name: node for node in self.tree.body if hasattr(node, "name")}

    def comment(self, node):
        found = re.search(r"  # ([^\"'\[\]]*(?:\"[^\"]*\")?[^\"']*)$", self.lines[node.end_lineno - 1])
        return found[1].rstrip() if found else ""


def escape(text):
    out = []
    for token in re.split(r"(`[^`]+`)", text):
        if token.startswith("`"):
            out.append(f"`{token}`")
        else:
            out.append(re.sub(r"([\\*|]|_(?!\w))", r"\\\1", token))
    return "".join(out)


def render(doc, indent):
    """A docstring's paragraphs; what it indents is code."""
    out = []
    pad = " " * indent
    was_code = False
    for part in re.split(r"\n\n+(?!    )|(?<!    )\n\n+(?=    (?! *\n))", doc.strip("\n")):
        if not part.strip():
            continue
        is_code, was_code = was_code, part.startswith("    ")
        section = re.match(r"(\w+)\n-{3,}\n", part)
        if section:
            out += render_section(section[1], part[section.end():], pad)
        elif was_code:
            body = textwrap.indent(textwrap.dedent(part), pad + "   ")
            # A blank line in the code does not end it.
            out += [body, ""] if is_code else [f"{pad}.. code-block:: python", "", body, ""]
        else:
            out += [pad + line for line in escape(part).split("\n")] + [""]
    return out


def render_section(title, text, pad):
    """A section of numpydoc: `name : type` lines, each with an indented text below it."""
    out = [f"{pad}**{title}**", ""]
    for head, body in re.findall(r"^(\S.*)\n?((?:^ +.*\n?)*)", text, re.M):
        name, _, kind = head.partition(" : ")
        said = " ".join(body.split())
        words = [f"``{name}``" if kind or title == "Raises" else escape(name), escape(kind), escape(said)]
        out += [f"{pad}- " + ": ".join(word for word in words if word)]
    return out + [""]


def signature(node):
    text = ast.unparse(node.args)
    text = re.sub(r"^(self|cls)(, /)?(, )?", "", text)
    text = re.sub(r"_core\.", "", text).replace("_GivenShape", "int | Sequence[int]").replace("_Timeout", "float | None")
    text = text.replace("_Shape", "tuple[int, ...]").replace("_Where", "str | Domain | None")
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    returns = returns.replace("_core.", "").replace("_Shape", "tuple[int, ...]").replace("_Timeout", "float | None")
    return f"({text})" + re.sub(r"['\"]", "", returns)


def decorators(node):
    return {ast.unparse(decorator) for decorator in node.decorator_list}


def same_elsewhere(owner, name):
    """What is said of a method without a docstring: what the C library or the standard library calls it."""
    if f"{owner}.{name}" in SAID:
        return render(SAID[f"{owner}.{name}"], 0)
    name = C_NAMES.get(f"{owner}.{name}") or f"tn_{owner.lower()}_{name}"
    exported = (ROOT / "src" / "tenon.map").read_text(encoding="utf-8")
    return [f"As :c:func:`{name}`.", ""] if f" {name};" in exported else []


def describe_function(source, node, indent, kind="function", owner=""):
    pad = " " * indent
    marks = decorators(node)
    out = []
    if "property" in marks:
        returns = ast.unparse(node.returns).replace("_Shape", "tuple[int, ...]") if node.returns else ""
        out += [f"{pad}.. py:property:: {node.name}"] + ([f"{pad}   :type: {returns}"] if returns else []) + [""]
    else:
        out += [f"{pad}.. py:{kind}:: {node.name}{signature(node)}"]
        out += [f"{pad}   :{mark}:" for mark in ("classmethod", "staticmethod") if mark in marks] + [""]
    doc = render(ast.get_docstring(node) or source.comment(node), indent + 3)
    return out + (doc or [pad + "   " + line if line else "" for line in same_elsewhere(owner, node.name)])


def parts_with_inherited(source, node):
    """The parts of a class, and those of its private base classes, which have no entry of their own."""
    bases = [source.nodes[ast.unparse(base)] for base in node.bases if ast.unparse(base) in source.nodes]
    return [*node.body, *(part for base in bases if base.name.startswith("_") for part in base.body)]


def describe_class(source, node, is_error=False):
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    init = next((part for part in node.body if getattr(part, "name", "") == "__init__"), None)
    head = signature(init).split(" -> ")[0] if init and not is_error else ""
    out = [f".. py:{'exception' if is_error else 'class'}:: {node.name}{head}", ""]
    out += render(ast.get_docstring(node) or "", 3)
    comment = source.comment(node) if is_error else ""
    if bases and is_error:
        out += render(f"A subclass of {bases}." + (f" {comment}." if comment else ""), 3)
    for part in parts_with_inherited(source, node):
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            if not ({f"{part.name}.setter"} & decorators(part)):
                out += describe_function(source, part, 3, "method", node.name)
        elif isinstance(part, ast.AnnAssign) and not ast.unparse(part.target).startswith("_"):
            kind = ast.unparse(part.annotation).replace("_core.", "")
            out += [f"   .. py:attribute:: {ast.unparse(part.target)}", f"      :type: {kind}", ""]
            said = source.comment(part) or SAID.get(f"{node.name}.{ast.unparse(part.target)}", "")
            out += render(said, 6)
    return out


def heading(title, line="="):
    return [title, line * len(title), ""]


def describe(source, name, is_error=False):
    node = source.nodes[name]
    return (describe_class(source, node, is_error) if isinstance(node, ast.ClassDef)
            else describe_function(source, node, 0))


def module_page(title, module, doc):
    return heading(title) + [f".. py:module:: {module}", ""] + render(doc, 0)


def tenon_page():
    package = Source(PACKAGE / "__init__.py")
    assigned = [node for node in package.tree.body if isinstance(node, ast.Assign)]
    public = next(ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) == "__all__")
    # What a module writes in Python hides what _core has of that name.
    sources = [Source(PACKAGE / "_core.pyi"), *(Source(path) for path in sorted(PACKAGE.glob("_[a-z]*.py"))
                                                if not path.name.startswith("_torch"))]
    found = {name: source for source in sources for name in source.nodes if name in public}
    missing = set(public) - found.keys()
    if missing:
        raise SystemExit(f"python/tenon: nothing describes {', '.join(sorted(missing))}")
    errors = [name for name in found["Error"].nodes
              if name == "Error" or "Error" in [ast.unparse(base) for base in getattr(found["Error"].nodes[name], "bases", [])]]
    groups = {**GROUPS, "Errors": errors}
    lost = set(public) - {name for names in groups.values() for name in names}
    if lost:
        raise SystemExit(f"dev/docs-python.py: in no group: {', '.join(sorted(lost))}")
    out = module_page("tenon", "tenon", package.doc)
    for title, names in groups.items():
        out += heading(title, "-")
        if title == "Errors":
            out += render("Each status of the C library has a class, below `Error` and the built-in class that "
                          "stands beside it. `str()` of an error is the sentence that says what was wrong.", 0)
        for name in names:
            out += describe(found[name], name, name in errors)
    return out


def torch_page():
    source = Source(PACKAGE / "torch.py")
    out = module_page("tenon.torch", "tenon.torch", source.doc)
    for name, node in source.nodes.items():
        if not name.startswith("_"):
            out += describe(source, name)
    return out


def dask_page():
    source = Source(PACKAGE / "dask.py")
    listed = next(node for node in source.tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    out = module_page("tenon.dask", "tenon.dask", source.doc)
    for name in ast.literal_eval(listed.value):
        out += describe(source, name)
    return out


def multiprocessing_page():
    folder = PACKAGE / "multiprocessing"
    package, stub = Source(folder / "__init__.py"), Source(folder / "__init__.pyi")
    out = module_page("tenon.multiprocessing", "tenon.multiprocessing", package.doc)
    out += render("It has every name of the standard library's `multiprocessing`, with the same meaning, and those of "
                  "`torch.multiprocessing`. What is written here is what differs, or what is new.", 0)
    for place, names in CLASSES.items():
        source = Source(folder / place)
        typed = Source(folder / f"{place}i")
        out += heading({"queues": "Queues", "synchronize": "Locks and the like", "process": "Processes",
                        "pool": "Pools", "spawn": "As in torch.multiprocessing"}[place.split(".")[0]], "-")
        about = source.doc if place != "spawn.py" else ""
        out += render(about, 0)
        for name in names:
            home = module_with(folder, source, name)
            if home is None:
                raise SystemExit(f"python/tenon/multiprocessing/{place} has no {name}")
            node = home.nodes[name]
            if isinstance(node, ast.ClassDef):
                out += class_of_multiprocessing(home, typed, node)
            else:
                out += describe(home, name)
    out += heading("Functions", "-")
    for name, node in package.nodes.items():
        if not name.startswith("_") and isinstance(node, ast.FunctionDef):
            node.returns = node.returns or getattr(stub.nodes.get(name), "returns", None)
            out += describe(package, name)
    return out


def module_with(folder, source, name):
    """The source that defines a name of a module: the module's, or that of a private one which it imports; or None."""
    if name in source.nodes:
        return source
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and name in [alias.name for alias in node.names]:
            return Source(folder / f"{node.module}.py")
    return None


def class_of_multiprocessing(source, typed, node):
    """What is typed is in the stub; what is said, in the module."""
    init = next((part for part in node.body if getattr(part, "name", "") == "__init__"), None)
    head = signature(init) if init else ""
    out = [f".. py:class:: {node.name}{head}", ""] + render(ast.get_docstring(node) or "", 3)
    stub = typed.nodes.get(node.name)
    typed_parts = {part.name: part for part in (stub.body if stub else []) if isinstance(part, ast.FunctionDef)}
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            told = typed_parts.get(part.name, part)
            standard = "As in the standard library." if node.name not in CLASSES["spawn.py"] else ""
            doc = ast.get_docstring(part) or SAID.get(f"{node.name}.{part.name}", standard)
            mark = "property" if "property" in decorators(part) else "method"
            text = f"{part.name}{'' if mark == 'property' else signature(told)}"
            out += [f"   .. py:{mark}:: {text}", ""] + render(doc, 6)
    return out


def main():
    pages = {"tenon": tenon_page(), "multiprocessing": multiprocessing_page(), "torch": torch_page(),
             "dask": dask_page()}
    if sys.argv[1:2] == ["--site"]:
        folder = pathlib.Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        index = heading("The Python package") + [
            "It needs Python 3.9 or newer; NumPy and PyTorch are used where they are installed.", "",
            ".. toctree::", "   :maxdepth: 1", "", *[f"   {name}" for name in pages], ""]
        for name, lines in {**pages, "index": index}.items():
            (folder / f"{name}.rst").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
