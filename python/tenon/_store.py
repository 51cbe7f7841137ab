# SPDX-License-Identifier: Apache-2.0
"""Stores: values that all processes of a domain get by a key, without a copy."""

from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from . import _core
from ._meeting import _Carried, _invalid, _place, _Where


class StoreEntry(NamedTuple):
    """What a store has under a key: what Store.entries() lists."""

    key: str
    version: int  # The number of the change that put the value.
    nbytes: int  # The bytes that count against the budget of the store.
    seconds_left: Optional[float]  # Until the value is removed; None: it has no such time.
    tensors: int  # How many tensors the value has.
    pinned: bool  # Whether the value stays when others are evicted.
    maker_pid: Optional[int]  # The process that makes the value now; None: the value is there.


class StoreInfo(NamedTuple):
    """How a store was made, and what it did since then: what Store.info() returns."""

    capacity: int  # The number of keys that the store holds at most.
    evict: bool  # Whether a put into a full store removes the values that were used least recently.
    budget_bytes: int  # The most bytes of all values; 0: there is no limit.
    count: int  # Keys that have a value, or a process that makes it.
    nbytes: int  # Bytes of all values.
    version: int  # The number of the last change.
    hits: int  # Gets of a key that had a value.
    misses: int  # Gets of a key that had none.
    puts: int  # Values that were put.
    deletes: int  # Values that were deleted.
    evictions: int  # Values that were removed to make room.
    expirations: int  # Values that were removed at the end of their lifetime.


