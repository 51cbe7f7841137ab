# SPDX-License-Identifier: Apache-2.0
"""The extension over the C library. It is private: programs use `tenon` and `tenon.multiprocessing`.

A timeout is in seconds: None waits without a limit, 0 or less tries once. Every wait releases the
GIL, and Ctrl-C ends it. A dtype is a name, as in "float32". Shapes and strides are tuples of numbers
of elements.
"""

from typing import Any, Callable, Iterator, Optional, Sequence, Tuple, Union, final

from typing_extensions import Self, disjoint_base

from tenon._devices import Device

_Timeout = Optional[float]
_Shape = Tuple[int, ...]
_Device = Union[str, Device]
_Stream = Any  # None, the driver's handle as an int, or an object with cuda_stream, ptr or __cuda_stream__
_GivenShape = Union[int, Sequence[int]]

# ---- errors: one class for each status, below Error and the built-in of include/tenon/status.h
class Error(Exception):
    status: int  # TN_ERR_*
    pid: Optional[int]  # of the process that died, if the error is PeerDied
    seat: Optional[int]

class Invalid(Error, ValueError): ...
class TimedOut(Error, TimeoutError): ...
class Unsupported(Error, NotImplementedError): ...
class NotFound(Error, FileNotFoundError): ...
class Exists(Error, FileExistsError): ...
class Denied(Error, PermissionError): ...
class Interrupted(Error, InterruptedError): ...
class Closed(Error, BrokenPipeError): ...
class PeerDied(Error, BrokenPipeError): ...
class Stale(Error, ValueError): ...
class ChildFailed(Error, ChildProcessError): ...
class NoMemory(Error, MemoryError): ...
class Full(Error, OSError): ...
class SystemFailed(Error, OSError): ...  # TN_ERR_SYSTEM
class ManagerFailed(Error, OSError): ...
class DeviceFailed(Error, OSError): ...
class Corrupt(Error, RuntimeError): ...
class VersionMismatch(Error, RuntimeError): ...
class Forked(Error, RuntimeError): ...

