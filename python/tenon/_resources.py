# SPDX-License-Identifier: Apache-2.0
"""What tasks request, what there is, and the schedulers of this process."""

import atexit
import contextlib
import functools
import math
import numbers
import operator
import os
import re
import threading
import weakref

from . import _core

__all__ = ["resource_id", "resources", "secede", "set_options"]

ATTRIBUTE = "__tenon_resources__"
KINDS = 1000  # of one scheduler that have a name of their own
SCHEDULERS = 8  # that are kept for the next call
IN_TURN = 1  # TN_ORDER_DEPTH: single calls begin in the order in which they were submitted


class Request(dict):
    """What resources() sets: amounts by resource, and resources by "affinity"."""

    known = False  # whether there is any in this process: else graphs need not be searched for them

    def __init__(self, *args):
        super().__init__(*args)
        Request.known = True

    def __reduce__(self):
        return Request, (dict(self),)


# ---- text for the C library


def amount_text(name, amount):
    if isinstance(amount, bool) or not isinstance(amount, numbers.Real):
        raise TypeError(f"the amount of the resource {name} is {amount!r}, not a number")
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(f"the amount of the resource {name} is {amount!r}: it must be 0 or more, and finite")
    text = f"{float(amount):.4f}" if amount != int(amount) else str(int(amount))
    if not math.isclose(float(text), amount, rel_tol=1e-9):
        raise ValueError(f"the amount of the resource {name} is {amount!r}: it may have four decimals")
    return text.rstrip("0").rstrip(".") if "." in text else text


def slots_text(name, slots):
    if isinstance(slots, (tuple, list, range)):
        return "(" + ",".join(slots_text(name, slot) for slot in slots) + ")"
    if isinstance(slots, bool) or not isinstance(slots, numbers.Integral):
        raise TypeError(f"a slot of the resource {name} is {slots!r}, not an int")
    return str(int(slots))


def check_names(names):
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a resource is {name!r}, not a str")


def request_text(request):
    check_names(request)
    return " ".join(f"{name}={amount_text(name, amount)}" for name, amount in request.items())


def machine_text(machine):
    check_names(machine)
    return " ".join(
        f"{name}={slots_text(name, has) if isinstance(has, (tuple, list, range)) else amount_text(name, has)}"
        for name, has in machine.items()
    )


# ---- requests


def read_request(amounts):
    """A dict of amounts, and of resources by "affinity", as a Request."""
    if not isinstance(amounts, dict):
        raise TypeError(f"the resources of a call are {amounts!r}, not a dict")
    amounts = dict(amounts)
    affinity = amounts.pop("affinity", ())
    if isinstance(affinity, str):
        affinity = (affinity,)
    check_names(affinity)
    request_text(amounts)
    for name in affinity:
        if not amounts.get(name):
            raise ValueError(f"affinity names the resource {name}, which is not requested")
    return Request({**amounts, "affinity": tuple(affinity)})


def resources(*, affinity=(), **amounts):
    """Say what each call of a function needs, when a scheduler of tenon runs it.

    Parameters
    ----------
    affinity : sequence of str
        Resources with slots, such as ["GPU"]: a task begins on the slot on which its largest input was made, if that
        is soon free.
    **amounts : float
        How much of each resource a call needs. CPU is 1 unless it is given, and may be 0. Of a resource with slots,
        a whole number of slots, or a part of one slot.

    Returns
    -------
    A decorator that sets the attribute `__tenon_resources__` of the function, and nothing else.

    Raises
    ------
    TypeError, ValueError
        An amount is no number, is negative, or is not finite; or affinity names what is not requested.
    """
    request = read_request({**amounts, "affinity": affinity})

    def decorate(function):
        try:
            setattr(function, ATTRIBUTE, request)
        except AttributeError:
            raise TypeError(
                f"{function!r} cannot have attributes: decorate a function of Python that calls it"
            ) from None
        return function

    return decorate


def request_of(function):
    """What resources() said of a function, or of what a functools.partial calls; None: nothing."""
    request = getattr(function, ATTRIBUTE, None)
    while request is None and isinstance(function, functools.partial):
        function = function.func
        request = getattr(function, ATTRIBUTE, None)
    return request


def name_of(function):
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


# ---- what a task has


_given = threading.local()  # in a worker process: the slots that the scheduler of another process gave its task


def resource_id(resource):
    """The slots of a resource that the task of this thread has.

    Returns
    -------
    int, or a tuple of several in ascending order

    Raises
    ------
    tenon.Invalid
        This thread runs no task, the task did not request the resource, or the resource has no slots.
    """
    slots = getattr(_given, "slots", None)
    if slots is None:
        return _core.resource_id(resource)
    if resource not in slots:
        raise _core.Invalid(f"the task has no slots of the resource {resource}")
    return slots[resource]


def secede():
    """Give back the CPU of the task of this thread, before a long wait, so that another task may have it.

    The task keeps its other resources. In a worker process of tenon.dask.get_processes, nothing happens: a task has
    the process until it ends.

    Raises
    ------
    tenon.Invalid
        This thread runs no task.
    """
    if getattr(_given, "slots", None) is None:
        _core.secede()


