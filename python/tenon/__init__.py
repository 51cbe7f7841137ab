# SPDX-License-Identifier: Apache-2.0
"""Tensors that processes on one machine share without copying.

    import numpy as np
    import tenon
    import tenon.multiprocessing as mp

    queue = mp.Queue()
    queue.put(np.ones(1000))       # copied once, into shared memory
    array = queue.get()            # in any process: no copy

`tenon.multiprocessing` replaces `multiprocessing` and `torch.multiprocessing`. `tenon.torch` moves
PyTorch's tensors into shared memory.
"""

import os as _os

# The package has a tenond of its own; TENON_TENOND names another.
_tenond = _os.path.join(_os.path.dirname(__file__), "bin", "tenond")
if _os.path.exists(_tenond):
    _os.environ.setdefault("TENON_TENOND", _tenond)

from ._core import (  # noqa: E402
    ChildFailed,
    Closed,
    Corrupt,
    Denied,
    DeviceFailed,
    Domain,
    Error,
    Exists,
    Forked,
    Full,
    Interrupted,
    Invalid,
    ManagerFailed,
    NoMemory,
    NotFound,
    PeerDied,
    Stale,
    SystemFailed,
    Tensor,
    TimedOut,
    Unsupported,
    VersionMismatch,
    from_cuda_array,
    from_dlpack,
)
from ._domain import domain  # noqa: E402
from ._core import version as _version  # noqa: E402

TYPE_CHECKING = False  # as typing has it, which takes long to import
if TYPE_CHECKING:
    from ._channel import Channel, ChannelInfo
    from ._devices import Device, devices
    from ._executor import Executor
    from ._inspect import Report as Report, inspect as inspect
    from ._meeting import Event, Lock, Message, Queue, Semaphore
    from ._model_files import load_file
    from ._models import Model, load, publish, unload
    from ._numpy import numpy_allocator
    from ._resources import resource_id as resource_id, resources as resources, secede as secede
    from ._schedulers import set_options
    from ._store import Store, StoreEntry, StoreInfo
    from ._trace import trace as trace
    from ._tensors import _rebuild_tensor, asarray, empty, full, share, zeros
else:
    # These names are imported on first use, since many programs never use them.
    _modules = {
        "_channel": ["Channel", "ChannelInfo"],
        "_devices": ["Device", "devices"],
        "_executor": ["Executor"],
        "_inspect": ["Report", "inspect"],
        "_meeting": ["Event", "Lock", "Message", "Queue", "Semaphore"],
        "_model_files": ["load_file"],
        "_models": ["Model", "load", "publish", "unload"],
        "_numpy": ["numpy_allocator"],
        "_resources": ["resource_id", "resources", "secede"],
        "_schedulers": ["set_options"],
        "_store": ["Store", "StoreEntry", "StoreInfo"],
        "_trace": ["trace"],
        "_tensors": ["_rebuild_tensor", "asarray", "empty", "full", "share", "zeros"],
    }
    _places = {name: module for module, names in _modules.items() for name in names}

    def __getattr__(name):
        if name not in _places:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module("." + _places[name], __name__), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_places})


__version__ = _version()
__all__ = [
    "Channel",
    "ChannelInfo",
    "ChildFailed",
    "Closed",
    "Corrupt",
    "Denied",
    "Device",
    "DeviceFailed",
    "Domain",
    "Error",
    "Event",
    "Executor",
    "Exists",
    "Forked",
    "Full",
    "Interrupted",
    "Invalid",
    "Lock",
    "ManagerFailed",
    "Message",
    "Model",
    "NoMemory",
    "NotFound",
    "PeerDied",
    "Queue",
    "Report",
    "Semaphore",
    "Stale",
    "Store",
    "StoreEntry",
    "StoreInfo",
    "SystemFailed",
    "Tensor",
    "TimedOut",
    "Unsupported",
    "VersionMismatch",
    "asarray",
    "devices",
    "domain",
    "empty",
    "from_cuda_array",
    "from_dlpack",
    "full",
    "inspect",
    "load",
    "load_file",
    "numpy_allocator",
    "publish",
    "resource_id",
    "resources",
    "secede",
    "set_options",
    "share",
    "trace",
    "unload",
    "zeros",
]
