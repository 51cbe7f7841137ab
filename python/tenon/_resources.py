# SPDX-License-Identifier: Apache-2.0
"""What tasks request, and what they have."""

import contextlib
import functools
import math
import numbers
import os
import sys
import threading

from . import _core

__all__ = ["resource_id", "resources", "secede"]

ATTRIBUTE = "__tenon_resources__"
WORDS = ("affinity", "otherwise", "writes_inputs")  # of a request, beside the names of resources
MOST_WAYS = 4  # TN_VARIANTS: the amounts of a request, and those of its "otherwise"


class Request(dict):
    """What resources() sets: amounts by resource, resources by "affinity", and if they are there, other amounts that
    do as well by "otherwise", and True by "writes_inputs"."""

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
    if not isinstance(machine, dict):
        raise TypeError(f"the resources are {machine!r}, not a dict")
    check_names(machine)
    return " ".join(
        f"{name}={slots_text(name, has) if isinstance(has, (tuple, list, range)) else amount_text(name, has)}"
        for name, has in machine.items()
    )


# ---- requests


def ways_of(request):
    """The amounts of a request, then those that do as well."""
    amounts = {name: amount for name, amount in request.items() if name not in WORDS}
    return [amounts, *request.get("otherwise", ())]


def read_request(amounts):
    """A dict of amounts and of what else a Request has, as a Request."""
    if not isinstance(amounts, dict):
        raise TypeError(f"the resources of a call are {amounts!r}, not a dict")
    amounts = dict(amounts)
    affinity = amounts.pop("affinity", ())
    if isinstance(affinity, str):
        affinity = (affinity,)
    check_names(affinity)
    writes_inputs = amounts.pop("writes_inputs", False)
    if not isinstance(writes_inputs, bool):
        raise TypeError(f"writes_inputs is {writes_inputs!r}: it is True or False")
    otherwise = read_otherwise(amounts.pop("otherwise", ()))
    request_text(amounts)
    for name in affinity:
        if not any(way.get(name) for way in (amounts, *otherwise)):
            raise ValueError(f"affinity names the resource {name}, which is not requested")
    request = Request({**amounts, "affinity": tuple(affinity)})
    if otherwise:
        request["otherwise"] = otherwise
    if writes_inputs:
        request["writes_inputs"] = True
    return request


def read_way(way):
    """A dict of amounts, or text as "CPU=4 MEM=1.5": Dask fuses annotations only of what can be compared."""
    if not isinstance(way, str):
        return way
    words = [word.partition("=") for word in way.split()]
    try:
        return {name: float(amount) for name, _, amount in words}
    except ValueError:
        raise ValueError(f"`otherwise` has the text {way!r}: amounts are written as in 'CPU=4 MEM=1.5'") from None


def read_otherwise(otherwise):
    ways = (otherwise,) if isinstance(otherwise, (dict, str)) else otherwise
    if not isinstance(ways, (tuple, list)) or not all(isinstance(way, (dict, str)) for way in ways):
        raise TypeError(f"`otherwise` is {otherwise!r}: it must be amounts, as {{'CPU': 4}} or 'CPU=4', or a list of such")
    ways = [read_way(way) for way in ways]
    if len(ways) >= MOST_WAYS:
        raise ValueError(f"`otherwise` has {len(ways)} ways to run a call: it may have {MOST_WAYS - 1}")
    for way in ways:
        for word in WORDS:
            if word in way:
                raise ValueError(f"`otherwise` has {word!r}: say that beside `otherwise`, since it holds for all ways")
        request_text(way)
    return tuple(map(dict, ways))


