# SPDX-License-Identifier: Apache-2.0
"""Processes that end with their parent, and whose arguments may be tensors."""

import os
import select
import shutil
import sys
import tempfile
import traceback
from multiprocessing import context as _context
from multiprocessing import popen_fork, popen_forkserver, popen_spawn_posix, util
from multiprocessing import process as _process
from multiprocessing.process import (
    AuthenticationString,
    active_children,
    current_process,
    parent_process,
)

from .. import _core, _domain
from ._objects import keep_for_child

__all__ = [
    "AuthenticationString",
    "BaseProcess",
    "active_children",
    "current_process",
    "parent_process",
]

_PARENT_DIED = 70  # EX_SOFTWARE; nobody is left to read it
_MOST_TEMP_DIR = 64  # bytes; a socket's address has 108, with two names below that folder


class BaseProcess(_process.BaseProcess):
    """A process of the standard library's, with one thing more.

    detached: set it before start() to let the process outlive its parent. Others end when their
    parent ends, also when that is killed.
    """

    detached = False

    def start(self):
        _domain.default()  # what a child shares with its parent is there before the child
        _notice_torch()
        super().start()
        if self.detached:
            _process._children.discard(self)  # nobody waits for it at exit

    def __reduce_ex__(self, protocol):
        # Its pickle is a message: the arrays in its arguments lie in shared memory, beside it.
        if _context.get_spawning_popen() is None or _core.is_dumping():
            return super().__reduce_ex__(protocol)
        # It waits in a queue of its own, which ends with the child if that never gets to it.
        domain = _domain.default()
        data, tensors = _core.dumps(self, domain)
        queue = _core.Queue.create(domain, capacity=1)
        queue.push(data, tensors, 0)
        keep_for_child(queue)
        return _arrive, (domain.name, _start_method(), queue.id)

    def _bootstrap(self, *args, **keywords):
        try:
            self._enter()
        except Exception:
            # As the standard library does with what its part of a child raises.
            sys.stderr.write(f"Process {self.name}:\n")
            traceback.print_exc()
            sys.stderr.flush()
            return 1
        with _domain.running():
            return super()._bootstrap(*args, **keywords)

    def _enter(self):
        from . import context

        if self._start_method is not None:
            context._default_context.set_start_method(self._start_method, force=True)
        if not self.detached:
            _follow(self._parent_pid)
        _notice_torch()


def _notice_torch():
    """Before a worker collates its first batch, which no message was pickled before."""
    if "torch" in sys.modules:
        _core.dumps(None, _domain.default())


def _start_method():
    from . import context

    return context._default_context.get_start_method(allow_none=True)


def _arrive(name, start_method, number):
    """In the child: the process that its parent sent."""
    from . import context

    _domain.enter(name)
    context._default_context.set_start_method(start_method, force=True)
    return _core.Queue.open(_domain.default(), number).get(0)


def _follow(parent):
    try:
        _core.follow(_domain.default(), parent)
    except (_core.PeerDied, _core.NotFound):
        # One that left its domain in good order may live on; a child of it is on its own then.
        if not _lives(parent):
            os._exit(_PARENT_DIED)


def _lives(pid):
    """Not if it has ended and nobody has waited for it: that may wait for a child of it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([descriptor], [], [], 0)[0]
    finally:
        os.close(descriptor)


def shorten_temp_dir():
    """The standard library's sockets have their names in it, and few bytes for them."""
    config = current_process()._config
    if "tempdir" in config or len(os.fsencode(tempfile.gettempdir())) <= _MOST_TEMP_DIR:
        return
    folder = tempfile.mkdtemp(prefix="pymp-", dir="/tmp")
    util.Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-100)
    config["tempdir"] = folder


class _Prepared:
    """Popen of a child that begins anew."""

    def _launch(self, process_obj):
        # What the child is told of the start method asks the standard library's default
        # context, which must not count as used by that.
        default = _context._default_context
        actual = default._actual_context
        self.kept = []
        try:
            super()._launch(process_obj)
        finally:
            default._actual_context = actual

    def poll(self, *args, **keywords):
        code = super().poll(*args, **keywords)
        if code is not None:
            self.kept = []
        return code


class _SpawnPopen(_Prepared, popen_spawn_posix.Popen):
    pass


class _ForkServerPopen(_Prepared, popen_forkserver.Popen):
    def _launch(self, process_obj):
        shorten_temp_dir()  # before the server starts
        super()._launch(process_obj)


class ForkProcess(BaseProcess, _context.ForkProcess):
    @staticmethod
    def _Popen(process_obj):
        return popen_fork.Popen(process_obj)


class SpawnProcess(BaseProcess, _context.SpawnProcess):
    @staticmethod
    def _Popen(process_obj):
        return _SpawnPopen(process_obj)


class ForkServerProcess(BaseProcess, _context.ForkServerProcess):
    @staticmethod
    def _Popen(process_obj):
        return _ForkServerPopen(process_obj)


class Process(BaseProcess):
    """A process of the default start method."""

    _start_method = None

    @staticmethod
    def _Popen(process_obj):
        from . import context

        return context._default_context.get_context().Process._Popen(process_obj)

    @staticmethod
    def _after_fork():
        from . import context

        return context._default_context.get_context().Process._after_fork()


def __getattr__(name):
    """What else the standard library's module has."""
    return getattr(_process, name)
