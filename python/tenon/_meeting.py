# SPDX-License-Identifier: Apache-2.0
"""Queues, locks, events and semaphores that processes open by name, in a domain with a name.

The first process that opens a name creates the object, so the order of processes does not matter.
An object ends when the last process that has it open closes it or ends.
"""

from types import TracebackType
from typing import Any, AsyncIterator, Callable, List, Optional, Tuple, Type, TypeVar, Union

from . import _bell, _core, _domain

TYPE_CHECKING = False  # as typing has it
if TYPE_CHECKING:
    from ._devices import Device as _Device

_REDELIVER, _LEASE = 0, 2  # TN_QUEUE_*
_CAPACITY = 1024  # of a queue that is made here
_INVALID = -1  # TN_ERR_INVALID
_Where = Union[None, str, _core.Domain]
_Core = TypeVar("_Core")
_Self = TypeVar("_Self", bound="_Carried")


def _place(domain: _Where) -> _core.Domain:
    if isinstance(domain, _core.Domain):
        return domain
    if domain is None:
        return _domain.default()
    if isinstance(domain, str):
        return _domain.meet(domain)
    raise TypeError(f"domain must be a tenon.Domain, a name or None, not {type(domain).__name__}")


def _open_or_create(opened: Callable[[], _Core], created: Callable[[], _Core]) -> _Core:
    """Open the object or create it. Another process may create or end it in between: then retry."""
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
    name: str  # The name in the domain.
    domain: _core.Domain  # The domain that the object is in.
    _core: Any

    def __init__(self, name: str, domain: _core.Domain) -> None:
        self.name = name
        self.domain = domain

    def close(self) -> None:
        """Close the object in this process. Messages in a queue stay while another process has it open.

        Leased messages go back to their queue, and a lock or permits that this process holds are released.
        Threads of this process that wait in a call of this object raise ValueError within 0.1 s.
        """
        self._core.close()

    def __repr__(self) -> str:
        return f"<tenon.{type(self).__name__} {self.name!r} in the domain {self.domain.name!r}>"


def _invalid(text: str) -> _core.Invalid:
    error = _core.Invalid(text)
    error.status = _INVALID
    return error


class _Carried(_Named):
    """What also exists without a name: it goes to other processes by pickle. A `with` block closes it."""

    _kind: Any  # the class of `_core`

    def __reduce__(self) -> Tuple[Any, ...]:
        from .multiprocessing._objects import keep_for_child

        keep_for_child(self._core)
        return _open_carried, (type(self), self.domain.name, self._core.id, self.name)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


def _open_carried(kind: Type[_Self], domain: str, number: int, name: str) -> _Self:
    """What a pickled object becomes."""
    place = _domain.named(domain)
    thing = kind.__new__(kind)
    thing._core = kind._kind.open(place, number)
    _Named.__init__(thing, name, place)
    return thing


class Message:
    """A message that Queue.receive() took, leased to this process.

    If this process ends, or calls give_back(), before it calls ack(), another process gets the
    message, with `attempt` one higher. A `with` block acknowledges the message at its end, and gives
    it back if the block raises.
    """

    def __init__(self, core: _core.Message) -> None:
        self._core = core
        self._is_finished = False
        self._loaded: Any = None
        self._is_loaded = False

    @property
    def value(self) -> Any:
        """The object that was put. Raises Invalid if put() did not write the message.

        If this raises, the message, its `data` and its `tensors` stay as they were.
        """
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
        """The number of earlier deliveries."""
        return self._core.attempt

    def ack(self) -> None:
        """Acknowledge the message: no process gets it again."""
        self._core.ack()
        self._is_finished = True

    def give_back(self) -> None:
        """Return the message: the next process that receives gets it."""
        self._core.give_back()
        self._is_finished = True

    def __enter__(self) -> "Message":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._is_finished:
            self.ack() if kind is None else self.give_back()