def resources(*, affinity=(), writes_inputs=False, otherwise=(), **amounts):
    """Say what each call of a function needs, when a scheduler of tenon runs it.

    Parameters
    ----------
    affinity : sequence of str
        Resources with slots, such as ["GPU"]: a task begins on the slot on which its largest input was made, if that
        is soon free.
    writes_inputs : bool
        Whether a call changes its inputs in place. If so, it is not made again when its memory runs out, since it would
        find other inputs.
    otherwise : dict, or sequence of up to three of them
        Amounts that do as well, such as {"CPU": 4}, or the text "CPU=4", for a function that can do without a GPU: `resource_id("GPU", None)`
        tells it. A call runs in the way in which it would end first, as earlier calls took; not in one for which there
        is too little of a resource.
    **amounts : float
        How much of each resource a call needs. CPU is 1 unless it is given, and may be 0. Of a resource with slots,
        a whole number of slots, or a part of one slot.

    Returns
    -------
    A decorator that sets the attribute `__tenon_resources__` of the function, and nothing else.

    Raises
    ------
    TypeError, ValueError
        An amount is no number, is negative, or is not finite; affinity names what is not requested; writes_inputs is no
        bool; or otherwise is something else.
    """
    request = read_request(
        {**amounts, "affinity": affinity, "writes_inputs": writes_inputs, "otherwise": otherwise}
    )

    def decorate(function):
        try:
            setattr(function, ATTRIBUTE, request)
        except AttributeError:
            raise TypeError(
                f"{function!r} cannot have attributes: decorate a function of Python that calls it"
            ) from None
        return function

    return decorate


def attribute_of(function, name, kind):
    """An attribute, if it is of this kind: an object may answer every name, or raise anything. Else None."""
    try:
        value = getattr(function, name, None)
    except Exception:
        return None
    return value if isinstance(value, kind) else None


def request_of(function):
    """What resources() said of a function, or of what a functools.partial calls; None: nothing."""
    request = attribute_of(function, ATTRIBUTE, dict)
    while request is None and isinstance(function, functools.partial):
        function = function.func
        request = attribute_of(function, ATTRIBUTE, dict)
    if request is None:  # an object whose class has a decorated __call__()
        request = attribute_of(getattr(type(function), "__call__", None), ATTRIBUTE, dict)
    return request


def name_of(function):
    while isinstance(function, functools.partial):
        function = function.func
    return attribute_of(function, "__name__", str) or type(function).__name__


# ---- what a task has


_NONE = object()
SUM = "sum"  # of what a task in a worker process has: the parts of the resource have no numbers
_given = threading.local()  # in a worker process: the slots that the scheduler of another process gave its task


def resource_id(resource, default=_NONE):
    """The slots of a resource that the task of this thread has.

    Parameters
    ----------
    resource : str
    default : any, optional
        What to return where the task has none, or this thread runs no task.

    Returns
    -------
    int, or a tuple of several in ascending order

    Raises
    ------
    tenon.Invalid
        The resource is a sum, so it has no slots. Without a default also: this thread runs no task, or the task did not
        request the resource.
    """
    slots = getattr(_given, "slots", None)
    missing = () if default is _NONE else (default,)
    try:
        if slots is None:
            return _core.resource_id(resource, *missing)
        if slots.get(resource) == SUM:
            raise _core.Invalid(f"the resource {resource} is a sum: a task has an amount of it, and no slots with numbers")
        if resource not in slots and not missing:
            raise _core.Invalid(f"the task has no slots of the resource {resource}")
        return slots.get(resource, *missing)
    except _core.NotFound as error:
        raise _core.Invalid(str(error)) from None


def secede():
    """Give back the CPU of the task of this thread, before a long wait, so that another task may have it.

    The task keeps its other resources. In a worker process of tenon.dask.get_processes, it also keeps the process: the
    other task runs in another one, which is started if all are busy, as long as there are no more than 32 of these.

    Raises
    ------
    tenon.Invalid
        This thread runs no task.
    """
    if getattr(_given, "slots", None) is None:
        _core.secede()
    else:
        _given.give_back_cpu()


def leave_forked(error):
    """End a child that a task has forked, when it is about to leave the task: nobody there awaits its result.

    Parameters
    ----------
    error : BaseException or None
        What the call of the task raised in the child. SystemExit says with which code the child ends; other errors are
        shown.
    """
    status = 0
    try:
        if isinstance(error, SystemExit):
            status = error.code
            if status is not None and not isinstance(status, int):
                print(status, file=sys.stderr)
                status = 1
        elif error is not None:
            status = 1
            sys.excepthook(type(error), error, error.__traceback__)
        for file in sys.stdout, sys.stderr:
            if file is not None:
                file.flush()
    finally:
        os._exit((status or 0) & 0xFF)


@contextlib.contextmanager
def given_slots(slots, give_back_cpu):
    """A block in which this thread runs a task of a scheduler of another process."""
    before = getattr(_given, "slots", None), getattr(_given, "give_back_cpu", None)
    _given.slots, _given.give_back_cpu = slots, give_back_cpu
    try:
        yield
    finally:
        _given.slots, _given.give_back_cpu = before
