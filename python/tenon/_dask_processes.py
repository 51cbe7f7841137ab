# SPDX-License-Identifier: Apache-2.0
"""Tasks of Dask in worker processes, to which arrays go by reference.

Dask goes through the graph and hands over each task that is ready. A thread of the scheduler waits until what the task
requests is free, sends the task to a worker of a tenon.multiprocessing.Pool, and waits for its result. What is pickled
leaves out the memory of arrays (PEP 574), which lies in the arena: workers and this process map it.
"""

import collections
import concurrent.futures
import contextlib
import functools
import os
import pickle
import queue
import sys
import threading

import cloudpickle
import dask
from dask import core, local, optimization
from dask import multiprocessing as dask_processes

from . import _calls, _core, _cpython, _dask_calls, _dask_graph, _dask_requests, _domain, _explain, _resources, _schedulers
from . import multiprocessing as tenon_processes
from .multiprocessing import _pool_worker
from .multiprocessing._pool_engine import processes
from .multiprocessing.pool import WorkerDied

SMALL = 4096  # bytes: less is copied, not shared
SMALL_ARRAY = 1 << 16  # bytes: less is made in private memory
DEEPEST = 50  # calls within each other that pickle can go through

_pools = {}
_users = collections.Counter()  # runs, by pool
_lock = threading.Lock()
_worker_count = None  # in a worker: how many its pool has


def dumps(value, share=None):
    """A value as bytes, and the memory of its arrays as arrays of bytes, each of which goes through `share`."""
    shared = []

    def take(buffer):
        memory = buffer.raw()
        if memory.nbytes < SMALL:
            return True
        import numpy

        array = numpy.frombuffer(memory, dtype=numpy.uint8)
        shared.append(array if share is None else share(array))
        return False

    try:
        return cloudpickle.dumps(value, protocol=5, buffer_callback=take), shared
    except ImportError:  # there is no NumPy
        return cloudpickle.dumps(value, protocol=5), []


def share_result(array):
    """In a worker: an array of bytes in shared memory, for a result. If it is a small part of an array there, it is
    copied, since the result would keep all of that."""
    domain = _domain.default()
    there = domain.find(array.__array_interface__["data"][0], array.nbytes)
    if there is not None and 2 * array.nbytes >= there.storage_bytes:
        return array
    import numpy

    copy = numpy.asarray(domain.empty(array.nbytes, "uint8"))  # if there is no room, the task runs again alone
    copy[:] = array
    return copy


def loads(value):
    """The value of what dumps() gave, and if it came from a worker, of what Workers.call() put to it."""
    if len(value) == 2:
        return pickle.loads(value[0], buffers=value[1])
    with naming(f"the {value[2]} cannot be unpickled"):
        return pickle.loads(value[0], buffers=value[1])


@contextlib.contextmanager
def naming(text):
    """A block whose exceptions begin with a text."""
    try:
        yield
    except Exception as error:
        _explain.begin_with(error, text)
        raise


def dump_alone(value):
    """dumps(), whose exception has no context: with tblib, Dask pickles the context of what it sends, too."""
    try:
        return dumps(value, share_result)
    except Exception as error:
        error.__context__ = None
        raise


def dump_result(key, value):
    """In a worker: what comes back of a task, the result or the exception in a tuple with something else."""
    error = value[0] if isinstance(value[0], BaseException) else None
    with naming(f"the {'result' if error is None else 'exception'} of the task {key!r} cannot be pickled"):
        try:
            return dump_alone(value)
        except Exception:
            if error is None or error.__context__ is error.__cause__ is None:
                raise
        error.__context__ = error.__cause__ = None
        return dump_alone(value)


def load_task(key, shares, value):
    """In a worker: a task and its arguments."""
    with naming(f"the task {key!r}, or an argument of it, cannot be unpickled"):
        task = loads(value)
    if shares and "numpy" in sys.modules:  # the task may use it
        _core.set_numpy_allocator(allocator_of_worker())
    return task


