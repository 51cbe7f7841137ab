# SPDX-License-Identifier: Apache-2.0
"""Queues and the like that processes meet at by name, in a domain that they meet in by name.

Whoever comes first makes what is not there yet, so no process has to be the first. A thing ends
when the last process that has it open closed it or ended.
"""

from types import TracebackType
from typing import Any, Callable, List, Optional, Type, TypeVar, Union

from . import _core, _domain

_REDELIVER, _LEASE = 0, 2
_Where = Union[None, str, _core.Domain]
_Core = TypeVar("_Core")


def _place(domain: _Where) -> _core.Domain:
    if isinstance(domain, _core.Domain):
        return domain
    return _domain.default() if domain is None else _domain.meet(domain)


def _open_or_create(opened: Callable[[], _Core], created: Callable[[], _Core]) -> _Core:
    """It may end, or be made, between the two: then somebody else got on, and this tries again."""
    while True:
        try:
            return opened()
        except _core.NotFound:
            pass
        try:
            return created()
        except _core.Exists:
            pass


class _Named:
    _core: Any

    def __init__(self, name: str, domain: _core.Domain) -> None:
        self.name = name
        self.domain = domain

    def close(self) -> None:
        """Give this process's handle back. What is in a queue stays while another process has it open."""
        self._core.close()

    def __repr__(self) -> str:
        return f"<tenon.{type(self).__name__} {self.name!r} in the domain {self.domain.name!r}>"


class Message:
    """What Queue.receive() got: a message that is leased to this process.

    It goes to another process, with `attempt` one higher, if this process ends or gives it back
    before it acknowledges it. As a context manager it is acknowledged at the end, or given back
    when the block raises.
    """

    def __init__(self, core: _core.Message) -> None:
        self._core = core
        self._is_reclaimed = False
        self._loaded: Any = None
        self._is_loaded = False

    @property
    def value(self) -> Any:
        """What was put."""
        if not self._is_loaded:
            self._loaded, self._is_loaded = self._core.load(), True
        return self._loaded

    @property
    def tensors(self) -> List[_core.Tensor]:
        """The tensors alone, in their order: of a message that a program in C pushed, which has no `value`."""
        return self._core.tensors

    @property
    def data(self) -> bytes:
        """The bytes alone: of a message that put() made, a pickle."""
        return self._core.data

    @property
    def attempt(self) -> int:
        """How often it was delivered before."""
        return self._core.attempt

    def ack(self) -> None:
        """It was dealt with: it comes to nobody again."""
        self._core.ack()
        self._is_reclaimed = True

    def give_back(self) -> None:
        """Deliver it again, to whoever receives next."""
        self._core.give_back()
        self._is_reclaimed = True

    def __enter__(self) -> "Message":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._is_reclaimed:
            self.ack() if kind is None else self.give_back()


class Queue(_Named):
    """A bounded queue that any process of this user opens by its name.

    name: 1 to 47 of [A-Za-z0-9._-], not starting with a dot. domain: a Domain, or the name of one
    that is joined, or made; None: this process's own. capacity and lease say what it is like if
    this call makes it. With lease, what receive() got comes again if its process dies; without,
    it is gone with it.
    Timeouts are in seconds: None waits for ever, 0 tries once; TimedOut is a TimeoutError.
    """

    def __init__(self, name: str, *, domain: _Where = None, capacity: int = 1024, lease: bool = False) -> None:
        place = _place(domain)
        policy = _LEASE if lease else _REDELIVER
        self._core: _core.Queue = _open_or_create(
            lambda: _core.Queue.open(place, name),
            lambda: _core.Queue.create(place, name, capacity=capacity, policy=policy),
        )
        super().__init__(name, place)

    @property
    def capacity(self) -> int:
        return self._core.capacity

    def put(self, value: Any, timeout: Optional[float] = None) -> None:
        """Append an object that can be pickled; arrays and tensors in it travel in shared memory.

        Raises TimedOut, Closed, PeerDied.
        """
        self._core.put(value, timeout)

    def get(self, timeout: Optional[float] = None) -> Any:
        """Take the next object. Of a queue with leases it is acknowledged at once.

        Raises TimedOut, Closed, PeerDied.
        """
        return self._core.get(timeout)

    def receive(self, timeout: Optional[float] = None) -> Message:
        """Take the next Message, to be acknowledged later; of a queue without leases ack() raises Stale.

        Raises TimedOut, Closed, PeerDied.
        """
        return Message(self._core.pop(timeout))

    def end(self) -> None:
        """End it for everybody: put() raises Closed, and get() does once the queue is empty."""
        self._core.end()

    def qsize(self) -> int:
        """How many messages wait, roughly; those that are leased do not."""
        return self._core.count()


class Lock(_Named):
    """A lock that a thread of any process of this user holds, and that comes back if its owner dies."""

    def __init__(self, name: str, *, domain: _Where = None) -> None:
        place = _place(domain)
        self._core: _core.Lock = _open_or_create(
            lambda: _core.Lock.open(place, name), lambda: _core.Lock.create(place, name)
        )
        self.owner_died = False
        super().__init__(name, place)

    def acquire(self, timeout: Optional[float] = None) -> bool:
        """Whether it was had in time. `owner_died` says whether its last owner died holding it:
        then what it guards may be half changed.
        """
        result = self._core.acquire(timeout)
        if result >= 0:
            self.owner_died = result == 1
        return result >= 0

    def release(self) -> None:
        self._core.release()

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Event(_Named):
    """What any process of this user sets, and any waits for."""

    def __init__(self, name: str, *, domain: _Where = None) -> None:
        place = _place(domain)
        self._core: _core.Event = _open_or_create(
            lambda: _core.Event.open(place, name), lambda: _core.Event.create(place, name)
        )
        super().__init__(name, place)

    def set(self) -> None:
        self._core.set()

    def clear(self) -> None:
        self._core.clear()

    def is_set(self) -> bool:
        return self._core.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Whether it was set in time."""
        return self._core.wait(timeout)


class Semaphore(_Named):
    """Permits that processes of this user take and give; those of a dead process come back."""

    def __init__(self, name: str, permits: int = 1, *, domain: _Where = None) -> None:
        place = _place(domain)
        self._core: _core.Semaphore = _open_or_create(
            lambda: _core.Semaphore.open(place, name),
            lambda: _core.Semaphore.create(place, name, permits, True),
        )
        super().__init__(name, place)

    def acquire(self, timeout: Optional[float] = None) -> bool:
        """Whether a permit was had in time."""
        return self._core.acquire(timeout)

    def release(self) -> None:
        self._core.release()

    def value(self) -> int:
        """Permits that are free."""
        return self._core.get()

    def __enter__(self) -> "Semaphore":
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()