# ---- the domain
@final
class Domain:
    @property
    def name(self) -> str: ...  # "" if anonymous
    @property
    def seat(self) -> int: ...
    @property
    def member(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def quota_bytes(self) -> int: ...
    @classmethod
    def create(cls, name: Optional[str] = None, *, quota_bytes: int = 0, watermark_bytes: int = 0, seats: int = 0,
               blocks: int = 0, objects: int = 0, tickets: int = 0, manager: bool = True) -> Domain:
        """Make a domain, and take the first seat in it. Raises Exists if there is a domain of this name.

        Without a name, the domain is anonymous: other processes join it by inheritance only. 0 means
        the default.

        Parameters
        ----------
        name : str, 1 to 63 of [A-Za-z0-9._-], not starting with a dot
        quota_bytes : int, the most memory of all tensors
        watermark_bytes : int, the free memory that is kept for the next tensors
        seats : int, the most processes at once, one of them tenond
        blocks : int, the most blocks of memory of one size class
        objects : int, the most queues, locks, events and so on
        tickets : int, the most handles at once
        manager : bool, whether tenond manages the domain, which a domain with a name needs
        """
    @classmethod
    def join(cls, name: str, /) -> Domain:
        """Take a seat in the domain of this name, or of this id. Raises NotFound if there is none."""
    @classmethod
    def open(cls, name: str, *, quota_bytes: int = 0, watermark_bytes: int = 0, seats: int = 0,
             blocks: int = 0, objects: int = 0, tickets: int = 0) -> Domain:
        """Join the domain of this name, or make it if there is none.

        The other arguments are those of create(). They matter only if this call makes the domain: a
        domain that exists stays as it is.
        """
    @classmethod
    def inherit(cls) -> Domain:
        """Take a seat in the domain that the environment variable TENON_DOMAIN names."""
    def close(self, *, at_exit: bool = False) -> None:
        """Leave the domain. Memory stays mapped as long as a tensor or an array uses it.

        A thread that waits in the domain gets Closed. With `at_exit`, SystemExit ends the thread.
        """
    def has_member(self, member: int, /) -> bool: ...
    def reap(self) -> int: ...
    def trim(self, keep_bytes: int = 0) -> int: ...
    def set_quota(self, quota_bytes: int, /) -> None: ...
    def set_watermark(self, watermark_bytes: int, /) -> None: ...
    def audit(self, repair: bool = False) -> list[str]: ...
    def poll_fd(self) -> int: ...
    def poll_clear(self) -> None: ...
    def empty(self, shape: _GivenShape, dtype: Any, timeout: _Timeout = 0, *, strategy: Optional[str] = None,
              write_once: bool = False, device: Optional[_Device] = None) -> Tensor: ...
    def zeros(self, shape: _GivenShape, dtype: Any, timeout: _Timeout = 0, *, strategy: Optional[str] = None,
              write_once: bool = False, device: Optional[_Device] = None) -> Tensor: ...
    def find(self, address: int, size_bytes: int, /) -> Optional[Tensor]:
        """The whole storage that these bytes of this process lie in, as uint8 [n]; None if it is not of this domain."""
    def load_handle(self, handle: bytes, /) -> Tensor: ...

def set_default_domain(get: Callable[[], Domain], /) -> None:
    """Set the function that makes or joins this process's domain. It is called once, and again after close()."""
def default_domain() -> Domain: ...

# ---- tensors
@final
class Tensor:
    """A tensor, in shared memory or private.

    `tensor[1:3, ::2]` is a view of the same memory, and `tensor[0, 1]` an element; `tensor[1:3] = 0` writes to it. Indices
    are integers, slices, None and `...`, as in NumPy. numpy.asarray(tensor) and torch.from_dlpack(tensor) copy nothing.

    The elements of a tensor on a device cannot be read or written on the CPU: what would do so raises TypeError.
    """
    @property
    def shape(self) -> _Shape: ...
    @property
    def strides(self) -> _Shape: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def size(self) -> int: ...  # elements
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def byte_offset(self) -> int: ...  # of the first element, from the start of the storage
    @property
    def storage_bytes(self) -> int: ...
    @property
    def address(self) -> int: ...  # of the first element; 0 if the tensor is empty
    @property
    def device(self) -> str: ...  # "cpu", or as "cuda:0", by the numbers of this process
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. Raises AttributeError if the tensor is not on a CUDA device.

        If work that a process recorded is still to be done, the legacy default stream waits for it, and `stream` is 1.
        """
    @property
    def is_shared(self) -> bool: ...
    @property
    def is_incomplete(self) -> bool:
        """Whether a process died before its device had done what it recorded in this tensor."""
    @property
    def is_contiguous(self) -> bool: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def strategy(self) -> Optional[str]: ...  # None: private
    @property
    def path(self) -> Optional[str]: ...
    @property
    def domain(self) -> Optional[Domain]: ...
    @property
    def T(self) -> Tensor: ...
    # attributes, which are sent with the tensor
    flags: int  # TN_REQUIRES_GRAD, ...
    requires_grad: bool
    name: Optional[str]
    axis_names: Optional[Tuple[str, ...]]
    lod: Optional[list[list[int]]]
    quantizer: Optional[Tuple[Sequence[float], Sequence[int], Optional[int]]]  # (scales, zero_points, axis or None)
    metadata: dict[str, bytes]  # a copy; assign to change it
    def share(self, domain: Optional[Domain] = None, timeout: _Timeout = 0, *, stream: _Stream = None) -> Tensor:
        """Move the storage into the domain, for all its views. Returns the tensor itself.

        Memory of another allocator on a CUDA device stays where it is, if processes can share it there. Else it is
        copied on the device, after what `stream` was given, and the call does not wait.
        """
    def view(self, shape: _GivenShape, dtype: Optional[str] = None, strides: Optional[_Shape] = None,
             byte_offset: Optional[int] = None) -> Tensor: ...
    def reshape(self, *shape: Any) -> Tensor: ...
    def transpose(self, *axes: int) -> Tensor: ...
    def copy(self) -> Tensor:
        """A row-major copy in the same domain; a private one of a private tensor."""
    def copy_from(self, source: Any, /) -> None:
        """Copy all elements of a tensor, or of what can be one, here. Either may be on any device."""
    def record(self, stream: _Stream = None) -> None:
        """Say that a stream has been given all work on the tensor that this process wants done for now.

        Each message and handle that is made afterwards tells it, and the memory goes to others only when it is done.
        The call does not wait. Raises Unsupported for a tensor on the CPU, Invalid for a stream of another device or
        one that is being captured.

        Parameters
        ----------
        stream : int, the driver's handle; or an object with `cuda_stream` (PyTorch), `ptr` (CuPy) or `__cuda_stream__`
            None is the legacy default stream.
        """
    def wait(self, stream: _Stream = None) -> None:
        """Let a stream do what it is given from now on only once all that was recorded is done.

        The call does not wait. Raises PeerDied if a process died before its device had done it.
        """
    def sync(self, timeout: _Timeout = None) -> None:
        """Wait in this call until all that was recorded is done. Raises TimedOut, PeerDied."""
    def to(self, device: _Device, stream: _Stream = None) -> Tensor:
        """A tensor on another device that has the elements of this one; the tensor itself if it is on that device.

        The new tensor is in the domain of this one, or in this process's if this one is private.

        Parameters
        ----------
        device : str, "cpu", "cuda:0", or a UUID; or a tenon.Device
        stream : as of record()
            The device copies in the order of this stream, and the call does not wait. The elements are there once the
            stream has done the copy, and this tensor must not be written before. With None, or the int 0, the call waits
            for the copy.
        """
    def tobytes(self) -> bytes: ...
    def tolist(self) -> Any: ...
    def item(self) -> Any: ...
    def same_storage(self, other: Tensor, /) -> bool: ...
    def to_handle(self, uses: int = 1, lifetime: _Timeout = ...) -> bytes:
        """A handle: bytes that any member of the domain can load `uses` times with Domain.load_handle().

        Parameters
        ----------
        uses : int, 1 to 1048575
            After the last use, and after its lifetime, the handle is worth nothing: load_handle() raises
            Stale. The tensors that were loaded stay.
        lifetime : float, seconds from now
            None sets no end; 0 ends the handle when this process leaves the domain or dies. By default
            a handle lasts 60 seconds longer than this process.
        """
    def __getitem__(self, index: Any, /) -> Any: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __copy__(self) -> Tensor: ...
    def __deepcopy__(self, memo: Any, /) -> Tensor: ...
    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...
    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...  # where the dtype has a letter there

def private(shape: _GivenShape, dtype: Any) -> Tensor: ...
def from_dlpack(source: Any, /, *, stream: _Stream = None) -> Tensor:
    """A private tensor over the memory of an object with __dlpack__, or of a capsule, without a copy.

    `stream` is the one on which this program will use the tensor: the source orders its own work before it.
    """
def from_cuda_array(source: Any, /, *, stream: _Stream = None) -> Tensor:
    """A private tensor over the memory of an object with __cuda_array_interface__, without a copy.

    The tensor keeps the object, and is on the device that the driver names for the address. Versions 2 and 3 are
    understood. Raises TypeError and ValueError, which name the entry that is wrong; NotFound and Unsupported as empty()
    of a device.

    Parameters
    ----------
    source : object
        A library that has DLPack as well tells more by it: from_dlpack().
    stream : as of Tensor.record()
        The one on which this program will use the tensor. If the interface names another one, the call waits until that
        has done its work. With -1 the call does not wait: the program orders its work itself.
    """
def from_buffer(source: Any, /) -> Tensor:
    """A private tensor over the memory of an object with the buffer protocol, without a copy."""
def dtype_name(dtype: Any, /) -> str:
    """The name of a dtype of NumPy or PyTorch, of a name, or of a Python type. Raises TypeError."""
def devices() -> list[Tuple[str, str, str, int, int, bool]]:
    """The fields of a tenon.Device, for each device but the CPU. Empty if there is no driver or no device."""
def find_device(text: str, /) -> str:
    """The name of a device, as "cuda:0", for a name or a UUID. Raises NotFound, Unsupported and Invalid."""
def set_torch_memory(domain: Domain, /) -> None:
    """Let tenon_torch_alloc(), a function in C for PyTorch's pluggable allocator, take memory of this domain."""
def torch_memory_count() -> int: ...  # pieces of tenon_torch_alloc() that are not free again
def strategies() -> list[str]: ...
def get_strategy() -> str: ...
def set_strategy(name: str, /) -> None: ...

# ---- messages
@final
class Message:
    @property
    def data(self) -> bytes: ...
    @property
    def tensors(self) -> list[Tensor]: ...
    @property
    def attempt(self) -> int: ...  # earlier deliveries of the message
    @property
    def producer_seat(self) -> int: ...
    def load(self) -> Any: ...
    def ack(self) -> None: ...
    def give_back(self) -> None: ...

@final
class Queue:
    @property
    def id(self) -> int: ...
    @property
    def domain(self) -> Domain: ...
    @property
    def capacity(self) -> int: ...
    @property
    def policy(self) -> int: ...
    @classmethod
    def create(cls, domain: Domain, name: Optional[str] = None, *, capacity: int = 0, inline_bytes: int = 0,
               policy: int = 0, existing: bool = False) -> Queue:
        """policy: REDELIVER 0, DROP 1, LEASE 2.

        With `existing`, open the queue of this name instead. A number that is not 0 must be that of the queue.
        """
    @classmethod
    def open(cls, domain: Domain, which: str | int, /) -> Queue: ...
    def close(self) -> None: ...
    def attach(self, roles: int, /) -> None: ...  # PRODUCER 1, CONSUMER 2
    def end(self) -> None: ...
    def set_stream(self, device: Optional[_Device], stream: _Stream = None) -> None:
        """Record each tensor on this device that is put, on the stream, and let the stream wait for each that is got.

        None for the device ends that. The stream must live until then, or until the queue is closed.
        """
    def push(self, data: bytes, tensors: Sequence[Tensor] = (), timeout: _Timeout = None) -> None: ...
    def pop(self, timeout: _Timeout = None) -> Message: ...
    def put(self, value: Any, timeout: _Timeout = None) -> None:
        """Push any object that can be pickled. Arrays in it travel in shared memory, not in the pickle."""
    def get(self, timeout: _Timeout = None) -> Any:
        """If the value cannot be made, a leased message goes back to the queue, and any other is lost."""
    def get_or_keep(self, timeout: _Timeout = None) -> Any:
        """The same, but a message without a lease stays the next one of this object."""
    def count(self) -> int: ...
    def peers(self, roles: int, /) -> int: ...
    def watch(self, watch: bool, /) -> None: ...
    @staticmethod
    def wait_any(queues: Sequence[Queue], timeout: _Timeout = None) -> int: ...

@final
class Backlog:
    """Messages that wait in this process until their queue has room."""
    def __new__(cls, queue: Queue, counter: Semaphore = ..., counter2: Semaphore = ..., /) -> Backlog:
        """The backlog holds a permit of each semaphore for each message that waits."""
    @property
    def count(self) -> int: ...
    def put(self, value: Any, /) -> bool:
        """Push the value, or append it. True: the caller starts a thread that calls feed(), or calls no_feeder()."""
    def feed(self) -> None: ...
    def no_feeder(self) -> None: ...
    def close(self) -> None: ...

def dumps(value: Any, domain: Optional[Domain] = None, /) -> Tuple[bytes, list[Tensor]]:
    """What put() would push: a pickle, and the arrays and tensors as tensors of the domain."""
def loads(data: bytes, tensors: Sequence[Tensor], /) -> Any: ...
def register(kind: type, reduce: Callable[[Any], Any], /) -> None:
    """Set the reducer that dumps() uses for objects of exactly this type, before those of copyreg and ForkingPickler."""
def is_dumping() -> bool:
    """Whether dumps() runs in this thread, so that send() works."""
def dumping() -> Optional[Tuple[Domain, _Timeout]]:
    """In a reducer that dumps() calls: the domain, and the seconds that may be spent waiting for memory. Else None."""
def send(tensor: Tensor, /) -> int:
    """In a reducer: attach a tensor to the message. take() of the returned number gives it in loads()."""
def note_copy(size_bytes: int, /) -> None:
    """In a reducer: say that a tensor was copied into shared memory to be sent."""
def count_into(buffer: Any, /) -> None:
    """Count what this process sends in this memory of 32 bytes from now on, which other processes may use too."""
def traffic() -> Tuple[int, int, int, int]:
    """(count, bytes, count, bytes) of the arrays and tensors that were sent: without a copy, and with one."""
def take(number: int, /) -> Tensor:
    """While loads() runs: the tensor with that number."""
def take_array(number: int, /) -> Any: ...
def take_fixed_array(number: int, /) -> Any: ...

# ---- synchronization
@final
class Event:
    @property
    def id(self) -> int: ...
    @property
    def domain(self) -> Domain: ...
    @classmethod
    def create(cls, domain: Domain, name: Optional[str] = None, auto_reset: bool = False) -> Event: ...
    @classmethod
    def open(cls, domain: Domain, which: str | int, /) -> Event: ...
    def close(self) -> None: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: _Timeout = None) -> bool: ...

