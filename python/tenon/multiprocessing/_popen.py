# SPDX-License-Identifier: Apache-2.0
"""How children that begin anew are started."""

import os
import shutil
import tempfile
from multiprocessing import context as _context
from multiprocessing import forkserver, popen_forkserver, popen_spawn_posix, util
from multiprocessing.process import current_process

from . import _sent

_MOST_TEMP_DIR = 64  # bytes; a socket's address has 108, with two names below that folder
# What each child of a forkserver would import anew.
_PRELOAD = "tenon.multiprocessing.queues"


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
        self.parcel = _sent.Parcel()
        try:
            super()._launch(process_obj)
        except BaseException:
            self.parcel.forget()
            raise
        finally:
            default._actual_context = actual
        self.parcel.name(self.pid)
        del self.parcel

    def poll(self, *args, **keywords):
        code = super().poll(*args, **keywords)
        if code is not None:
            self.kept = []
        return code


class SpawnPopen(_Prepared, popen_spawn_posix.Popen):
    pass


class ForkServerPopen(_Prepared, popen_forkserver.Popen):
    def _launch(self, process_obj):
        shorten_temp_dir()  # before the server starts
        _preload()
        super()._launch(process_obj)


def _preload():
    """Have the server import this package, once; it takes no seat by that."""
    modules = forkserver._forkserver._preload_modules
    if _PRELOAD not in modules:
        forkserver._forkserver._preload_modules = [*modules, _PRELOAD]
