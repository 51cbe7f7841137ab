# SPDX-License-Identifier: Apache-2.0
"""What a child is sent that has to know it when the child dies: barriers.

A child that begins anew is sent what is pickled for it. A forked child inherits everything, so
what its Process refers to counts as sent.
"""

import collections
import types

from .._cpython import get_spawning_popen
from ._objects import Living

# What find() looks at, nearest first: so many objects, with so many references in all. It does
# not look into a container that has more elements than the first number.
_MOST_OBJECTS = 1 << 16
_MOST_REFERENCES = 1 << 20
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)

_known = Living()  # this process's


def note(barrier):
    """Have find() look for it."""
    _known.add(barrier)


class Parcel:
    """What one child is sent, from before it starts until it has it.

    Each barrier has a place with the child, from _expect() on.
    """

    def __init__(self):
        self.places = {}  # barrier -> place

    def add(self, barrier):
        """The place with the child; None: there is none."""
        if barrier not in self.places:
            place = barrier._expect()
            if place is None:
                return None
            self.places[barrier] = place
        return self.places[barrier]

    def name(self, pid):
        """The child has started."""
        for barrier, place in self.places.items():
            barrier._name_child(place, pid)

    def forget(self):
        """The child has not started."""
        for barrier, place in self.places.items():
            barrier._forget_child(place)


def place_of(barrier):
    """The place of `barrier`, which is pickled, with the child that starts; or None."""
    parcel = getattr(get_spawning_popen(), "parcel", None)
    return parcel and parcel.add(barrier)


def find(process):
    """The barriers that a Process refers to: by arguments, attributes, and names of its target."""
    if not _known:
        return []
    import gc  # where there are no barriers, it is not needed

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
    # Not all its globals: those are the module's.
    named = (thing.__globals__.get(name) for name in _names(thing.__code__))
    closure = [*(thing.__closure__ or ()), thing.__defaults__, thing.__kwdefaults__]
    return [*closure, *(value for value in named if id(value) in known)]


def _length(thing, kind):
    """The number of elements of a container, whatever a subclass says."""
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
