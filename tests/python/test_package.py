# SPDX-License-Identifier: Apache-2.0
"""The package's face: making tensors, inspect(), the examples, another copy of the library."""

import inspect
import os
import pathlib
import re
import struct
import subprocess
import sys
import sysconfig
import types

import numpy as np
import pytest

import tenon
import tenon.multiprocessing as mp

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_tensors_are_made_in_the_domain_of_the_process():
    assert tenon.empty((2, 3)).shape == (2, 3)
    zeros = tenon.zeros(4, np.int16)
    assert zeros.is_shared and zeros.tolist() == [0] * 4 and zeros.domain is tenon.domain()
    assert tenon.full((2,), 1.5).tolist() == [1.5, 1.5]
    assert tenon.full((2,), 3).dtype == "int64"
    assert tenon.full((2,), 3, "uint8").tolist() == [3, 3]


@pytest.mark.parametrize("source", [[1, 2, 3], (1.5, 2), [[True], [False]], 7, range(4)])
def test_asarray_takes_numbers(source):
    assert tenon.asarray(source).tolist() == np.asarray(source).tolist()


def test_asarray_brings_a_tensor_into_the_domain_that_is_named(domain):
    shared = tenon.asarray([1.0, 2.0])
    assert tenon.asarray(shared) is shared
    brought = tenon.asarray(shared, domain=domain)
    assert brought.domain is domain and brought.tolist() == [1.0, 2.0]
    assert tenon.asarray(brought, domain=domain) is brought
    assert tenon.asarray(brought) is brought


def test_asarray_copies_what_is_private_and_nothing_else():
    private = np.arange(5)
    shared = tenon.asarray(private)
    assert shared.tolist() == private.tolist()
    assert tenon.asarray(shared) is shared
    array = np.asarray(shared)
    assert tenon.asarray(array).address == shared.address
    assert tenon.asarray(array[2:]).address == shared.address + 16
    assert tenon.asarray(private, "float32").dtype == "float32"


def test_asarray_keeps_the_elements_of_any_view():
    grid = np.arange(12).reshape(3, 4)
    for view in (grid.T, grid[::-1], grid[:, 1:3], np.asarray(tenon.asarray(grid))[::2, ::-1]):
        assert tenon.asarray(view).tolist() == view.tolist()


def test_share_refuses_what_it_cannot_move():
    with pytest.raises(TypeError, match="asarray"):
        tenon.share(np.ones(3))


def test_what_cannot_be_carried_is_refused_by_name():
    for array, word in (
        (np.array([object()]), "object"),
        (np.array(["2026-01-01"], "datetime64[D]"), "datetime64"),
        (np.zeros(2, "i4,f4"), "structured"),
    ):
        with pytest.raises(TypeError, match=f"(?i){word}"):
            tenon.asarray(array)


def test_inspect_tells_which_process_holds_a_block():
    kept = tenon.zeros((1000, 1000), "float64")
    report = tenon.inspect()
    block = next(b for b in report.blocks if b["bytes"] == kept.nbytes and b["shape"] == (1000, 1000))
    assert block["dtype"] == "float64"
    assert [holder["pid"] for holder in block["holders"]] == [os.getpid()]
    assert "float64 (1000, 1000)" in repr(report) and f"[{os.getpid()}]" in repr(report)
    assert "<table>" in report._repr_html_() and report.live_bytes >= kept.nbytes
    assert tenon.inspect(report.name).stat["domain"]["name"] == tenon.domain().name
    with pytest.raises(FileNotFoundError):
        tenon.inspect("no-such-domain")


def test_the_example_of_the_readme_prints_what_the_readme_says():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "frames.py"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "the child sent (1080, 1920, 3) 42.0\n" and done.stderr == ""


def test_a_handle_is_refused_by_a_process_that_is_not_in_the_domain():
    import pickle

    domain = tenon.Domain.create()  # has no name: nobody can join it
    tensor = domain.zeros((3,), "float32")
    handle = tensor.to_handle()
    with pytest.raises(PermissionError):
        tenon.domain().load_handle(handle)
    named = pickle.dumps(tenon.zeros(3)).replace(tenon.domain().name.encode(), b"x" * len(tenon.domain().name))
    with pytest.raises(FileNotFoundError, match="xxx"):
        pickle.loads(named)
    del tensor
    domain.close()


