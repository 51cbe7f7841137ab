# SPDX-License-Identifier: Apache-2.0
"""Channels: each message goes to all subscribers, without a copy."""

from typing import Any, AsyncIterator, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

from . import _bell, _core
from ._meeting import _Carried, _invalid, _place, _Where

_POLICIES = ("wait", "drop", "disconnect")  # TN_CHANNEL_*
_STARTS = ("newest", "oldest")  # TN_FROM_*
_Self = TypeVar("_Self", bound="Channel")


class ChannelInfo(NamedTuple):
    """How a channel was made, and what it did since then: what Channel.info() returns."""

    capacity: int  # The number of messages that the channel has room for.
    history: int  # The number of messages that it keeps for subscribers to come.
    most_subscribers: int  # The number of subscribers that it may have at a time.
    policy: str  # What happens to a subscriber that is `capacity` messages behind.
    subscribers: int  # Subscribers that it has now.
    kept: int  # Messages that it has now.
    published: int  # Messages since the channel was made.
    dropped: int  # Messages that subscribers have lost.
    disconnected: int  # Subscribers that were disconnected.
    most_behind: int  # Messages that the slowest subscriber has not received.
    slowest_pid: Optional[int]  # The process of that subscriber; None: no subscriber is behind.
    ended: bool  # Whether a process has called end().
    subscribed: bool  # Whether this object has a subscription of this process, and was not disconnected.
    waiting: int  # Messages that this object can receive now.
    lost: int  # Messages that the subscription of this object has lost.


def _number(what: str, word: str, words: Tuple[str, ...]) -> int:
    if word not in words:
        raise _invalid(f"the {what} of a channel is one of {', '.join(map(repr, words))}, not {word!r}")
    return words.index(word)


