# SPDX-License-Identifier: Apache-2.0
"""The managers of the standard library. Their default context is that of this package."""

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
    """The other names of the standard library's module."""
    return getattr(_standard, name)
