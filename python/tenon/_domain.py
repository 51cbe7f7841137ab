# SPDX-License-Identifier: Apache-2.0
"""The domain of this process, and other domains that it has joined.

Processes that Python starts share one domain. A forked child stays in the domain of its parent; any
other child joins by the name of the domain, which is part of every pickled object. A process leaves
the domain at exit, after everything else that runs at exit. A process that ends without leaving
counts as dead.
"""

from __future__ import annotations

import os
import threading

from . import _core, _cpython

TYPE_CHECKING = False  # as typing has it, which takes long to import
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

LAST = -1000  # priority at exit: after multiprocessing and its users

# Seats and objects of a domain. The domain commits memory for one when it is first used.
_MOST_PROCESSES = 1024
_MOST_OBJECTS = 16384

_lock = threading.RLock()
_present: Any = None  # a Domain
_foreign: Dict[str, _core.Domain] = {}  # name -> Domain
leaver = None  # the pid of a child that calls leave_last()


def _is_gone(domain):
    return domain is None or domain.closed


def default() -> _core.Domain:
    """The domain of this process. This function makes one if there is none."""
    global _present
    if _is_gone(_present):
        with _lock:
            if _is_gone(_present):
                name = f"python-{os.getpid()}-{os.urandom(4).hex()}"
                _present = _core.Domain.create(
                    name, seats=_MOST_PROCESSES, objects=_MOST_OBJECTS
                )
                _at_exit()
    return _present


def present() -> Optional[_core.Domain]:
    """The domain of this process, or None. This function makes none."""
    return None if _is_gone(_present) else _present


def named(name: str) -> _core.Domain:
    """The domain with this name: that of this process, or one that it joins."""
    global _present
    with _lock:
        if _is_gone(_present):
            known = _foreign.pop(name, None)
            _present = _join(name) if _is_gone(known) else known
            return _present
        if _present.name == name:
            return _present
        if _is_gone(_foreign.get(name)):
            _foreign[name] = _join(name)
        return _foreign[name]


def meet(name: str) -> _core.Domain:
    """Join the domain with this name, or make it. The process leaves it at exit."""
    global _present
    with _lock:
        if not _is_gone(_present) and _present.name == name:
            return _present
        domain = _foreign.get(name)
        if _is_gone(domain):
            domain = _core.Domain.open(name, seats=_MOST_PROCESSES, objects=_MOST_OBJECTS)
            _at_exit()
            if _is_gone(_present):
                _present = domain
            else:
                _foreign[name] = domain
        return domain


def aside(name: str, is_made: bool) -> _core.Domain:
    """Join the domain with this name, or make it. It does not become the domain of this process."""
    with _lock:
        if not _is_gone(_present) and _present.name == name:
            return _present
        domain = _foreign.get(name)
        if _is_gone(domain):
            if is_made:
                domain = _core.Domain.open(name, seats=_MOST_PROCESSES, objects=_MOST_OBJECTS)
            else:
                domain = _core.Domain.join(name)
            _at_exit()
            _foreign[name] = domain
        return domain


def domain(name: Optional[str] = None) -> _core.Domain:
    """The domain of this process, or the one with this name, which is joined or made.

    If the process has no domain yet, the first one that it asks for by name becomes its domain.
    """
    return default() if name is None else meet(name)


def enter(name):
    """Make the domain with this name the domain of this process."""
    global _present
    with _lock:
        domain = named(name)
        if domain is not _present:
            _foreign.pop(name, None)
            _foreign[_present.name] = _present
            _present = domain
            _core.set_default_domain(default)


def leave(*, at_exit=False):
    """Close every domain of this process."""
    global _present
    with _lock:
        domains, _present = [_present, *_foreign.values()], None
        _foreign.clear()
    for domain in domains:
        if not _is_gone(domain):
            domain.close(at_exit=at_exit)


def _join(name):
    try:
        domain = _core.Domain.join(name)
    except _core.NotFound as error:
        raise _core.NotFound(
            f"the domain {name} is gone: all processes that were in it have ended ({error})"
        ) from None
    _at_exit()
    return domain


class _AtExit(_cpython.Finalize):
    """A finalizer that a forked child inherits, since the child has to leave its own seat."""

    _pid = property(lambda self: os.getpid(), lambda self, pid: None)


def _at_exit():
    _AtExit(None, _leave_at_exit, exitpriority=LAST)


def _leave_at_exit():
    if leaver != os.getpid():
        leave(at_exit=True)


def leave_last():
    """Leave in a child whose threads may go on after its functions at exit have run."""
    if _foreign or _present is None:
        leave(at_exit=True)
    else:
        _present.close(at_exit=True)


class _Follower:
    """A key for register_after_fork(), which needs an object. Its function runs in a child after
    multiprocessing has cleared the finalizers that the child inherited."""


def _begin_child(unused):
    if leaver == os.getpid():
        return
    if not _is_gone(_present) or _foreign:
        _at_exit()


_follower = _Follower()
_cpython.register_after_fork(_follower, _begin_child)
_cpython.renew_in_child(_lock)  # no code of Python: many children only exec
_core.set_default_domain(default)
