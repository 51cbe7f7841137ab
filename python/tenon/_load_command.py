# SPDX-License-Identifier: Apache-2.0
"""What `tenon load` runs for a file of NumPy or PyTorch, which only Python reads.

Its arguments are those of the command, parsed: the domain, the name, the path, the lifetime in seconds or "", and
"text", "quiet" or "json".
"""

import json
import sys
import time
from typing import Any, Dict, List, Sequence, Tuple

from . import _core, _inspect, _model_files, _models

_TROUBLE = 1
_ALIGN_BYTES = 64


class _Progress(_model_files.Watcher):
    """The line on a terminal that `tenon load` shows. Bytes that are read first count half until they are copied."""

    _WIDTH = 78

    def __init__(self, name: str) -> None:
        self._name, self._begun, self._percent = name, time.monotonic(), -1
        self._share_of_reading = 0.0

    def has_read(self, all_bytes: int, done_bytes: int) -> None:
        self._share_of_reading = 0.5
        self._show(all_bytes, 0.5 * done_bytes)

    def has_copied(self, all_bytes: int, done_bytes: int) -> None:
        read = self._share_of_reading
        self._show(all_bytes, read * all_bytes + (1 - read) * done_bytes)

    def _show(self, all_bytes: int, done_bytes: float) -> None:
        percent = int(100 * done_bytes / all_bytes) if all_bytes else 100
        if percent == self._percent:
            return
        self._percent = percent
        seconds = time.monotonic() - self._begun
        done, total = _inspect.amount(int(done_bytes)), _inspect.amount(all_bytes)
        rate = _inspect.amount(int(done_bytes / seconds) if seconds > 0 else 0)
        self._write(f"\r{self._name}: {percent:3d} %, {done} of {total}, {rate}/s   ")

    def clear(self) -> None:
        """Blank the line, if there is one."""
        if self._percent >= 0:
            self._write(f"\r{'':{self._WIDTH}}\r")
            self._percent = -1

    def _write(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


def _read(arguments: List[str]) -> Tuple[_models.Contents, bool]:
    domain, name, path, lifetime, form = arguments
    seconds = float(lifetime) if lifetime else None
    if form == "quiet" or not sys.stderr.isatty():
        return _model_files.read_file(name, path, domain, None, seconds)
    progress = _Progress(name)
    try:
        return _model_files.read_file(name, path, domain, None, seconds, progress)
    finally:
        progress.clear()


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
    domain, name, _, _, form = arguments
    try:
        contents, is_new = _read(arguments)
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
