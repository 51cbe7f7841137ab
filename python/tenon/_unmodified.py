# SPDX-License-Identifier: Apache-2.0
"""tenon.multiprocessing in place of multiprocessing and torch.multiprocessing, for a program that does not know it.

replace() gives the modules of multiprocessing and torch.multiprocessing another class, which looks at
who asks for an attribute. A program that asks for a public name of tenon.multiprocessing gets the one
of tenon.multiprocessing. Every other name, and every name for the modules in KEPT, is that of the
module itself. The modules themselves are not changed, so the code in them goes on with its own names.

Forked children inherit this. Other children do the same before they import __main__, by what the
parent adds to the data that they start with.
"""

import importlib
import mmap
import os
import sys
import types
import warnings

from . import _core, _cpython

# Modules that have the originals: those that are built on them, and those that look a name up for an
# object that has it. They include what lies below them.
KEPT = (
    "multiprocessing",
    "torch.multiprocessing",
    "tenon",
    "loky",
    "joblib.externals.loky",
    "importlib",
    "pickle",
    "cloudpickle",
)

_PARTS = (
    "context",
    "managers",
    "pool",
    "popen_forkserver",
    "popen_spawn_posix",
    "process",
    "queues",
    "sharedctypes",
    "synchronize",
)
_PARTS_OF_TORCH = ("pool", "queue", "reductions", "spawn")
_OURS = "tenon.multiprocessing"

# Each module, and the one whose public names are in place of its own.
PLACES = {
    "multiprocessing": _OURS,
    "torch.multiprocessing": _OURS,
    **{f"multiprocessing.{part}": f"{_OURS}.{part}" for part in _PARTS},
    **{f"torch.multiprocessing.{part}": f"{_OURS}.{part}" for part in _PARTS_OF_TORCH},
}

_COUNTERS_BYTES = 32
_PREPARATION = "tenon"  # a key beside those of the standard library


class _Replacement:
    """What replace() was told. Pickled for a child, it does the same there."""

    def __init__(self, strategy, keep, counters):
        self.strategy = strategy
        self.keep = keep
        self.counters = counters  # a descriptor of memory that the processes of the program share; or None

    def __reduce__(self):
        counters = None if self.counters is None else _cpython.DupFd(self.counters)
        return _replace_in_child, (self.strategy, self.keep, counters)


_now = None  # the _Replacement of this process


def _replace_in_child(strategy, keep, counters):
    replace(strategy, keep, None if counters is None else counters.detach())
    return None


def make_counters():
    """A descriptor of memory in which the processes of a program count what they send."""
    descriptor = os.memfd_create("tenon-report", os.MFD_CLOEXEC)
    os.truncate(descriptor, _COUNTERS_BYTES)
    return descriptor


def replace(strategy=None, keep=(), counters=None):
    """Put tenon.multiprocessing in place of multiprocessing, in this process and in its children.

    Parameters
    ----------
    strategy : str or None, the sharing strategy; None for the default
    keep : sequence of str
        Modules that go on with the originals, beside KEPT.
    counters : int or None, what make_counters() returned; None to count nothing
    """
    global _now
    is_first = _now is None
    _now = _Replacement(strategy, tuple(keep), counters)
    if strategy is not None:
        _core.set_strategy(strategy)
    if counters is not None:
        _core.count_into(mmap.mmap(counters, _COUNTERS_BYTES))
    _Mixed.kept = KEPT + _now.keep
    if is_first:
        importlib.import_module(_OURS)
        sys.meta_path.insert(0, _Finder())
        for name, follow in _FOLLOWS.items():
            if name in sys.modules:
                follow(sys.modules[name])
    _cpython.prepare_children(_PREPARATION, _now)
    _cpython.preloaded_first = "tenon._in_fork_server"


# ---- modules with two sets of names


class _Mixed(types.ModuleType):
    """A module whose public names are, for most callers, those of another module."""

    kept = KEPT  # of all modules
    _place = None  # the name of the other module
    _names = None  # those that are replaced; None: all public ones of the other module
    _changed = None  # {name: the module's own value} of what the program has set

    def __getattribute__(self, name):
        if name[:1] == "_" or _is_kept(sys._getframe(1)) or not _is_replaced(type(self), name):
            return types.ModuleType.__getattribute__(self, name)
        return getattr(_place_of(type(self)), name)

    def __setattr__(self, name, value):
        """Set an attribute. What the program sets is what it finds from then on, until it sets the former value."""
        changed = type(self)._changed
        if not _is_kept(sys._getframe(1)):
            if _is_replaced(type(self), name):
                changed[name] = vars(self).get(name)
            elif name in changed and (value is changed[name] or value is getattr(_place_of(type(self)), name)):
                value = changed.pop(name)
        types.ModuleType.__setattr__(self, name, value)

    def __dir__(self):
        return sorted({*vars(self), *_names_of(type(self))})


def _place_of(kind):
    return sys.modules.get(kind._place) or importlib.import_module(kind._place)


def _names_of(kind):
    if kind._names is not None:
        return kind._names
    return getattr(_place_of(kind), "__all__", ())  # while that module is imported it has none


def _is_replaced(kind, name):
    return name[:1] != "_" and name not in kind._changed and name in _names_of(kind)


def _is_kept(frame):
    """Whether the code of a frame has the originals."""
    name = frame.f_globals.get("__name__") or ""
    return any(name.startswith(kept) and name[len(kept) : len(kept) + 1] in ("", ".") for kept in _Mixed.kept)


def _mix(module):
    name = types.ModuleType.__getattribute__(module, "__name__")
    place = PLACES[name]
    # multiprocessing.spawn is a module, while torch.multiprocessing.spawn is a function.
    names = module.__all__ if name == "multiprocessing" else None
    module.__class__ = type("module", (_Mixed,), {"_place": place, "_names": names, "_changed": {}})


# ---- modules that are imported later


class _Finder:
    """Finds the modules in _FOLLOWS as the other finders do."""

    def find_spec(self, name, path=None, target=None):
        if name not in _FOLLOWS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """A loader that does what follows the import of a module."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader  # whoever looks finds the usual one
        self._loader.exec_module(module)
        _FOLLOWS[module.__name__](module)


def _install_torch(torch):
    """Let PyTorch's tensors travel in tenon's memory from the start: the program may share them before it sends any."""
    try:
        ours = importlib.import_module("tenon.torch")
    except ImportError as error:
        warnings.warn(f"PyTorch's tensors travel as PyTorch sends them: {error}", RuntimeWarning, stacklevel=2)
    else:
        ours._notice()


def _start_tracker(shared_memory):
    """Start the resource tracker before a child can.

    The standard library's locks start it as a rule. Without it a forked child that attaches to a
    SharedMemory starts one of its own, which removes the memory when the child ends.
    """
    _cpython.resource_tracker.ensure_running()


# What follows the import of a module.
_FOLLOWS = {
    **dict.fromkeys(PLACES, _mix),
    "multiprocessing.shared_memory": _start_tracker,
    "torch": _install_torch,
}
