# SPDX-License-Identifier: Apache-2.0
"""Coroutines that wait for queues and channels, without a thread."""

import asyncio
import threading
import time
from types import TracebackType
from typing import Callable, Dict, Optional, Tuple, Type, TypeVar, Union

from . import _bell, _core, _cpython

_LOOK_AGAIN_S = 1.0  # a domain that this process leaves makes no descriptor readable
_Value = TypeVar("_Value")
_Source = Union[_core.Queue, _core.Channel]
# How many coroutines wait for a queue or channel. A process watches it once, however many objects it has for it.
_waiting: Dict[Tuple[_core.Domain, int], int] = {}
_lock = threading.Lock()
_cpython.renew_in_child(_lock)


class _Wait:
    """A coroutine waits for a message. As long as one does, those who send ring the bell of this process."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._key = source.domain, source.id
        self._bell = _bell.of(source.domain)
        self._loop = asyncio.get_running_loop()
        self._is_told = asyncio.Event()

    def __enter__(self) -> "_Wait":
        self._bell.enter(self._loop, self._tell)
        with _lock:
            _waiting[self._key] = _waiting.get(self._key, 0) + 1
        try:
            self._source.watch(True)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._bell.leave(self._loop, self._tell)
        with _lock:
            _waiting[self._key] -= 1
            if _waiting[self._key] > 0:
                return
            del _waiting[self._key]
            try:
                self._source.watch(False)
            except (_core.Error, ValueError):
                pass  # closed

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._is_told.set)
        except RuntimeError:
            pass  # the loop is closed

    def begin(self) -> None:
        """From now on, wait() ends at once if there was news."""
        self._is_told.clear()

    async def wait(self, until: Optional[float]) -> None:
        delay = _LOOK_AGAIN_S if until is None else min(_LOOK_AGAIN_S, until - time.monotonic())
        timer = self._loop.call_later(delay, self._is_told.set)
        try:
            await self._is_told.wait()
        finally:
            timer.cancel()


async def take(source: _Source, pop: Callable[[float], _Value], timeout: Optional[float]) -> _Value:
    """Call pop(0) until it gives something; the loop does other work between the calls.

    Raises TimedOut, and what pop() raises.
    """
    try:
        return pop(0)
    except _core.TimedOut:
        if timeout is not None and timeout <= 0:
            raise
    until = None if timeout is None else time.monotonic() + timeout
    with _Wait(source) as news:
        while True:
            news.begin()
            try:
                return pop(0)
            except _core.TimedOut:
                if until is not None and time.monotonic() >= until:
                    raise
            await news.wait(until)