@final
class Semaphore:
    @property
    def id(self) -> int: ...
    @property
    def domain(self) -> Domain: ...
    @classmethod
    def create(cls, domain: Domain, name: Optional[str] = None, permits: int = 1, owned: bool = False,
               any_releases: bool = False, *, existing: bool = False) -> Semaphore:
        """With `existing`, open the semaphore of this name instead, which must have been made as the arguments say."""
    @classmethod
    def open(cls, domain: Domain, which: str | int, /) -> Semaphore: ...
    def close(self) -> None: ...
    def acquire(self, timeout: _Timeout = None) -> bool: ...
    def release(self) -> None: ...
    def get(self) -> int: ...

@final
class Lock:
    """A lock that a thread owns."""
    @property
    def id(self) -> int: ...
    @property
    def domain(self) -> Domain: ...
    @classmethod
    def create(cls, domain: Domain, name: Optional[str] = None) -> Lock: ...
    @classmethod
    def open(cls, domain: Domain, which: str | int, /) -> Lock: ...
    def close(self) -> None: ...
    def acquire(self, timeout: _Timeout = None) -> int:
        """0: acquired; above 0: acquired, and its last owner, with this pid, died holding it; -1: the time limit passed."""
    def release(self) -> None: ...

@final
class Condition:
    @property
    def id(self) -> int: ...
    @property
    def domain(self) -> Domain: ...
    @classmethod
    def create(cls, domain: Domain, name: Optional[str] = None) -> Condition: ...
    @classmethod
    def open(cls, domain: Domain, which: str | int, /) -> Condition: ...
    def close(self) -> None: ...
    def wait(self, lock: Lock, timeout: _Timeout = None) -> bool: ...
    def signal(self) -> None: ...
    def broadcast(self) -> None: ...