class Queue(_Named):
    """A queue with a bound that any process of this user opens by its name.

    `name` has 1 to 47 of [A-Za-z0-9._-] and does not start with a dot. `domain` is a Domain, or the
    name of a domain that is joined or made; None is this process's own. With `lease`, a message that
    receive() took is delivered again if its process dies; without it, the message is lost with the
    process. A queue that this call makes has 1024 messages and no leases unless the arguments say
    otherwise. If the queue exists and differs from an argument that is given, the call raises
    Invalid; an argument that is None is not compared.
    Timeouts are in seconds: None waits without a limit, 0 tries once. TimedOut is a TimeoutError.
    """

    def __init__(
        self, name: str, *, domain: _Where = None, capacity: Optional[int] = None, lease: Optional[bool] = None
    ) -> None:
        place = _place(domain)
        policy = _LEASE if lease else _REDELIVER
        made = _CAPACITY if capacity is None else capacity
        self._core: _core.Queue = _open_or_create(
            lambda: _core.Queue.create(place, name, capacity=capacity or 0, policy=policy, existing=True),
            lambda: _core.Queue.create(place, name, capacity=made, policy=policy),
        )
        super().__init__(name, place)
        if lease is False and self._core.policy == _LEASE:
            self._core.close()
            raise _invalid(f"the queue {name!r} exists and has leases, and the call says lease=False")

    def close(self) -> None:
        super().close()
        _bell.of(self.domain).tell_all()  # coroutines of this process that wait raise Closed

    @property
    def capacity(self) -> int:
        """The number of messages that the queue holds at most."""
        return self._core.capacity

    def put(self, value: Any, timeout: Optional[float] = None) -> None:
        """Append an object that can be pickled; arrays and tensors in it travel in shared memory.

        Raises TimedOut, Closed, PeerDied.
        """
        self._core.put(value, timeout)

    def get(self, timeout: Optional[float] = None) -> Any:
        """Take the next object. If the queue has leases, the message is acknowledged at once.

        A message whose object cannot be made is not lost. Invalid is raised if put() did not write the
        message, and the exception of pickle, or another one, if this process cannot unpickle it. A
        queue with leases gets the message back, and any process may receive it. Without leases, the
        message stays the next one of this Queue object until receive() takes it: get() tries it again.

        Raises TimedOut, Closed, PeerDied, Invalid.
        """
        return self._core.get_or_keep(timeout)

    def receive(self, timeout: Optional[float] = None) -> Message:
        """Take the next Message, which the caller acknowledges. Without leases, ack() raises Stale.

        Raises TimedOut, Closed, PeerDied.
        """
        return Message(self._core.pop(timeout))

    async def get_async(self, timeout: Optional[float] = None) -> Any:
        """The same as get() for a coroutine: the event loop does other work meanwhile, and no thread is needed.

        If the coroutine is cancelled, no message is lost.
        """
        from . import _async  # imports asyncio, which takes long

        return await _async.take(self._core, self._core.get_or_keep, timeout)

    async def receive_async(self, timeout: Optional[float] = None) -> Message:
        """The same as receive() for a coroutine."""
        from . import _async

        return Message(await _async.take(self._core, self._core.pop, timeout))

    async def __aiter__(self) -> AsyncIterator[Any]:
        """`async for` takes objects until the queue is ended and empty."""
        while True:
            try:
                value = await self.get_async()
            except _core.Closed:
                return
            yield value

    def set_stream(self, device: Union[None, str, "_Device"], stream: Any = None) -> None:
        """Let the messages of this object follow a stream of a device, as the current one of a program.

        put() says, as Tensor.record() does, that the stream has been given the work on each tensor of
        this device, and get() and receive() let the stream wait for it, as Tensor.wait() does. No call
        waits. An incomplete tensor arrives, and its `is_incomplete` says so.

        Parameters
        ----------
        device : str or tenon.Device; None: messages follow no stream any more
        stream : int, the driver's handle; or an object with `cuda_stream` (PyTorch), `ptr` (CuPy) or
            `__cuda_stream__`. None is the legacy default stream. It must live until the next call.
        """
        self._core.set_stream(device, stream)

    def end(self) -> None:
        """End the queue for all processes: put() raises Closed, and get() does once the queue is empty."""
        self._core.end()

    def qsize(self) -> int:
        """The approximate number of messages that wait. Leased messages are not counted."""
        return self._core.count()


class Lock(_Named):
    """A lock for the threads of all processes of this user. It is released if its owner dies.

    acquire() sets `owner_died` and `dead_owner_pid`, and so does a `with` block. The death is known
    only while a process has the lock open: a lock that no other process has open ends with its owner,
    and the next process that opens the name makes a new lock.
    """

    owner_died: bool  # Whether the last owner died with the lock: what the lock protects may be half changed.
    dead_owner_pid: Optional[int]  # The process number of that last owner, None if `owner_died` is false.

    def __init__(self, name: str, *, domain: _Where = None) -> None:
        place = _place(domain)
        self._core: _core.Lock = _open_or_create(
            lambda: _core.Lock.open(place, name), lambda: _core.Lock.create(place, name)
        )
        self.owner_died = False
        self.dead_owner_pid = None
        super().__init__(name, place)

    def acquire(self, timeout: Optional[float] = None) -> bool:
        """Acquire the lock; False if the timeout passed.

        Afterwards `owner_died` says whether the last owner died holding the lock, and
        `dead_owner_pid` which process that was.
        """
        result = self._core.acquire(timeout)
        if result >= 0:
            self.owner_died = result > 0
            self.dead_owner_pid = result or None
        return result >= 0

    def release(self) -> None:
        """Release the lock. Raises Invalid if this thread does not hold the lock."""
        self._core.release()

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Event(_Named):
    """An event that any process of this user sets, clears and waits for."""

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
        """Wait until the event is set; False if the timeout passed."""
        return self._core.wait(timeout)


class Semaphore(_Named):
    """Permits that processes of this user acquire and release. A dead process's permits come back.

    A semaphore that this call makes has `permits` permits, None means 1. If the semaphore exists and
    was made with another number than the one given, the call raises Invalid.
    """

    def __init__(self, name: str, permits: Optional[int] = None, *, domain: _Where = None) -> None:
        place = _place(domain)
        self._core: _core.Semaphore = _open_or_create(
            lambda: _core.Semaphore.create(place, name, permits or 0, existing=True),
            lambda: _core.Semaphore.create(place, name, 1 if permits is None else permits, True),
        )
        super().__init__(name, place)

    def acquire(self, timeout: Optional[float] = None) -> bool:
        """Acquire a permit; False if the timeout passed."""
        return self._core.acquire(timeout)

    def release(self) -> None:
        self._core.release()

    def value(self) -> int:
        """The number of free permits."""
        return self._core.get()

    def __enter__(self) -> "Semaphore":
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()
