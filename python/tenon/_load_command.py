# SPDX-License-Identifier: Apache-2.0
"""What `tenon load` runs for a file of NumPy or PyTorch, which only Python reads.

Its arguments are those of the command, parsed: the domain, the name, the path, the lifetime in seconds or "", and
"text", "quiet" or "json".
"""

import json
import sys
from typing import Any, Dict, List, Sequence

from . import _core, _inspect, _model_files

_TROUBLE = 1
_ALIGN_BYTES = 64


def _say(report: Dict[str, Any], form: str) -> None:
    if form == "json":
        print(json.dumps(report, indent=2))
    elif form == "text":
        what = "is loaded" if report["is_new"] else "was loaded before"
        noun = "tensor" if report["tensors"] == 1 else "tensors"
        print(f"{report['name']} {what}: {report['tensors']} {noun}, {_inspect.amount(report['bytes'])}")


def _size_of(tensors: Sequence[_core.Tensor]) -> int:
    """How much of their storage the tensors take: two names of one tensor take memory once."""
    sizes = {tensor.address: tensor.nbytes for tensor in tensors if tensor.nbytes > 0}
    return sum(-(-size // _ALIGN_BYTES) * _ALIGN_BYTES for size in sizes.values())


def main(arguments: List[str]) -> int:
    domain, name, path, lifetime, form = arguments
    seconds = float(lifetime) if lifetime else None
    try:
        contents, is_new = _model_files.read_file(name, path, domain, None, seconds)
    except _core.Exists:
        told = "from other files or before they changed"
        print(f"tenon load: {name} was loaded before, {told}: `tenon unload {name}' removes that", file=sys.stderr)
        return _TROUBLE
    except (_core.Error, OSError, ImportError, MemoryError) as error:
        said = getattr(error, "strerror", None)
        print(f"tenon load: {error.filename}: {said}" if said else f"tenon load: {error}", file=sys.stderr)
        return _TROUBLE
    except KeyboardInterrupt:
        return 128 + 2  # as a shell has it for SIGINT
    tensors = list(contents.tensors.values())
    report = {"name": name, "domain": domain, "is_new": is_new, "tensors": len(tensors), "bytes": _size_of(tensors)}
    _say(report, form)
    return 0