@disjoint_base
class Guard:
    """The base class of the locks and semaphores of tenon.multiprocessing."""
    @property
    def _core(self) -> Semaphore | Lock: ...
    def __new__(cls, *args: Any, **keywords: Any) -> Self: ...
    @property
    def _guard_kind(self) -> int: ...
    @property
    def _maxvalue(self) -> int: ...
    def _begin(self, core: Semaphore | Lock, kind: int, maxvalue: int, /) -> None:
        """kind: 0 signals, 1 permits, 2 a lock, 3 a recursive lock."""
    def acquire(self, block: bool = True, timeout: _Timeout = None) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *exception: object) -> None: ...
    def _is_mine(self) -> bool: ...
    def _count(self) -> int: ...

@disjoint_base
class GuardCondition:
    """A condition over any lock. notify(n) wakes n threads."""
    @property
    def _lock(self) -> Any: ...
    @property
    def _gate(self) -> Lock: ...
    @property
    def _core(self) -> Condition: ...
    def __new__(cls, *args: Any, **keywords: Any) -> Self: ...
    def _begin(self, lock: Any, gate: Lock, core: Condition, table: Tensor, /) -> None: ...
    def _count_waiting(self) -> int: ...
    def wait(self, timeout: _Timeout = None) -> bool: ...
    def notify(self, n: int = 1) -> None: ...
    def notify_all(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *exception: object) -> None: ...