@functools.lru_cache(maxsize=None)
def allocator_of_worker():
    """In a worker: what makes arrays in shared memory. All workers together take half of the quota: results need room,
    too."""
    domain = _domain.default()
    return _core.numpy_allocator(domain, SMALL_ARRAY, domain.quota_bytes // 2 // _worker_count)


def run_in_worker(slots, shares, execute, tasks):
    """Run tasks in a worker, with the slots that the scheduler gave them. Returns what run_noting() does."""
    if tasks[0][2] is dumps:  # not a function of the caller
        tasks = [
            (key, task, functools.partial(dump_result, key), functools.partial(load_task, key, shares), *rest)
            for key, task, _, _, *rest in tasks
        ]
    try:
        with _resources.given_slots(slots, _pool_worker.secede):
            return _dask_calls.run_noting(execute, tasks)
    finally:
        if shares and "numpy" in sys.modules:
            _core.set_numpy_allocator(None)


def versions():
    """The versions on which what goes to a worker and back depends."""
    from . import __version__

    return {"tenon": __version__, "dask": dask.__version__, "Python": sys.version.split()[0]}


def initialize(initializer, expected, worker_count):
    global _worker_count
    _worker_count = worker_count
    if versions() != expected:
        raise RuntimeError(f"the versions of this worker are {versions()}, those of its parent {expected}")
    # Tasks may start processes, as in Dask's workers: graphs of their own, for one. They end with this process.
    _cpython.config_of_process()["daemon"] = False
    dask_processes.initialize_worker_process(pickle.loads(initializer))


class Workers(_dask_calls.Handover):
    """Hands tasks to the worker processes of a pool."""

    _is_ahead = True

    def __init__(self, scheduler, graph, pool, shares):
        super().__init__(scheduler, graph)
        self._pool = pool
        self._shares = shares  # whether arrays that tasks make lie in shared memory
        self._answers = set()  # of the pool, which calls wait for
        self._is_left = False
        self._lock = threading.Lock()

    def dumps(self, value):
        """A task and its arguments, as dumps() has it."""
        try:
            return dumps(value)
        except Exception as error:
            task = value[0]
            key = task.key if _dask_graph.spec is not None else self._key_of(task)
            _explain.begin_with(error, f"the task {key!r}, or an argument of it, cannot be pickled")
            raise

    def _key_of(self, task):
        return next((key for key, value in self._graph.items() if value is task), None)

    def call(self, key, request, execute, tasks):
        slots = self.scheduler.slots_here(request)
        is_ours = tasks[0][2] == self.dumps
        if is_ours:
            tasks = [(its, task, dumps, *rest) for its, task, _, *rest in tasks]
        try:
            results, has_run_out = self._ask(run_in_worker, slots, self._shares, execute, tasks)
        except WorkerDied as error:
            if error.task is None:
                raise
            known = f": {processes(error.pids)}" if error.pids else ""
            raise WorkerDied(f"the task {key!r} has ended its workers{known}", str(key), error.pids) from None
        if is_ours:
            results = [
                (its, (*packed, f"{'exception' if has_failed else 'result'} of the task {its!r}"), has_failed)
                for its, packed, has_failed in results
            ]
        if has_run_out:
            raise _calls.RanOut(results)
        return results

    def _ask(self, function, *args):
        """Have a worker call a function."""
        with self._lock:
            if self._is_left:
                raise concurrent.futures.CancelledError
            told = queue.SimpleQueue()  # True: the task has seceded; False: there is an answer

            def end(_):
                told.put(False)

            answer = self._pool.apply_async(function, args, callback=end, error_callback=end)
            self._answers.add(answer)
        try:
            self._pool._engine.call_when_seceded(answer, functools.partial(told.put, True))
            while told.get():
                _core.secede()
            return answer.get()
        finally:
            with self._lock:
                self._answers.discard(answer)

    def leave(self):
        """Have calls return whose workers were ended: they gave no answer."""
        with self._lock:
            self._is_left = True
            answers = [answer for answer in self._answers if not answer.ready()]
        for answer in answers:
            _cpython.set_outcome(answer, 0, (False, concurrent.futures.CancelledError()))


def take_pool(count, initializer):
    """A pool of `count` processes, which is kept for later calls unless it has an initializer of its own.

    Its user gives it back with leave_pool().
    """
    context = dask.config.get("multiprocessing.context", "spawn")
    place = (os.getpid(), count, context)
    with _lock:
        pool = _pools.get(place)
        if pool is not None and initializer is None:
            _users[pool] += 1
            return pool
        if os.environ.get("PYTHONHASHSEED") in (None, "0"):
            os.environ["PYTHONHASHSEED"] = "6640"  # as Dask does, so that hashes are the same in all workers
        pool = tenon_processes.get_context(context).Pool(
            count, initialize, (cloudpickle.dumps(initializer), versions(), count)
        )
        if initializer is None:
            _pools[place] = pool
        _users[pool] += 1
        return pool


def forget_pool(pool):
    """Keep a pool no longer. It ends when nobody uses it."""
    with _lock:
        for place in [place for place, its in _pools.items() if its is pool]:
            del _pools[place]
        is_used = _users[pool] > 0
    if not is_used:
        pool.terminate()


def leave_pool(pool, is_kept):
    """Give back what take_pool() gave."""
    with _lock:
        _users[pool] -= 1
        if _users[pool] == 0:
            del _users[pool]
        is_kept = is_kept and pool in _pools.values()
    if not is_kept:
        forget_pool(pool)


def depth_of(value):
    """How many tuples and lists of a value of a graph are within each other, if not more than DEEPEST."""
    depth, level = 0, [value]
    while level and depth <= DEEPEST:
        level = [item for within in level if type(within) in (tuple, list) for item in within]
        depth += bool(level)
    return depth


def find_cuts(graph, dependencies, members):
    """The tasks of a tree that must not be fused into those that read them, so that none becomes too deep.

    `members` are the keys of the tree, each after the one that reads it.
    """
    cuts, depths = set(), {}
    for key in reversed(members):
        own = depth_of(graph[key])
        inside = [each for each in dependencies[key] if each in depths]
        cuts.update(each for each in inside if own + depths[each] > DEEPEST)
        depths[key] = own + max((depths[each] for each in inside if each not in cuts), default=0)
    return cuts


def fuse(graph, keys, dependencies):
    """Fuse tasks as Dask does, but into none that is deeper than DEEPEST."""
    kept = set(core.flatten([keys]))
    dependencies = {key: list(each) for key, each in dependencies.items()}
    while True:
        fused, _ = optimization.fuse(graph, list(kept), dependencies)
        deep = {key for key, value in fused.items() if depth_of(value) > DEEPEST}
        if not deep:
            return fused
        cuts = set()
        for root, value in fused.items():  # of a fused task with a new name, the old key has that name
            if root not in graph or not (root in deep or (core.ishashable(value) and value in deep)):
                continue
            members = [root]
            for key in members:
                members += [each for each in dependencies[key] if each in graph and each not in fused]
            cuts |= find_cuts(graph, dependencies, members)
        if not cuts:  # what is deep was so before
            return fused
        kept |= cuts


def has_future(value):
    """Whether there is a future of Dask in a value of a graph: what stands for the result of another task."""
    rest = [value]
    while rest:
        item = rest.pop()
        if type(item) in (tuple, list, set, frozenset):
            rest += item
        elif type(item) is dict:
            rest += item.values()
        elif isinstance(item, _dask_graph.spec.TaskRef) or _resources.attribute_of(item, "__dask_future__", bool):
            return True
    return False


def read_futures(graph):
    """A graph whose values with futures are nodes of Dask: of others it does not see that they need the futures."""
    if _dask_graph.spec is None:
        return graph
    convert = _dask_graph.spec.convert_legacy_task
    return {**graph, **{key: convert(key, value, graph) for key, value in graph.items() if has_future(value)}}


def prepare(graph, keys, optimize_graph, annotations):
    """The part of a graph that the keys need, with tasks that have one request each."""
    graph, dependencies = optimization.cull(read_futures(graph), keys)
    if optimize_graph and not annotations:
        graph = fuse(graph, keys, dependencies)
    return _dask_requests.ask(graph, annotations)


def run(graph, keys, num_workers, initializer, shares, options):
    num_workers = num_workers or dask.config.get("num_workers", None)
    initializer = initializer or dask.config.get("multiprocessing.initializer", None)
    scheduler = _schedulers.scheduler(num_workers)
    if _dask_calls.has_requests(graph):
        # As many tasks without a CPU at a time as there are workers for them, so that they keep none from the others.
        scheduler = _schedulers.scheduler(num_workers, max(scheduler.slot_count(), 1))
    there_is = scheduler.core.resources()
    count = max(int(there_is["CPU"][0]), 1)
    if _dask_calls.has_requests(graph):
        count += int(there_is["THREADS"][0])
    pool = take_pool(count, initializer)
    is_kept = initializer is None
    workers = None
    try:
        workers = Workers(scheduler, graph, pool, shares)
        options = {name: value for name, value in options.items() if value is not None}
        options = {
            "get_id": os.getpid,
            "pack_exception": dask_processes.pack_exception,
            "raise_exception": dask_processes.reraise,
            "dumps": options.pop("func_dumps", None) or dask.config.get("func_dumps", None) or workers.dumps,
            "loads": options.pop("func_loads", None) or dask.config.get("func_loads", None) or loads,
            **options,
            "chunksize": 1,
        }
        return local.get_async(workers.submit, workers._max_workers, graph, keys, **options)
    except WorkerDied as error:
        is_kept = is_kept and error.task is not None and pool._engine.broken is None
        raise
    except Exception:
        raise
    except BaseException:  # as by Ctrl-C: nobody knows whether the tasks that run ever end
        is_kept = False
        raise
    finally:
        if workers is not None:
            workers.cancel()
        leave_pool(pool, is_kept)
        if workers is not None and not is_kept:
            workers.leave()
