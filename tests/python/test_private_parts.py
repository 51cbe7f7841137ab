# SPDX-License-Identifier: Apache-2.0
"""The private parts of CPython and of PyTorch that the package relies on: all are there, in one place."""

import ast
import ctypes
import importlib
import multiprocessing
import multiprocessing.pool
import operator
import pathlib
import platform
import threading
import types

import pytest
import tenon
from tenon import _cpython

PACKAGE = pathlib.Path(tenon.__file__).parent
HERE = f"CPython {platform.python_version()}"


def attribute_at(path):
    """What a path of names leads to, from a module on."""
    names = path.split(".")
    for count in range(len(names), 0, -1):
        try:
            value = importlib.import_module(".".join(names[:count]))
        except ImportError:
            continue
        return operator.attrgetter(".".join(names[count:]))(value) if names[count:] else value
    raise AttributeError(path)


def one_result(call):
    pool = multiprocessing.pool.ThreadPool(1)
    try:
        return call(pool)
    finally:
        pool.terminate()


# Where a class does not have an attribute that its objects have: an object.
OBJECTS = {
    "multiprocessing.process.BaseProcess": multiprocessing.Process,
    "multiprocessing.context.DefaultContext": lambda: multiprocessing.context._default_context,
    "multiprocessing.context.BaseContext": lambda: multiprocessing.get_context("spawn"),
    "multiprocessing.forkserver.ForkServer": lambda: attribute_at("multiprocessing.forkserver._forkserver"),
    "multiprocessing.util.Finalize": lambda: attribute_at("multiprocessing.util.Finalize")(None, dict, exitpriority=0),
    "multiprocessing.pool.Pool": lambda: one_result(lambda pool: pool),
    "multiprocessing.pool.ApplyResult": lambda: one_result(lambda pool: pool.apply_async(len, ("",))),
    "multiprocessing.pool.MapResult": lambda: one_result(lambda pool: pool.map_async(len, [""])),
    "multiprocessing.pool.IMapIterator": lambda: one_result(lambda pool: pool.imap(len, [""])),
    "multiprocessing.sharedctypes.SynchronizedBase": lambda: multiprocessing.Value("i"),
    "threading.Barrier": lambda: threading.Barrier(1),
    "threading.Lock": threading.Lock,
    "threading.RLock": threading.RLock,
    "multiprocessing.synchronize.Lock": multiprocessing.Lock,
    "multiprocessing.synchronize.SemLock._semlock": lambda: multiprocessing.Lock()._semlock,
    "importlib.machinery.ModuleSpec": lambda: pathlib.__spec__,
}


def find_missing(owner, name):
    """A sentence, if neither the class nor its objects have the attribute; else None."""
    try:
        if hasattr(attribute_at(owner), name):
            return None
    except AttributeError:
        pass
    made = OBJECTS[owner]() if owner in OBJECTS else None
    return None if made is not None and hasattr(made, name) else f"{HERE} has no {owner}.{name} any more"


@pytest.mark.parametrize("name", sorted(_cpython.PARTS))
def test_each_imported_part_of_cpython_is_there(name):
    part = _cpython.PARTS[name]
    try:
        attribute_at(f"{part.module}.{part.path}" if part.path else part.module)
    except AttributeError:
        pytest.fail(f"{HERE} has no {part.module}.{part.path} any more: tenon needs it: {part.need}")
    assert getattr(_cpython, name) is not None


@pytest.mark.parametrize("part", _cpython.INHERITED, ids=lambda part: f"{part.owner}.{part.name}")
def test_each_inherited_part_of_cpython_is_there(part):
    sentence = find_missing(part.owner, part.name)
    assert sentence is None, f"{sentence}: tenon needs it: {part.need}"


def test_a_part_that_is_missing_is_told_with_its_version(monkeypatch):
    monkeypatch.delattr("multiprocessing.pool.mapstar")
    with pytest.raises(pytest.fail.Exception, match=rf"{HERE} has no multiprocessing.pool.mapstar any more"):
        test_each_imported_part_of_cpython_is_there("mapstar")
    monkeypatch.delattr(threading.Barrier, "_enter")
    assert find_missing("threading.Barrier", "_enter") == f"{HERE} has no threading.Barrier._enter any more"


def test_the_kinds_of_popen_are_told_apart():
    made = types.SimpleNamespace(_popen=attribute_at("multiprocessing.popen_fork.Popen").__new__(_cpython.popen_fork.Popen))
    assert _cpython.is_forked(_cpython.popen_of(made))
    assert not _cpython.is_forked(_cpython.popen_spawn_posix.Popen.__new__(_cpython.popen_spawn_posix.Popen))


# ---- PyTorch


def private_parts_of_torch():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from tenon import _torch_private

    return _torch_private


def test_each_part_of_pytorch_is_there():
    assert private_parts_of_torch().missing_parts() == []


def test_storages_of_pytorch_have_the_words_that_are_exchanged():
    private = private_parts_of_torch()
    private.check_words()  # raises, with the version, if they are not as expected
    assert private.words_at % ctypes.sizeof(ctypes.c_size_t) == 0


def test_a_part_of_pytorch_that_is_missing_is_told(monkeypatch):
    private = private_parts_of_torch()
    import torch

    monkeypatch.setattr(private, "PARTS", [private.Part(["torch.Tensor._no_such", "torch._none"], "a test")])
    assert private.missing_parts() == [
        f"PyTorch {torch.__version__} has no torch.Tensor._no_such and no torch._none: tenon needs it for a test"
    ]


# ---- nowhere else

# Attributes of CPython's and of PyTorch's objects: a class of the package overrides none of them.
ONLY_IN_CPYTHON = """
_actual_context=context.py _at_fork_reinit _children _extra_reducers _forkserver _helper_reraises_exception
_index _initializing _is_owned _items _length _number_left _PoolCache _preload_modules _wrapper
""".split()
ONLY_IN_TORCH = """
_apply _C _cdata _coalesced_ _indices _is_zerotensor _new_with_weak_ptr _rebuild_qtensor _share_fd_cpu_
_typed_storage _utils _values aten
""".split()


def modules_of_the_package():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def attributes(tree):
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_one_module_alone_imports_the_insides_of_multiprocessing():
    found = {
        name
        for name, tree in modules_of_the_package()
        for module in imported_modules(tree)
        if module.startswith("multiprocessing.") or (module == "multiprocessing" and name != "multiprocessing/__init__.py")
    }
    assert found <= {"_cpython.py"}


def test_private_attributes_are_named_in_one_module_alone():
    found = []
    for name, tree in modules_of_the_package():
        used = attributes(tree)
        for word in ONLY_IN_CPYTHON:
            attribute, _, also = word.partition("=")
            own = name == "_cpython.py" or (also and name.endswith((also, "process.py")))
            found += [(name, attribute)] if attribute in used and not own else []
        found += [(name, word) for word in ONLY_IN_TORCH if word in used and name != "_torch_private.py"]
    assert found == []
