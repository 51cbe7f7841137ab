# SPDX-License-Identifier: Apache-2.0
"""Which barriers a child is sent: a barrier breaks when such a child dies.

A child that does not inherit memory is sent the objects that are pickled for it. A forked child
inherits everything, so the objects that its Process refers to count as sent.
"""

import collections
import types

from .._cpython import get_spawning_popen
from ._objects import Living

# find() visits so many objects, nearest first, with so many references in all. It skips a container
# that has more elements than the first number.
_MOST_OBJECTS = 1 << 16
_MOST_REFERENCES = 1 << 20
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)

_known = Living()  # the barriers of this process


def note(barrier):
    """Let find() find the barrier."""
    _known.add(barrier)


class Parcel:
    """The barriers that one child is sent, from before it starts until it has them.

    Each barrier reserves a place for the child with _expect().
    """

    def __init__(self):
        self.places = {}  # barrier -> place

    def add(self, barrier):
        """The place that the barrier reserves for the child; None if it has none left."""
        if barrier not in self.places:
            place = barrier._expect()
            if place is None:
                return None
            self.places[barrier] = place
        return self.places[barrier]

    def name(self, pid):
        """Tell the barriers the pid of the child, which has started."""
        for barrier, place in self.places.items():
            barrier._name_child(place, pid)

    def forget(self):
        """Free the places: no child has started."""
        for barrier, place in self.places.items():
            barrier._forget_child(place)


def place_of(barrier):
    """The place for the child that starts, in a barrier that is being pickled for it; or None."""
    parcel = getattr(get_spawning_popen(), "parcel", None)
    return parcel and parcel.add(barrier)


def find(process):
    """The barriers that a Process refers to by its arguments, its attributes or its target function."""
    if not _known:
        return []
    import gc  # not imported in programs without barriers

    known = {id(barrier): barrier for barrier in _known.all()}
    found, seen, references = [], set(), 0
    front = collections.deque([vars(process), type(process).run])
    while front and len(found) < len(known):
        if len(seen) >= _MOST_OBJECTS or references >= _MOST_REFERENCES:
            break
        thing = front.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if id(thing) in known:
            found.append(thing)
        else:
            near = _referents(thing, known, gc.get_referents)
            references += len(near)
            front.extend(filter(gc.is_tracked, near))
    return found


def _referents(thing, known, referents_of):
    kind = type(thing)
    if issubclass(kind, (type, types.ModuleType)):
        return ()
    if _length(thing, kind) > _MOST_OBJECTS:
        return ()
    if kind is not types.FunctionType:
        return referents_of(thing)
    # Only the globals that the function names: the others belong to its module.
    named = (thing.__globals__.get(name) for name in _names(thing.__code__))
    closure = [*(thing.__closure__ or ()), thing.__defaults__, thing.__kwdefaults__]
    return [*closure, *(value for value in named if id(value) in known)]


def _length(thing, kind):
    """The number of elements of a container, without calling __len__() of a subclass."""
    if kind in _CONTAINERS:
        return len(thing)
    if not issubclass(kind, _CONTAINERS):
        return 0
    return next(base for base in _CONTAINERS if issubclass(kind, base)).__len__(thing)


def _names(code):
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names(constant)
    return names
