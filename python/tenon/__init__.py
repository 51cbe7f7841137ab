# SPDX-License-Identifier: Apache-2.0
"""Tensors that processes on one machine share without copying.

    import numpy as np
    import tenon
    import tenon.multiprocessing as mp

    queue = mp.Queue()
    queue.put(np.ones(1000))       # copied once, into shared memory
    array = queue.get()            # in any process: no copy

`tenon.multiprocessing` stands in place of `multiprocessing` and `torch.multiprocessing`;
`tenon.torch` moves PyTorch's tensors.
"""

import os as _os
import pathlib as _pathlib

# The package brings a tenond of its own; TENON_TENOND names another.
_tenond = _pathlib.Path(__file__).with_name("bin") / "tenond"
if _tenond.exists():
    _os.environ.setdefault("TENON_TENOND", str(_tenond))

from ._core import (  # noqa: E402
    ChildFailed,
    Closed,
    Corrupt,
    Denied,
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
    from_dlpack,
)
from ._domain import domain  # noqa: E402
from ._meeting import Event, Lock, Message, Queue, Semaphore  # noqa: E402
from ._inspect import Report, inspect  # noqa: E402
from ._tensors import _rebuild_tensor, asarray, empty, full, share, zeros  # noqa: E402
from ._core import version as _version  # noqa: E402

__version__ = _version()
__all__ = [
    "ChildFailed",
    "Closed",
    "Corrupt",
    "Denied",
    "Domain",
    "Error",
    "Event",
    "Exists",
    "Forked",
    "Full",
    "Interrupted",
    "Invalid",
    "Lock",
    "ManagerFailed",
    "Message",
    "NoMemory",
    "NotFound",
    "PeerDied",
    "Queue",
    "Report",
    "Semaphore",
    "Stale",
    "SystemFailed",
    "Tensor",
    "TimedOut",
    "Unsupported",
    "VersionMismatch",
    "asarray",
    "domain",
    "empty",
    "from_dlpack",
    "full",
    "inspect",
    "share",
    "zeros",
]
