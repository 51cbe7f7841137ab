# SPDX-License-Identifier: Apache-2.0
"""`python -m tenon`: the options, and the program, which runs as `python` itself would run it."""

import argparse
import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import types

from . import _core, _cpython, _domain, _unmodified

_USAGE = "python -m tenon [options] (PROGRAM | -m MODULE | -c CODE | -) [arguments of the program]"
_DESCRIPTION = """Run a Python program, which need not be changed, with tenon.multiprocessing in place of
multiprocessing and torch.multiprocessing, in its children too. PROGRAM is a script, or a folder or zip file
with a __main__.py; - reads the program from standard input; CODE is Python code, as after python -c."""
_NO_FILE, _NO_MODULE = 2, 1  # the exit codes of python
_BEFORE_LEAVING = _domain.LAST + 1  # at exit: after the children have ended, before the domain is left


# ---- options


def _parser():
    parser = argparse.ArgumentParser("tenon", usage=_USAGE, description=_DESCRIPTION)
    strategies = sorted(_core.strategies())
    parser.add_argument("--strategy", choices=strategies, help="where shared tensors lie (default: arena)")
    parser.add_argument("--report", action="store_true", help="say at the end, on standard error, what was sent")
    parser.add_argument(
        "--keep", metavar="NAME", action="append", default=[],
        help="let this module, and those below it, go on with the original multiprocessing; may be given again",
    )  # fmt: skip
    return parser


def _split(arguments):
    """The options, and the program with its own arguments."""
    at = 0
    while at < len(arguments) and arguments[at][:1] == "-" and arguments[at] != "-":
        if arguments[at][:2] in ("-m", "-c"):
            break
        at += 2 if arguments[at] in ("--strategy", "--keep") else 1
    return arguments[:at], arguments[at:]


def main(arguments=None):
    """Run the program that the arguments name. It ends as that program ends."""
    own, program = _split(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(own)
    if program[:1] in (["-m"], ["-c"]):
        program[:2] = [program[0] + program[1]] if len(program) > 1 else []
    if not program or program[0] == "-m":
        parser.error("which program? Name a script, a module after -m, or code after -c")
    counters = _unmodified.make_counters() if options.report else None
    _unmodified.replace(options.strategy, options.keep, counters)
    _say(
        "tenon: tenon.multiprocessing is in place of multiprocessing and torch.multiprocessing, "
        f"strategy {_core.get_strategy()}"
    )
    if options.report:
        _cpython.Finalize(None, _report, exitpriority=_BEFORE_LEAVING)
    sys.excepthook = _show
    run = {"-m": _run_module, "-c": _run_code}.get(program[0][:2])
    if run is None:
        _run_path(program[0], program[1:])
    else:
        run(program[0][2:], program[1:])


def _say(message):
    print(message, file=sys.stderr)


def _fail(message, code):
    _say(f"tenon: {message}")
    sys.exit(code)


# ---- the program


def _begin(name, spec=None, **more):
    """A new module __main__, in which the program runs."""
    module = types.ModuleType("__main__")
    if "__annotations__" in vars(sys.modules["__main__"]):
        module.__annotations__ = {}  # the __main__ of a program has it, in Python before 3.14
    module.__dict__.update(__builtins__=builtins, __spec__=spec, __package__=None, **more)
    if spec is not None:
        module.__dict__.update(__package__=spec.parent, __loader__=spec.loader)
        if spec.has_location:
            module.__dict__.update(__file__=spec.origin, __cached__=spec.cached)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    sys.argv[0] = name
    return vars(module)


def _has_own_place():
    """Whether python has put a folder at the start of sys.path for `-m tenon`."""
    return not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def _run_code(code, arguments):
    sys.argv[:] = ["-c", *arguments]
    if _has_own_place():
        sys.path[0] = ""
    run = compile(code + "\n", "<string>", "exec")
    exec(run, _begin("-c", __loader__=importlib.machinery.BuiltinImporter))  # noqa: S102


def _run_path(path, arguments):
    sys.argv[:] = [path, *arguments]
    if path == "-":
        if _has_own_place():
            sys.path[0] = ""
        code = compile(sys.stdin.buffer.read(), "<stdin>", "exec")
        exec(code, _begin("-"))  # noqa: S102
        return
    place = os.path.join(os.getcwd(), path)  # as python has it: a `./` stays
    importer = pkgutil.get_importer(place)
    if importer is not None:  # a folder or a zip file
        sys.path[: _has_own_place()] = [place]
        spec = importer.find_spec("__main__")
        if spec is None:
            _fail(f"no __main__.py in {place!r}", _NO_MODULE)
        exec(spec.loader.get_code("__main__"), _begin(path, spec))  # noqa: S102
        return
    try:
        with io.open_code(place) as file:
            code = pkgutil.read_code(file)
            if code is None:
                file.seek(0)
                source = file.read()
    except OSError as error:
        _fail(f"cannot open {place!r}: {error.strerror}", _NO_FILE)
    if _has_own_place():
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    if code is None:
        code = compile(source, place, "exec")
    loader = importlib.machinery.SourceFileLoader("__main__", place)
    exec(code, _begin(path, __file__=place, __cached__=None, __loader__=loader))  # noqa: S102


def _run_module(name, arguments):
    sys.argv[:] = ["-m", *arguments]  # while the packages that it lies in are imported
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name, spec = f"{name}.__main__", _find(f"{name}.__main__")
        if spec is None:
            _fail(f"there is no module {name}, which python -m would run for the package", _NO_MODULE)
    if spec is None:
        _fail(f"there is no module {name}", _NO_MODULE)
    code = spec.loader.get_code(name) if hasattr(spec.loader, "get_code") else None
    if code is None:
        _fail(f"the module {name} has no code that Python could run", _NO_MODULE)
    exec(code, _begin(spec.origin, spec))  # noqa: S102


def _find(name):
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a package that imports something that is not there
        return None


# ---- errors


def _show(kind, error, trace):
    """sys.excepthook: leave out the frames that run the program."""
    while trace is not None and _runs_programs(trace.tb_frame):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _runs_programs(frame):
    folder, name = os.path.split(frame.f_code.co_filename)
    return frame.f_globals.get("__name__") == "runpy" or (
        folder == os.path.dirname(__file__) and name in ("__main__.py", "_run.py")
    )


# ---- the report


def _amount(size_bytes):
    for unit in ("bytes", "kB", "MB"):
        if size_bytes < 1000:
            break
        size_bytes /= 1000
    else:
        unit = "GB"
    return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"


def _report():
    shared_count, shared_bytes, copied_count, copied_bytes = _core.traffic()
    rows = (
        ("sent without a copy", shared_count, shared_bytes),
        ("copied once and sent", copied_count, copied_bytes),
        ("not pickled, by both", shared_count + copied_count, shared_bytes + copied_bytes),
    )
    _say("tenon: arrays and tensors of this process and of the children that multiprocessing started")
    for what, count, size_bytes in rows:
        _say(f"  {what:<22}{count:>10}  {_amount(size_bytes):>12}")
