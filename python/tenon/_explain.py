# SPDX-License-Identifier: Apache-2.0
"""Notes for exceptions: what a message that could not be unpickled contains."""

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


def note(error, pickled):
    """Add a note to an exception (Python 3.11; before, the same list as an attribute)."""
    names = []
    try:
        for name in _names(bytes(pickled)):
            if name not in names and not name.startswith("tenon._core."):
                names.append(name)
    except ValueError:
        names.append("nothing that could be read")
    more = ", ..." if len(names) > _MOST_NAMES else ""
    text = f"in a message of {len(pickled)} bytes, whose pickle names {', '.join(names[:_MOST_NAMES])}{more}"
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), text]
