# SPDX-License-Identifier: Apache-2.0
"""The private parts of CPython's standard library that tenon needs.

No other module of the package names them. A part is imported on first use, since many programs never
need it. tests/python/test_private_parts.py checks each part by its name.

PARTS has what other modules import from here. INHERITED has what a class of tenon overrides or
uses of its base class, and what the extension uses: those names stand where they are used.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import operator
import os

TYPE_CHECKING = False  # as typing has it, which takes long to import
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

# A part: its module, its path in the module ("" for the module itself), what in tenon needs it.
Part = collections.namedtuple("Part", ["module", "path", "need"])
# An attribute of a class or of its instances, and what in tenon needs it.
Inherited = collections.namedtuple("Inherited", ["owner", "name", "need"])


_MODULE = "tenon.multiprocessing has a module of the same name, with the same names in it"

PARTS: Dict[str, Part] = {
    name: Part(f"multiprocessing.{name}", "", _MODULE)
    for name in (
        "connection",
        "context",
        "dummy",
        "forkserver",
        "heap",
        "managers",
        "pool",
        "popen_fork",
        "popen_forkserver",
        "popen_spawn_posix",
        "process",
        "queues",
        "reduction",
        "resource_sharer",
        "resource_tracker",
        "shared_memory",
        "sharedctypes",
        "spawn",
        "synchronize",
        "util",
    )
}
PARTS.update(
    {
        name: Part(f"multiprocessing.{module}", path, need)
        for name, module, path, need in (
            ("Finalize", "util", "Finalize", "domains, queues, pools and barriers end by it at exit"),
            ("register_after_fork", "util", "register_after_fork", "a forked child leaves its domain by it"),
            ("close_fds", "util", "close_fds", "pipes of pools and of readers are closed by it"),
            ("sub_warning", "util", "sub_warning", "a pool warns by it that it waits for memory"),
            ("ForkingPickler", "reduction", "ForkingPickler", "messages use the reducers registered with it"),
            ("extra_reducers", "reduction", "ForkingPickler._extra_reducers", "core/pickle.c looks into it"),
            ("DupFd", "reduction", "DupFd", "children of `python -m tenon` get the counters of the report"),
            ("ParentProcess", "process", "_ParentProcess", "a parent is a BaseProcess of tenon, too"),
            ("get_spawning_popen", "context", "get_spawning_popen", "a child is sent what is pickled for it"),
            ("assert_spawning", "context", "assert_spawning", "sharedctypes pickle for children only"),
            ("INIT", "pool", "INIT", "the state of a Pool"),
            ("RUN", "pool", "RUN", "the state of a Pool"),
            ("CLOSE", "pool", "CLOSE", "the state of a Pool"),
            ("TERMINATE", "pool", "TERMINATE", "the state of a Pool"),
            ("ApplyResult", "pool", "ApplyResult", "a Pool tells it its result"),
            ("MapResult", "pool", "MapResult", "a Pool tells it its results"),
            ("IMapIterator", "pool", "IMapIterator", "a Pool tells it its results"),
            ("mapstar", "pool", "mapstar", "a Pool names the function of a task of map()"),
            ("starmapstar", "pool", "starmapstar", "a Pool names the function of a task of starmap()"),
            ("PoolCache", "pool", "_PoolCache", "the jobs of a Pool"),
            ("MaybeEncodingError", "pool", "MaybeEncodingError", "a result that cannot be pickled"),
            ("ExceptionWithTraceback", "pool", "ExceptionWithTraceback", "the exception of a task"),
            ("helper_reraises", "pool", "_helper_reraises_exception", "imap() over a sequence that raises"),
            ("rebuild_ctype", "sharedctypes", "rebuild_ctype", "ctypes objects over shared memory"),
            ("reduce_ctype", "sharedctypes", "reduce_ctype", "ctypes objects of the standard library"),
            ("typecode_to_type", "sharedctypes", "typecode_to_type", "Value('i') and the like"),
        )
    }
)
PARTS["SimpleCData"] = Part("ctypes", "_SimpleCData", "Value('i') and the like get a `value` with a lock")


_PROCESS, _CONTEXT = "multiprocessing.process.BaseProcess", "multiprocessing.context.DefaultContext"
_POOL, _BARRIER = "multiprocessing.pool.Pool", "threading.Barrier"
INHERITED: List[Inherited] = [
    Inherited(owner, name, need)
    for owner, names, need in (
        (_PROCESS, "_bootstrap", "the first thing that a child runs: it follows its parent"),
        (_PROCESS, "_Popen _after_fork _start_method", "processes of each start method"),
        (_PROCESS, "_popen _parent_pid _config", "the state of a process"),
        (_CONTEXT, "_actual_context _default_context", "the start method that was set"),
        ("multiprocessing.context.BaseContext", "_check_available _name", "a start method by its name"),
        ("multiprocessing.popen_fork.Popen", "_launch poll", "a child is told of its objects"),
        ("multiprocessing.popen_spawn_posix.Popen", "_launch", "a child is told of its objects"),
        ("multiprocessing.popen_forkserver.Popen", "_launch", "a child is told of its objects"),
        ("multiprocessing.forkserver.ForkServer", "_preload_modules", "the server imports tenon once"),
        ("multiprocessing.util.Finalize", "_pid cancel", "a forked child leaves its domain at exit"),
        ("multiprocessing.queues.Queue", "_on_queue_feeder_error", "what a ProcessPoolExecutor cannot send"),
        (_POOL, "Process _map_async _check_running _repopulate_pool", "the methods of a Pool"),
        (_POOL, "_pool _state _ctx _processes _taskqueue _cache", "the state of a Pool"),
        (_POOL, "_change_notifier _worker_handler _task_handler", "the threads of a Pool"),
        (_POOL, "_result_handler _terminate _wrap_exception", "the threads of a Pool"),
        ("multiprocessing.pool.ApplyResult", "_set _event _job", "fail_result()"),
        ("multiprocessing.pool.MapResult", "_number_left", "fail_result()"),
        ("multiprocessing.pool.IMapIterator", "_set _job _cond _items _index _length", "fail_result()"),
        ("multiprocessing.sharedctypes.SynchronizedBase", "_obj _lock", "core/synchronized.c"),
        (_BARRIER, "_parties _action _timeout _cond _state _count", "the state of a Barrier"),
        (_BARRIER, "_enter _release _wait _exit _break", "the steps of Barrier.wait()"),
        ("threading.Lock", "_at_fork_reinit", "renew_in_child()"),
        ("threading.RLock", "_at_fork_reinit _is_owned", "renew_in_child() and is_held()"),
        ("multiprocessing.synchronize.Lock", "_semlock", "a Condition over such a lock: any_lock.c"),
        ("multiprocessing.synchronize.SemLock._semlock", "_is_mine _count", "the same"),
        ("importlib.machinery.ModuleSpec", "_initializing", "core/pickle.c: a torch half imported"),
    )
    for name in names.split()
]


def __getattr__(name: str) -> Any:
    part = PARTS.get(name)
    if part is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(part.module)
    value = operator.attrgetter(part.path)(module) if part.path else module
    return globals().setdefault(name, value)


# ---- processes and start methods


def children() -> List[Any]:
    """The children of this process that nobody has waited for yet."""
    from multiprocessing import process

    return list(process._children)  # type: ignore[attr-defined]


def forget_child(child: Any) -> None:
    """Let this process end without waiting for the child."""
    from multiprocessing import process

    process._children.discard(child)  # type: ignore[attr-defined]


def popen_of(child: Any) -> Any:
    """What has started the child; None before that."""
    return child._popen


def is_forked(popen: Any) -> bool:
    """Whether the child was made by fork() alone, so that it inherited everything."""
    from multiprocessing import popen_fork

    return type(popen) is popen_fork.Popen


def config_of_process() -> Any:
    """The settings that this process hands to its children: a dict."""
    from multiprocessing import process

    return process.current_process()._config  # type: ignore[attr-defined]


def default_start_method() -> Any:
    """The start method of the standard library's default context, if none was set."""
    from multiprocessing import context

    return context._default_context._default_context._name  # type: ignore[attr-defined]