_OTHER_COPY = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
import numpy, tenon, tenon.multiprocessing as mp
made = ctypes.c_void_p()
library.tn_domain_open.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p)]
assert library.tn_domain_open(tenon.domain().name.encode(), None, 1, ctypes.byref(made)) == 0
library.tn_version.restype = ctypes.c_char_p
assert library.tn_version() == tenon.__version__.encode()
queue = mp.get_context("fork").Queue()
process = mp.get_context("fork").Process(target=queue.put, args=(numpy.ones(1000),))
process.start()
assert queue.get().sum() == 1000
process.join()
assert process.exitcode == 0
library.tn_domain_close.argtypes = [ctypes.c_void_p]
library.tn_domain_close(made)
assert tenon.domain().audit() == []
print("well")
"""


def test_a_second_copy_of_the_library_is_a_member_of_its_own():
    library = os.environ.get("TENON_LIBRARY", "")
    if not os.path.exists(library):
        pytest.skip("TENON_LIBRARY names no shared library")
    done = subprocess.run(
        [sys.executable, "-c", _OTHER_COPY, library], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr


def test_the_command_of_the_package_is_the_tool():
    program = pathlib.Path(tenon.__file__).with_name("bin") / "tenon"
    if not program.exists():
        pytest.skip("built without the command")
    done = subprocess.run(
        [sys.executable, "-c", "from tenon._command import main; main()", "ls"],
        capture_output=True, text=True, check=True, timeout=60,
        env=dict(os.environ, PYTHONPATH=os.environ.get("PYTHONPATH", "")),
    )  # fmt: skip
    assert tenon.domain().name in done.stdout


def test_objects_may_be_collected_in_any_order_and_any_thread():
    import gc
    import threading

    domain = tenon.Domain.create()
    queue = tenon._core.Queue.create(domain)
    queue.put(np.arange(10))
    array = queue.get()
    tensor = domain.zeros((5,), "float32")
    view = np.asarray(tensor)[1:]
    domain.close()
    held = [queue, tensor]
    del queue, tensor, domain
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert array.sum() == 45 and view.sum() == 0  # mapped as long as it is looked at


def test_a_process_that_ends_leaves_in_good_order():
    with mp.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, ([1, 2],)) == 2
    tenon.domain().reap()  # its workers were terminated
    assert tenon.domain().audit() == []


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
if "first" in sys.argv:
    import tenon
one = interpreters.create()
told = '''
try:
    import tenon
    print("imported")
except ImportError as error:
    print("refused:", error)
'''
failure = interpreters.run_string(one, told)
interpreters.destroy(one)
import tenon
from tenon import _core
queue = _core.Queue.create(tenon.domain())
queue.put({"a": [1]})
assert queue.get() == {"a": [1]}
try:
    queue.get(0)
except _core.TimedOut:
    print("main goes on", failure or "")
"""


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_subinterpreter_is_refused_and_the_main_one_goes_on(order):
    done = subprocess.run([sys.executable, "-c", SUBINTERPRETER, order], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("refused:") and "subinterpreter" in lines[0]
    assert lines[1].strip() == "main goes on"


def test_the_extension_may_be_imported_twice():
    code = (
        "import sys; from tenon import _core as one; del sys.modules['tenon._core']; import importlib;"
        "two = importlib.import_module('tenon._core');"
        "assert two.Error is one.Error and two.Queue is one.Queue and two.__name__ == 'tenon._core'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def backend(monkeypatch):
    """What pip calls to build the package, over a meson-python that only says that it was called."""
    hooks = types.ModuleType("mesonpy")
    for name in ("get_requires_for_build_", "build_"):
        for what in ("sdist", "wheel", "editable"):
            setattr(hooks, name + what, lambda *arguments, **named: "called")
    monkeypatch.setitem(sys.modules, "mesonpy", hooks)
    monkeypatch.syspath_prepend(str(ROOT / "python" / "backend"))
    monkeypatch.delitem(sys.modules, "tenon_backend", raising=False)
    import tenon_backend

    yield tenon_backend
    del sys.modules["tenon_backend"]


def test_a_build_names_all_that_the_system_lacks_at_once(backend, monkeypatch, tmp_path):
    assert backend.build_wheel("folder") == "called"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
    monkeypatch.setattr(backend, "INCLUDE", tmp_path)
    for hook in (backend.get_requires_for_build_wheel, backend.build_wheel, backend.build_editable):
        with pytest.raises(SystemExit) as ended:
            hook("folder")
        assert "apt-get install gcc libc6-dev python3-dev pkg-config libjansson-dev" in str(ended.value)
        assert str(tmp_path / "include" / "Python.h") in str(ended.value)


def test_little_of_the_extension_is_thread_local():
    """The loader has 1 KiB or so for libraries that PyTorch's are loaded before."""
    elf = pathlib.Path(tenon._core.__file__).read_bytes()
    headers, count = struct.unpack_from("<Q", elf, 32)[0], struct.unpack_from("<H", elf, 56)[0]
    places = [headers + 56 * number for number in range(count)]
    sizes = [struct.unpack_from("<Q", elf, at + 40)[0] for at in places if elf[at] == 7]  # PT_TLS
    assert sum(sizes) <= 1024


def test_the_classes_of_errors_are_those_of_the_header():
    rows = re.findall(r"X\((\w+), (-\d+), \"[^\"]*\",[\s\\]+(\w+)\)", (ROOT / "include/tenon/status.h").read_text())
    classes = [kind for kind in vars(tenon).values() if isinstance(kind, type) and issubclass(kind, tenon.Error)]
    assert len(rows) == len(classes) - 1  # Error itself
    for name, _, builtin in rows:
        words = name.title().replace("_", "")
        found = [kind for kind in classes if kind.__name__ in (words, words + "Failed", words + "Mismatch")]
        assert len(found) == 1 and found[0].__bases__[0].__name__ == builtin, name


def test_inspect_shows_the_holder_of_a_lock_and_block_numbers():
    lock = mp.Lock()
    with lock:
        report = tenon.inspect()
        assert os.getpid() in [entry["owner_pid"] for entry in report.objects]
    assert os.getpid() not in [entry["owner_pid"] for entry in tenon.inspect().objects]
    kept = tenon.zeros(5, "uint8")
    report = tenon.inspect()
    assert all(f"{block['block']:08x}" in repr(report) for block in report.blocks[:20])
    assert kept.nbytes == 5


def test_help_and_inspect_know_the_arguments_of_every_function():
    from tenon import _core

    things = [_core, *(kind for kind in vars(_core).values() if isinstance(kind, type) and kind.__module__.startswith("tenon") and not issubclass(kind, BaseException))]
    seen = 0
    for thing in things:
        for name, member in vars(thing).items():
            if name.startswith("_") or isinstance(member, type) or not callable(getattr(thing, name)):
                continue
            inspect.signature(getattr(thing, name))
            seen += 1
    assert seen > 80
    assert str(inspect.signature(tenon.Domain.join)) == "(name, /)"
    assert str(inspect.signature(tenon.Tensor.to_handle)).startswith("(self, /, uses=1, lifetime=")


IMPORTS = """
import sys
import {}
import {}.queues
print(*sys.modules)
"""


def test_import_takes_few_modules_more_than_the_standard_librarys():
    peers, own = (
        {
            name.partition(".")[0]
            for name in subprocess.check_output(
                [sys.executable, "-S", "-c", IMPORTS.format(package, package)], text=True
            ).split()
        }
        for package in ("multiprocessing", "tenon.multiprocessing")
    )
    assert own - peers <= {"tenon", "runpy", "pkgutil", "importlib", "__future__"}


def test_what_starts_processes_together_is_imported_when_asked_for():
    program = IMPORTS.format("tenon.multiprocessing", "tenon.multiprocessing")
    program += "import tenon.multiprocessing as mp; mp.start_processes; print('|', *sys.modules)"
    before, after = subprocess.check_output([sys.executable, "-c", program], text=True).split("|")
    assert "tenon.multiprocessing.spawn" not in before.split()
    assert "tenon.multiprocessing.spawn" in after.split()


def test_names_that_come_late_are_there():
    for name in tenon.__all__:
        assert getattr(tenon, name) is getattr(tenon, name)
    assert {"Queue", "Report", "zeros"} <= set(dir(tenon))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tenon.nothing


def test_errors_are_made_again_as_tblib_does():
    """By __new__() of the class, which must be that of the built-in exception with the memory of its objects."""
    kinds = [each for each in vars(tenon).values() if isinstance(each, type) and issubclass(each, tenon.Error)]
    assert len(kinds) > 15
    for kind in kinds:
        assert isinstance(kind.__new__(kind, "text"), kind)