@disjoint_base
class Synchronized:
    """An object; each access acquires a lock."""
    _obj: Any
    _lock: Any
    def __new__(cls, *args: Any, **keywords: Any) -> Self: ...

class SynchronizedArray(Synchronized):
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __delitem__(self, key: Any, /) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...

@final
class SynchronizedAttribute:
    """A descriptor for an attribute of the object of a Synchronized."""
    def __new__(cls, name: str, /) -> Self: ...
    def __get__(self, owner: Any, type: Any = None, /) -> Any: ...
    def __set__(self, owner: Any, value: Any, /) -> None: ...
    def __delete__(self, owner: Any, /) -> None: ...

# ---- the scheduler: include/tenon/sched.h
@final
class Scheduler:
    """Threads that run calls when the resources that the calls request are free."""
    def __new__(cls, resources: Optional[str] = None, order: int = 0, skips: int = 0, skew: float = 0,
                trace: bool = False, domain: Optional[Domain] = None, name: Optional[str] = None,
                ran_out: Optional[Callable[[BaseException], bool]] = None) -> Self: ...
    def close(self, *, at_exit: bool = False) -> None:
        """Wait for the calls of all batches, and end the threads.

        Raises Invalid if another thread runs a graph. With `at_exit`, the tasks of that graph that run are waited for,
        the others do not begin, and SystemExit ends that thread.
        """
    def kind(self, name: str, request: Optional[str], affinity: Optional[str], writes_inputs: bool, /) -> int:
        """Make a kind of task, and return its index. With `writes_inputs`, a task whose memory ran out fails."""
    def batch(self) -> Batch: ...
    def run(self, graph: dict[Any, Any], keys: list[Any], node_type: type, data_type: type,
            convert: Callable[[Any, Any], Any], find_kind: Callable[[Any], int], /) -> list[Any]:
        """Run what the keys need, and return their values. `convert(key, value)` makes a node of what is no simple
        call; `find_kind(function)` gives the index of the kind of its calls."""
    def events(self) -> list[Tuple[int, int, str, str, int, int, int, int]]:
        """What was noted of tasks, with trace=True: (graph, task, kind, slots, began_ns, ended_ns, cpu_until_ns, status)
        each. `cpu_until_ns` is when the task gave back its CPU: before
        its end, if it seceded or ran a graph itself."""
    def edges(self) -> list[Tuple[int, int, int]]:
        """What was noted of the inputs of tasks of run(), with trace=True: (graph, input, task) each."""
    def resources(self) -> dict[str, Tuple[float, float]]:
        """The total and the free amount of each resource."""