class Channel(_Carried):
    """A channel of messages: each one that a process publishes goes to every subscriber.

    A message is any object that can be pickled. Arrays and tensors in it are in shared memory: an array
    is copied there once by the publisher, unless it lies there already, and no subscriber copies it. All
    subscribers use the same memory: who writes to an array of a message, writes to the array of all.

    The first process that opens a name makes the channel. The channel, and the messages that nobody has
    received, end when the last process that has it open closed it or ended. It is picklable, and a forked
    child may use its parent's; a subscription stays with its process, so a child subscribes itself.

    Any number of threads may use one channel object. They share its subscription, so each message goes to
    one of them; no thread may subscribe while another one receives. A process that is to receive the same
    messages twice opens the channel twice.

    Timeouts are in seconds: None waits without a limit, 0 tries once. TimedOut is a TimeoutError.

    Parameters
    ----------
    name : str, 1 to 47 of [A-Za-z0-9._-], not starting with a dot
        None makes a channel without a name, which other processes get from this one.
    domain : tenon.Domain, or the name of a domain that is joined or made
        None is this process's own.
    capacity : int, the messages that it has room for, 1 to 65536; 64 if the channel is made without
    history : int, the last messages that it keeps for subscribers to come; 0 if the channel is made without
    subscribers : int, the most subscribers at a time, 1 to 1024; 64 if the channel is made without
    policy : "wait", "drop" or "disconnect": what happens when a subscriber is `capacity` messages behind
        "wait", if the channel is made without: publish() waits. "drop": the subscriber loses its oldest
        message. "disconnect": the subscription ends, and receive() raises Stale.

    Raises
    ------
    tenon.Invalid
        The channel exists and differs from an argument that is given. One that is None is not compared.
    """

    _kind = _core.Channel

    def __init__(
        self,
        name: Optional[str] = None,
        *,
        domain: _Where = None,
        capacity: Optional[int] = None,
        history: Optional[int] = None,
        subscribers: Optional[int] = None,
        policy: Optional[str] = None,
    ) -> None:
        place = _place(domain)
        number = 0 if policy is None else _number("policy", policy, _POLICIES)
        self._core: _core.Channel = _core.Channel.open_or_create(
            place,
            name,
            capacity=capacity or 0,
            history=history or 0,
            subscribers=subscribers or 0,
            policy=number,
        )
        super().__init__(name or "", place)
        self._compare("history", history)  # the core compares what is not 0
        self._compare("policy", policy)

    def _compare(self, what: str, wanted: Any) -> None:
        found = getattr(self.info(), what)
        if wanted is not None and wanted != found:
            self._core.close()
            raise _invalid(f"the channel {self.name!r} has the {what} {found!r} instead of {wanted!r}")

    def close(self) -> None:
        """Close the channel in this process, which gives up its subscription. Arrays of messages stay.

        Threads of this process that wait in a call of this object raise ValueError within 0.1 s.
        """
        self._core.close()
        _bell.of(self.domain).tell_all()  # coroutines of this process that wait raise ValueError

    # ---- messages

    def publish(self, value: Any, timeout: Optional[float] = None) -> None:
        """Send an object that can be pickled to all subscribers; arrays and tensors in it travel in shared memory.

        A process becomes a publisher with its first message.

        Parameters
        ----------
        value : any object that can be pickled
        timeout : float, seconds to wait for the slowest subscriber, and for memory

        Raises
        ------
        tenon.TimedOut
            The policy is "wait", and a subscriber is `capacity` messages behind: the text names its process. Or
            another process was in the middle of a call for the timeout, and at least 5 seconds: it may be stopped.
        tenon.Closed
            The channel was ended.
        tenon.NoMemory
            The message exceeds the quota of the domain.
        """
        self._core.publish(value, timeout)

    def subscribe(self: _Self, start: str = "newest") -> _Self:
        """Make this object a subscriber. One that is a subscriber already, or was disconnected, subscribes anew.

        Parameters
        ----------
        start : "newest", the next message that is published; or "oldest", the oldest one that the channel still has

        Returns
        -------
        this object, for a loop: `for value in channel.subscribe("oldest")`

        Raises
        ------
        tenon.Full
            The channel has as many subscribers as it may have.
        tenon.Invalid
            Another thread receives with this object.
        """
        self._core.subscribe(_number("start", start, _STARTS))
        return self

    def unsubscribe(self) -> None:
        """Give up the subscription. Without one the call does nothing."""
        self._core.unsubscribe()

    def receive(self, timeout: Optional[float] = None) -> Any:
        """The next object for this subscriber.

        A message whose object cannot be made raises the exception of pickle, or another one, and is lost to
        this subscriber.

        Raises
        ------
        tenon.TimedOut
            No message came.
        tenon.Closed
            The channel was ended, and this subscriber has received all of its messages.
        tenon.PeerDied
            All messages were received, a publisher died, and no other publisher is left.
        tenon.Stale
            This subscriber was too slow, and was disconnected. It may subscribe again.
        tenon.Invalid
            This process has not subscribed with this object, or publish() of Python did not write the message.
        """
        return self._core.receive(timeout)

    def receive_parts(self, timeout: Optional[float] = None) -> Tuple[bytes, List[_core.Tensor]]:
        """The bytes and the tensors of the next message, as a program in C publishes and receives them.

        Raises what receive() raises.
        """
        return self._core.receive_parts(timeout)

    def __iter__(self) -> Iterator[Any]:
        """Receive objects until the channel is ended. Subscribes from the newest message on, if it has not yet."""
        self._subscribe_once()
        return self._each()

    def _subscribe_once(self) -> None:
        if not self.info().subscribed:
            self.subscribe()

    def _each(self) -> Iterator[Any]:
        while True:
            try:
                value = self._core.receive()
            except _core.Closed:
                if self.domain.closed:
                    raise
                return
            yield value

    async def receive_async(self, timeout: Optional[float] = None) -> Any:
        """The same as receive() for a coroutine: the event loop does other work meanwhile, and no thread is needed.

        If the coroutine is cancelled, no message is lost.
        """
        from . import _async  # imports asyncio, which takes long

        return await _async.take(self._core, self._core.receive, timeout)

    def __aiter__(self) -> AsyncIterator[Any]:
        """The same as the loop of __iter__() for a coroutine."""
        self._subscribe_once()
        return self._each_async()

    async def _each_async(self) -> AsyncIterator[Any]:
        while True:
            try:
                value = await self.receive_async()
            except _core.Closed:
                if self.domain.closed:
                    raise
                return
            yield value

    # ---- all processes

    def end(self) -> None:
        """End the channel for all processes: publish() raises Closed, and receive() does once nothing is left."""
        self._core.end()

    def info(self) -> ChannelInfo:
        """How the channel was made, and what it did since then."""
        fields = self._core.info()
        return ChannelInfo(*fields)._replace(policy=_POLICIES[fields[3]])
