# SPDX-License-Identifier: Apache-2.0
"""Starting children that do not inherit this process's memory: spawn and forkserver."""

import os
import shutil
import tempfile

from .. import _cpython
from .._cpython import popen_forkserver, popen_spawn_posix
from . import _sent

_MOST_TEMP_DIR = 64  # bytes; a socket's address has 108, with two names below that folder
# The fork server imports it once, for all its children; it takes no seat by that.
_PRELOAD = "tenon.multiprocessing.queues"


def shorten_temp_dir():
    """Use a short folder for temporary files: the standard library names sockets in it."""
    config = _cpython.config_of_process()
    if "tempdir" in config or len(os.fsencode(tempfile.gettempdir())) <= _MOST_TEMP_DIR:
        return
    folder = tempfile.mkdtemp(prefix="pymp-", dir="/tmp")
    _cpython.Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-100)
    config["tempdir"] = folder


class _Prepared:
    """What both kinds of Popen do: they keep the objects that the child is sent until it ends."""

    def _launch(self, process_obj):
        self.kept = []
        self.parcel = _sent.Parcel()
        try:
            with _cpython.default_context_unused():
                super()._launch(process_obj)
        except BaseException:
            self.parcel.forget()
            raise
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
        _cpython.preload(_PRELOAD)
        super()._launch(process_obj)