@final
class Batch:
    """Calls that a scheduler got one by one. A call may name earlier ones of its batch."""
    @property
    def count(self) -> int:
        """How many calls were submitted."""
    @property
    def number(self) -> int:
        """Its number as a graph in Scheduler.events(); 0 without trace=True."""
    def submit(self, kind: int, callable: Callable[[], Any], priority: int = 0, inputs: Tuple[int, ...] = (), /) -> int:
        """Call a function without arguments, when the resources of its kind are free and the calls of these numbers have
        ended. If it returns True, it is called again, alone, as a task that returns TN_TASK_OOM; so at most once. Returns
        the number of the call."""

def set_bytes(count: int, /) -> None:
    """Say how large the result of the task of this thread is, for affinity."""
def resource_id(resource: str, /) -> Union[int, Tuple[int, ...]]:
    """The number of the slot of `resource` that the task of this thread has, or a tuple of several."""
def secede() -> None:
    """Give back the CPU of the task of this thread, before a long wait."""

# ---- the rest
def follow(domain: Domain, pid: int, /) -> None:
    """End this process when the member with that pid ends, in whatever way."""
def swap_words(one: int, other: int, count: int, /) -> None:
    """Exchange `count` machine words at two addresses. For tenon._torch_private."""
def inspect_domains() -> list[dict[str, Any]]: ...
def inspect_domain(name: str, /) -> dict[str, Any]:
    """{"stat": ..., "seats": [...], "blocks": [...], "objects": [...], "tickets": [...], "schedulers": [...]}: the
    structs of tenon/inspect.h"""
def version() -> str: ...
