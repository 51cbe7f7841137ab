# SPDX-License-Identifier: Apache-2.0
"""What exceptions of pickle are about: the message, or the task."""

import pickletools

_MOST_NAMES = 8


def _names(pickled):
    """The names of classes and functions in a pickle, in order."""
    strings = []
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name == "GLOBAL":
            yield argument.replace(" ", ".")
        elif operation.name == "STACK_GLOBAL" and len(strings) >= 2:
            yield ".".join(strings[-2:])
        elif isinstance(argument, str):
            strings.append(argument)


def add_note(error, text):
    """Add a note to an exception (Python 3.11; before, the same list as an attribute)."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), text]


def begin_with(error, text):
    """Have the text of an exception begin with another one. If it is no plain exception of Python, that is a note."""
    kind = type(error)
    if kind.__str__ is BaseException.__str__ and kind.__module__ in ("builtins", "_pickle", "pickle"):
        error.args = (f"{text}: {error}",)
    else:
        add_note(error, text)


def note(error, pickled):
    """Add a note on a message that could not be unpickled."""
    names = []
    try:
        for name in _names(bytes(pickled)):
            if name not in names and not name.startswith("tenon._core."):
                names.append(name)
    except ValueError:
        names.append("nothing that could be read")
    more = ", ..." if len(names) > _MOST_NAMES else ""
    add_note(error, f"in a message of {len(pickled)} bytes, whose pickle names {', '.join(names[:_MOST_NAMES])}{more}")