class Store(_Carried):
    """A map from keys to values that all processes of a domain share.

    A value is any object that can be pickled. Arrays and tensors in it are in shared memory: a value that
    is put is copied there once, unless it lies there already, and no get copies it. Who has got a value
    keeps it, whatever happens to its key. All processes that have a value use the same memory: who writes
    to an array of it, writes to the array of all.

    The first process that opens a name makes the store. The store ends when the last process that has it
    open closed it or ended. It is picklable, and a forked child may use its parent's.

    `store[key]`, `store[key] = value`, `del store[key]`, `key in store`, `len(store)` and iteration do what
    they do with a dict. A key is text of 1 to 512 bytes in UTF-8, without NUL. A key that has no value raises
    KeyError; text that is no key raises Invalid, a ValueError, and what is no str TypeError. Any number of
    threads may use one store.

    Parameters
    ----------
    name : str, 1 to 47 of [A-Za-z0-9._-], not starting with a dot
        None makes a store without a name, which other processes get from this one.
    domain : tenon.Domain, or the name of a domain that is joined or made
        None is this process's own.
    capacity : int, the most keys, 1 to 2**20; 4096 if the store is made without
    budget_bytes : int, the most bytes of all values; no limit if the store is made without
        A value's bytes are those of its tensors, counted for each value anew, and of its pickle.
    evict : bool, whether a put into a full store removes values that were used least recently
        Without it such a put raises. What is pinned, or what a process holds, is not removed.

    Raises
    ------
    tenon.Invalid
        The store exists and differs from an argument that is given. One that is None is not compared.
    """

    _kind = _core.Store

    def __init__(
        self,
        name: Optional[str] = None,
        *,
        domain: _Where = None,
        capacity: Optional[int] = None,
        budget_bytes: Optional[int] = None,
        evict: Optional[bool] = None,
    ) -> None:
        place = _place(domain)
        self._core: _core.Store = _core.Store.open_or_create(
            place, name, capacity=capacity or 0, budget_bytes=budget_bytes or 0, evict=bool(evict)
        )
        if evict is False and self.info().evict:
            self._core.close()
            raise _invalid(f"the store {name!r} exists and evicts values, and the call says evict=False")
        super().__init__(name or "", place)

    def close(self) -> None:
        """Close the store in this process. If no other process has it open, the store and its values end.

        Values that this process has got stay. Another process makes what this one was about to make. Threads of
        this process that wait in a call of this object raise ValueError within 0.1 s.
        """
        self._core.close()

    # ---- values

    def __getitem__(self, key: str) -> Any:
        return self._core.get(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._core.put(key, value)

    def __delitem__(self, key: str) -> None:
        self._core.delete(key)

    def __contains__(self, key: str) -> bool:
        return self._core.contains(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default` if the key has none."""
        return self._core.get(key, default)

    def get_with_version(self, key: str) -> Tuple[Any, int]:
        """The value of a key, and the version that put() returned for it. Raises KeyError."""
        return self._core.get_with_version(key)

    def put(
        self,
        key: str,
        value: Any,
        *,
        if_absent: bool = False,
        if_version: Optional[int] = None,
        lifetime: Optional[float] = None,
        pinned: bool = False,
        timeout: Optional[float] = 0,
    ) -> int:
        """Give a key a value, in place of the one that it has. If the process dies, the key has one or the other.

        Parameters
        ----------
        key : str
        value : any object that can be pickled
        if_absent : bool, whether a key that has a value keeps it: then Exists is raised
        if_version : int, the version that the key's value must have; None: any, or no value
        lifetime : float, seconds from now, after which the value is removed; None: never
        pinned : bool, whether the value stays when others are evicted
        timeout : float, seconds to wait for memory while the domain's quota is used up; None without a limit

        Returns
        -------
        int, the version of the value, which is higher than that of each earlier value of the store

        Raises
        ------
        KeyError
            `if_version` is given, and the key has no value.
        tenon.Stale
            `if_version` is given, and the key's value has another version.
        tenon.Exists
            `if_absent` is given, and the key has a value.
        tenon.Full
            The store has as many keys as it can hold, and nothing that may be evicted.
        tenon.NoMemory
            The value exceeds the budget of the store or the quota of the domain.
        tenon.TimedOut
            Another process was in the middle of a change for 5 seconds: it may be stopped.
        """
        return self._core.put(
            key,
            value,
            if_absent=if_absent,
            if_version=if_version,
            lifetime=lifetime,
            pinned=pinned,
            timeout=timeout,
        )

    def get_or_make(
        self,
        key: str,
        make: Callable[[], Any],
        *,
        timeout: Optional[float] = None,
        lifetime: Optional[float] = None,
        pinned: bool = False,
    ) -> Any:
        """The value of a key. If it has none, one process calls make() and puts the result; the others wait for it.

        If make() raises, or its process dies, the next process that waits calls it. Threads of one process
        are treated as processes. make() must not ask for the same key.

        Parameters
        ----------
        key : str
        make : function without arguments, which returns the value
        timeout : float, seconds to wait for another process that makes the value; None without a limit
        lifetime, pinned : as of put(), for a value that is made here

        Returns
        -------
        the value as all processes have it: what is private in the result of make() has been copied once

        Raises
        ------
        tenon.TimedOut
            Another process still makes the value.
        what make() and put() raise
        """
        return self._core.get_or_make(key, make, timeout=timeout, lifetime=lifetime, pinned=pinned)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value. Of all processes that pop a value, one gets it.

        Raises KeyError if the key has no value, unless a default is given.
        """
        if len(default) > 1:
            raise TypeError(f"pop() takes a key and one default, not {len(default)}")
        while True:
            try:
                value, version = self._core.get_with_version(key)
                self._core.delete(key, version)
            except _core.Stale:
                continue  # another value has come
            except KeyError:
                if default:
                    return default[0]
                raise
            return value

    def parts(self, key: str) -> Tuple[bytes, List[_core.Tensor]]:
        """The bytes and the tensors of a value, as a program in C puts and gets them. Raises KeyError."""
        return self._core.parts(key)

    def pin(self, key: str) -> None:
        """Keep the value of a key when others are evicted. A put of another value chooses anew. Raises KeyError."""
        self._core.set_pinned(key, True)

    def unpin(self, key: str) -> None:
        """Let the value of a key be evicted again. Raises KeyError."""
        self._core.set_pinned(key, False)

    # ---- all keys

    def __len__(self) -> int:
        return self._core.count()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self, prefix: str = "") -> List[str]:
        """The keys that have a value and begin with `prefix`, in no order."""
        return [entry[0] for entry in self._core.entries(prefix) if entry[-1] is None]

    def items(self, prefix: str = "") -> Iterator[Tuple[str, Any]]:
        """The keys that begin with `prefix`, and their values. A key that is removed meanwhile is left out."""
        for key in self.keys(prefix):
            try:
                value = self._core.get(key)
            except KeyError:
                continue
            yield key, value

    def entries(self, prefix: str = "") -> List[StoreEntry]:
        """What the store has under each key that begins with `prefix`, without the values. Also keys whose value is being made."""
        return [StoreEntry(*entry) for entry in self._core.entries(prefix)]

    def info(self) -> StoreInfo:
        """How the store was made, and what it did since then."""
        return StoreInfo(*self._core.info())

    # ---- changes

    def wait(self, prefix: str = "", since: int = 0, timeout: Optional[float] = None) -> int:
        """Wait until a key that begins with `prefix` gets a value or loses it, after a version.

        The call may also return after the change of another key: look what has changed.

        Parameters
        ----------
        prefix : str; empty: any key
        since : int, a version that put(), wait() or info() gave; 0: the beginning of the store
        timeout : float, seconds; None without a limit

        Returns
        -------
        int, the version of the store's last change, for the next call

        Raises
        ------
        tenon.TimedOut
        """
        return self._core.wait(prefix, since, timeout)

    def watch(self, prefix: str = "") -> Iterator[int]:
        """Iterate over changes of keys that begin with `prefix`: versions, as wait() returns them, from now on.

        Changes that come while the loop is busy count as one.
        """
        return self._watch(prefix, StoreInfo(*self._core.info()).version)

    def _watch(self, prefix: str, version: int) -> Iterator[int]:
        while True:
            version = self._core.wait(prefix, version)
            yield version
