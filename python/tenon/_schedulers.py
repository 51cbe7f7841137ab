# SPDX-License-Identifier: Apache-2.0
"""The schedulers of this process, and what there is for their tasks."""

import atexit
import gc
import math
import operator
import os
import re
import sys
import threading
import traceback
import weakref

from . import _core, _domain, _resources

__all__ = ["set_options"]

KINDS = 1000  # of one scheduler that have a name of their own
SCHEDULERS = 8  # that are kept for the next call
IN_TURN = 1  # TN_ORDER_DEPTH: single calls begin in the order in which they were submitted


class Scheduler:
    """A scheduler of the C library, with the kinds of tasks that were made for it."""

    def __init__(self, text, name, **options):
        self.core = make_core(text, name, trace=_trace is not None, **options)
        self.arrows = None  # between calls: pairs of (number of a batch, number of the call in it), if there is a trace
        if _trace is not None:
            self.arrows = []
            _trace.schedulers.append(self)
        self._slotted = set(re.findall(r"(\w+)\s*=\s*\(", text))
        _all.add(self.core)
        self._kinds = {}
        self.kinds_with_affinity = set()
        self.amounts = {}  # of a call, by the title of its kind: those of each way to run it

    def kind(self, name, request):
        """The kind of tasks of this name that need what the request says; None: one CPU."""
        ways = _resources.ways_of(request or {})
        affinity = (request or {}).get("affinity", ())
        writes = (request or {}).get("writes_inputs", False)
        key = (name, tuple(map(_resources.request_text, ways)), " ".join(affinity), writes)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= KINDS:
                name = "task"
                key = (name, *key[1:])
            kind = self._kinds.get(key)
        if kind is None:
            title = self._title(name, ways)
            kind = self._kinds[key] = self.core.kind(title, key[1], key[2] or None, writes)
            if affinity:
                self.kinds_with_affinity.add(kind)
        return kind

    def _title(self, name, ways):
        """What errors and traces call the tasks: with their request, if it is said."""
        title = f"{name} [{' or '.join(map(_resources.request_text, ways))}]" if any(ways) else name
        self.amounts[title] = [{"CPU": 1, **amounts} for amounts in ways]
        return title

    def slot_count(self):
        """How many slots all resources have."""
        return sum(int(total) for name, (total, _) in self.core.resources().items() if name in self._slotted)

    def slots_here(self, request):
        """The slots that the task of this thread has, by resource."""
        slots = {name: _resources.SUM for name in self.core.resources() if name not in self._slotted}
        for way in _resources.ways_of(request or {}):
            for name in self._slotted & {name for name in way if way[name]}:
                try:
                    slots[name] = _core.resource_id(name)
                except _core.Invalid:  # the task runs in another way
                    pass
        return slots

    def find_kind(self, function):
        """The kind of the calls of a function."""
        return self.kind(_resources.name_of(function), _resources.request_of(function))


def make_core(text, name, **options):
    """A scheduler of the C library, which the domain of this process shows if there is one and it has room."""
    domain = _domain.present()
    if domain is not None:
        try:
            return _core.Scheduler(text, domain=domain, name=name, **options)
        except _core.Error:
            pass
    return _core.Scheduler(text, **options)


def has_run_out(error):
    """Whether an error says that memory ran out; if so, what the failed call held and what is kept for later is freed.

    NumPy, CuPy and tenon raise a MemoryError, PyTorch and PyOpenCL classes of their own. JAX has one class for all errors
    of its devices. With tenon.torch.allocator() PyTorch raises a RuntimeError.
    """
    names = {each.__name__ for each in type(error).__mro__}
    if not names & {"MemoryError", "OutOfMemoryError"}:
        is_of_jax = names & {"XlaRuntimeError", "JaxRuntimeError"} and str(error).startswith("RESOURCE_EXHAUSTED")
        is_of_allocator = "RuntimeError" in names and str(error).startswith("CUDA out of memory")
        if not is_of_jax and not is_of_allocator:
            return False
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():  # is_available() forbids CUDA in children by fork
        torch.cuda.empty_cache()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
    return True


class Options:
    def __init__(self, layers=()):
        self.resources = None  # text, or None: the environment variable TENON_RESOURCES
        self.order = 0
        self.skips = 0
        self.skew = 0.0
        for layer in layers:
            vars(self).update(layer)


_layers = [{}]  # of options that were set: those for good, then those of each block that is open, the newest last
_options = Options()  # what they come to
_trace = None  # of tenon.trace(), which is told of each scheduler that is made
_schedulers = {}
_all = weakref.WeakSet()  # of the C library's: each lives on while it has calls
_lock = threading.Lock()