def main_process() -> Any:
    """The object for this process if it is the main process, else None. The module deletes the name of its class."""
    from multiprocessing import process

    current = process.current_process()
    return current if type(current).__name__ == "_MainProcess" else None


@contextlib.contextmanager
def default_context_unused() -> Iterator[None]:
    """Undo what the block does to the standard library's default context: asking it sets it."""
    from multiprocessing import context

    default: Any = context._default_context
    actual = default._actual_context
    try:
        yield
    finally:
        default._actual_context = actual


# A module that the fork server imports before all others, __main__ included, which its children then import.
preloaded_first: Optional[str] = None


def preload(module: str) -> None:
    """Have the fork server import a module when it starts."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    names = server._preload_modules
    if module not in names:
        names = [*names, module]
    if preloaded_first is not None:
        names = [preloaded_first, *(name for name in names if name not in (preloaded_first, "__main__"))]
    server._preload_modules = names


_prepared: Dict[str, Any] = {}


def prepare_children(key: str, value: Any) -> None:
    """Have every child of spawn and forkserver unpickle a value before it imports __main__."""
    from multiprocessing import spawn

    if not _prepared:
        make = spawn.get_preparation_data

        def get_preparation_data(name: str) -> Dict[str, Any]:
            return {**make(name), **_prepared}

        spawn.get_preparation_data = get_preparation_data
    _prepared[key] = value


# ---- locks of threads


def renew_in_child(lock: Any) -> None:
    """Have a forked child begin with a free lock. No code of Python runs in the child."""
    os.register_at_fork(after_in_child=lock._at_fork_reinit)


def is_held(lock: Any) -> bool:
    """Whether this thread holds an RLock."""
    return bool(lock._is_owned())


# ---- results of pools


def fail_result(result: Any, error: BaseException) -> bool:
    """End a result of a Pool that has several parts. False: it waits for one outcome more."""
    from multiprocessing import pool

    if isinstance(result, pool.IMapIterator):
        with result._cond:  # type: ignore[attr-defined]
            result._items.append((False, error))  # type: ignore[attr-defined]
            result._index += 1  # type: ignore[attr-defined]
            result._length = result._index  # type: ignore[attr-defined]
            result._cond.notify()  # type: ignore[attr-defined]
        return True
    if isinstance(result, pool.MapResult):
        result._number_left = 1  # type: ignore[attr-defined]
    return False


def set_outcome(result: Any, index: int, outcome: Any) -> None:
    """Give a result of a Pool one of its outcomes: (has succeeded, value or exception)."""
    result._set(index, outcome)


def wake_waiters(result: Any) -> None:
    """Wake the threads that wait for a result whose callback has raised."""
    event = getattr(result, "_event", None)
    if event is not None:
        event.set()


def job_of(set_length: Any) -> Any:
    """The number of the job of a result, given the bound method _set_length() of the result."""
    return set_length.__self__._job


# ---- objects of ctypes


def memory_of(obj: Any) -> Any:
    """The memory that sharedctypes has put the object into."""
    return obj._wrapper
