# SPDX-License-Identifier: Apache-2.0
"""The standard library's managers; without a context they take this package's."""

from .._cpython import managers as _standard

__all__ = ["BaseManager", "BaseProxy", "SharedMemoryManager", "SyncManager", "Token"]

BaseProxy, Token = _standard.BaseProxy, _standard.Token


class _InContext:
    def __init__(self, *args, ctx=None, **keywords):
        from . import _popen, context

        ctx = ctx or context._default_context.get_context()
        _popen.shorten_temp_dir()
        super().__init__(*args, ctx=ctx, **keywords)


class BaseManager(_InContext, _standard.BaseManager):
    pass


class SyncManager(_InContext, _standard.SyncManager):
    pass


class SharedMemoryManager(_InContext, _standard.SharedMemoryManager):
    pass


def __getattr__(name):
    """What else the standard library's module has."""
    return getattr(_standard, name)