class set_options:
    """Set what schedulers of this process have. Runs that are under way go on as they are.

    Parameters
    ----------
    resources : dict, optional
        What there is of each resource: a number, or nested tuples of the numbers of slots, as in
        {"GPU": ((0, 1), (2, 3)), "MEM": 16.5}. CPU is the number of processors unless it is given. None: what the
        environment variable TENON_RESOURCES says, as in "GPU=((0,1),(2,3)) MEM=16.5".
    skips : int, optional
        How many later tasks may begin before a ready task until its resources are reserved for it; 8 unless given.
    skew : float, optional
        How much longer than its run time a task may take in order to begin on the slot that made its largest input; 1
        unless given.

    It can be used in a `with` statement. Then its options hold until the end of the block, as do those that are set
    within the block without a `with`. All threads of the process have the same options: if threads have blocks open at
    the same time, the options of the newest block hold.

    Raises
    ------
    TypeError, ValueError
        An option is malformed. Nothing is changed then.
    """

    def __init__(self, **options):
        for name, value in options.items():
            if name not in ("resources", "skips", "skew"):
                raise TypeError(f"there is no option {name}: there are resources, skips and skew")
            if name == "resources" and value is not None:
                value = _resources.machine_text(value)
            elif name == "skips" and not 0 < operator.index(value) < 1 << 32:
                raise ValueError(f"skips is {value}: it is from 1 to 2**32 - 1")
            elif name == "skew" and not 0 < value < math.inf:
                raise ValueError(f"skew is {value}: it must be more than 0, and finite")
            options[name] = value
        make_scheduler(Options([*_layers, options]), None)  # which checks them
        with _lock:
            self._layer = options
            self._outer = _layers[-1]
            self._before = dict(self._outer)
            self._outer.update(options)
            set_layers()

    def __enter__(self):
        with _lock:
            self._outer.clear()
            self._outer.update(self._before)
            _layers.append(self._layer)
            set_layers()
        return self

    def __exit__(self, *args):
        with _lock:
            _layers[:] = [layer for layer in _layers if layer is not self._layer]
            set_layers()


def set_layers():
    global _options
    _options = Options(_layers)


def text_of(options):
    return os.environ.get("TENON_RESOURCES", "") if options.resources is None else options.resources


def new_scheduler(resources):
    """A scheduler of its own, with these resources; None: those of the options as they are."""
    options = _options
    text = text_of(options) if resources is None else _resources.machine_text(resources)
    return Scheduler(text, "Executor", order=IN_TURN, skips=options.skips, skew=options.skew)


def with_amount(text, name, amount):
    """A text of resources in which there is this amount of one of them."""
    return f"{name}={amount} " + re.sub(rf"(^|[\s,;]){name}=[^\s,;]*", " ", text)


def make_scheduler(options, cpus, threads=None):
    text = text_of(options)
    if cpus is not None:
        text = with_amount(text, "CPU", cpus)
    if threads is not None and not re.search(r"(^|[\s,;])THREADS=", text):
        text = with_amount(text, "THREADS", threads)
    domain = _domain.present()
    key = (text, options.order, options.skips, options.skew, domain and domain.name, _trace)
    with _lock:
        scheduler = _schedulers.pop(key, None)
        if scheduler is None:
            scheduler = Scheduler(text, "dask", ran_out=has_run_out, order=options.order, skips=options.skips,
                                  skew=options.skew)
        _schedulers[key] = scheduler  # as the newest
        if len(_schedulers) > SCHEDULERS:
            del _schedulers[next(iter(_schedulers))]
    return scheduler


def scheduler(cpus=None, threads=None):
    """The scheduler of this process for the options as they are; `cpus` is instead of the CPUs that they have, and
    `threads` is the THREADS, if they have none."""
    if cpus is not None and (isinstance(cpus, bool) or operator.index(cpus) < 1):
        raise ValueError(f"the number of workers is {cpus!r}: it must be 1 or more")
    return make_scheduler(_options, cpus, threads)


def forget_after_fork():
    """Schedulers have no threads in a forked child."""
    global _lock
    _lock = threading.Lock()
    _schedulers.clear()


os.register_at_fork(after_in_child=forget_after_fork)


# ---- the end of the process


def close(core, at_exit=False):
    """Wait for the calls that a scheduler has. Another thread may do so already, or run a graph, unless `at_exit`."""
    try:
        core.close(at_exit=at_exit)
    except _core.Error:
        pass


def set_trace(trace):
    """Have schedulers that are made from now on note what their tasks do; None: no longer."""
    global _trace
    with _lock:
        if trace is not None and _trace is not None:
            raise RuntimeError(f"the trace {_trace.path} is open: there is one at a time")
        for key in [key for key in _schedulers if key[-1] is not None]:
            del _schedulers[key]  # whoever uses it goes on
        _trace = trace


is_ending = False  # the interpreter waits for the calls that there are


def end_all():
    global is_ending
    is_ending = True
    for each in list(_all):
        close(each, at_exit=True)


# As for concurrent.futures, before the interpreter ends: its calls can still be made.
getattr(threading, "_register_atexit", atexit.register)(end_all)