@contextlib.contextmanager
def given_slots(slots):
    before, _given.slots = getattr(_given, "slots", None), slots
    try:
        yield
    finally:
        _given.slots = before


# ---- schedulers


class Scheduler:
    """A scheduler of the C library, with the kinds of tasks that were made for it."""

    def __init__(self, text, **options):
        self.core = _core.Scheduler(text, trace=_trace is not None, **options)
        if _trace is not None:
            _trace.schedulers.append(self)
        self._slotted = set(re.findall(r"(\w+)\s*=\s*\(", text))
        _all.add(self.core)
        self._kinds = {}
        self.amounts = {}  # of a call, by the title of its kind

    def kind(self, name, request):
        """The kind of tasks of this name that need what the request says; None: one CPU."""
        amounts = dict(request or ())
        affinity = amounts.pop("affinity", ())
        key = (name, request_text(amounts), " ".join(affinity))
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= KINDS:
                name = "task"
                key = (name, *key[1:])
            kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self.core.kind(self._title(name, amounts), key[1] or None, key[2] or None)
        return kind

    def _title(self, name, amounts):
        """What errors and traces call the tasks: with their request, if it is said."""
        title = f"{name} [{request_text(amounts)}]" if amounts else name
        self.amounts[title] = {"CPU": 1, **amounts}
        return title

    def slot_count(self):
        """How many slots all resources have."""
        return sum(int(total) for name, (total, _) in self.core.resources().items() if name in self._slotted)

    def slots_here(self, request):
        """The slots that the task of this thread has, by resource."""
        return {name: _core.resource_id(name) for name in request or () if name in self._slotted and request[name]}

    def find_kind(self, function):
        """The kind of the calls of a function."""
        return self.kind(name_of(function), request_of(function))


class Options:
    resources = None  # text, or None: the environment variable TENON_RESOURCES
    order = 0
    skips = 0
    skew = 0.0


_options = Options()
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

    It can be used in a `with` statement, which sets the options back at its end.

    Raises
    ------
    TypeError, ValueError
        An option is malformed. Nothing is changed then.
    """

    def __init__(self, **options):
        global _options
        new = Options()
        vars(new).update(vars(_options))
        for name, value in options.items():
            if name not in ("resources", "skips", "skew"):
                raise TypeError(f"there is no option {name}: there are resources, skips and skew")
            if name == "resources" and value is not None:
                value = machine_text(value)
            elif name == "skips" and not 0 < operator.index(value) < 1 << 32:
                raise ValueError(f"skips is {value}: it is from 1 to 2**32 - 1")
            elif name == "skew" and not 0 < value < math.inf:
                raise ValueError(f"skew is {value}: it must be more than 0, and finite")
            setattr(new, name, value)
        make_scheduler(new, None)  # which checks them
        self._before, _options = _options, new

    def __enter__(self):
        return self

    def __exit__(self, *args):
        global _options
        _options = self._before


def text_of(options):
    return os.environ.get("TENON_RESOURCES", "") if options.resources is None else options.resources


def new_scheduler(resources):
    """A scheduler of its own, with these resources; None: those of the options as they are."""
    options = _options
    text = text_of(options) if resources is None else machine_text(resources)
    return Scheduler(text, order=IN_TURN, skips=options.skips, skew=options.skew)


def with_amount(text, name, amount):
    """A text of resources in which there is this amount of one of them."""
    return f"{name}={amount} " + re.sub(rf"(^|[\s,;]){name}=[^\s,;]*", " ", text)


def make_scheduler(options, cpus, threads=None):
    text = text_of(options)
    if cpus is not None:
        text = with_amount(text, "CPU", cpus)
    if threads is not None and not re.search(r"(^|[\s,;])THREADS=", text):
        text = with_amount(text, "THREADS", threads)
    key = (text, options.order, options.skips, options.skew, _trace)
    with _lock:
        scheduler = _schedulers.pop(key, None)
        if scheduler is None:
            scheduler = Scheduler(text, order=options.order, skips=options.skips, skew=options.skew)
        _schedulers[key] = scheduler  # as the newest
        if len(_schedulers) > SCHEDULERS:
            del _schedulers[next(iter(_schedulers))]
    return scheduler


def scheduler(cpus=None, threads=None):
    """The scheduler of this process for the options as they are; `cpus` is instead of the CPUs that they have, and
    `threads` is the THREADS, if they have none."""
    return make_scheduler(_options, cpus, threads)


def forget_after_fork():
    """Schedulers have no threads in a forked child."""
    global _lock
    _lock = threading.Lock()
    _schedulers.clear()


os.register_at_fork(after_in_child=forget_after_fork)


# ---- the end of the process

def close(core):
    """Wait for the calls that a scheduler has. Another thread may do so already."""
    try:
        core.close()
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
        close(each)


# As for concurrent.futures, before the interpreter ends: its calls can still be made.
getattr(threading, "_register_atexit", atexit.register)(end_all)
