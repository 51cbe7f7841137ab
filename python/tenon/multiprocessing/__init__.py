# SPDX-License-Identifier: Apache-2.0
"""A replacement for `multiprocessing` and `torch.multiprocessing`, with the names of both.

    import tenon.multiprocessing as mp

Queues, locks and pools go on when a process is killed. Arrays and tensors travel in shared memory.
Children end with their parent. The descriptions of queues, locks, pools and processes say what differs
from the standard library.
"""

import importlib
import multiprocessing as _standard
import sys

from .. import _core
from . import context, process

# The functions of the default context, under the names of the standard library.
_given = [name for name in _standard.__all__ if hasattr(context._default_context, name)]
globals().update((name, getattr(context._default_context, name)) for name in _given)

SUBDEBUG = _standard.util.SUBDEBUG if hasattr(_standard, "util") else 5
SUBWARNING = 25
TimeoutError = context.TimeoutError
reducer = context._default_context.reducer

ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"

_PR_SET_NAME = 15
_PR_GET_NAME = 16

if "__main__" in sys.modules:
    sys.modules["__mp_main__"] = sys.modules["__main__"]


def get_all_sharing_strategies():
    """The names of the strategies of this system."""
    return set(_core.strategies())


def get_sharing_strategy():
    """The strategy of storages that this process makes."""
    return _core.get_strategy()


def set_sharing_strategy(new_strategy):
    """Set the strategy of storages that this process makes from now on."""
    if new_strategy not in _core.strategies():
        raise ValueError(
            f"no strategy {new_strategy!r}: there are {', '.join(_core.strategies())}"
        )
    _core.set_strategy(new_strategy)


def init_reductions():
    """Let PyTorch's tensors travel in shared memory, by calling tenon.torch.install()."""
    from .reductions import init_reductions as begin

    begin()


def set_thread_name(name):
    """Name the calling thread, as the system's tools show it (15 bytes are kept)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def get_thread_name():
    """The name of the calling thread, as the system's tools show it."""
    import ctypes

    buffer = ctypes.create_string_buffer(16)
    ctypes.CDLL(None).prctl(_PR_GET_NAME, buffer)
    return buffer.value.decode(errors="replace")


_set_thread_name, _get_thread_name = set_thread_name, get_thread_name  # the names that PyTorch has for them


# These names are imported on first use, since many programs never use them.
_modules = {
    "pool": ["WorkerDied"],
    "spawn": [
        "ProcessContext",
        "ProcessException",
        "ProcessExitedException",
        "ProcessRaisedException",
        "SpawnContext",
        "start_processes",
    ],
}
_places = {name: module for module, names in _modules.items() for name in names}


def __getattr__(name):
    """One of those names, or a module of this package."""
    if name in _places:
        module = importlib.import_module(f"{__name__}.{_places[name]}")
        return globals().setdefault(name, getattr(module, name))
    from importlib.util import find_spec

    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


__all__ = sorted(
    {
        *_standard.__all__,
        *_places,
        "ENV_VAR_PARALLEL_START",
        "get_all_sharing_strategies",
        "get_sharing_strategy",
        "get_thread_name",
        "init_reductions",
        "set_sharing_strategy",
        "set_thread_name",
        "spawn",
    }
)


def __dir__():
    return sorted({*globals(), *__all__})
