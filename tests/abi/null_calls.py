#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a call of each public function for each of its pointers, with NULL in that place.

null_calls.py > null_calls.h. The declarations come from the headers, so no function is forgotten. Other
pointers are what null_test.c has for their type: give_domain() for a tn_domain *, and so on.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "dev"))
import docs_headers  # noqa: E402

# Objects that null_test.c makes when a call needs one.
OBJECTS = {
    "tn_domain", "tn_tensor", "tn_queue", "tn_event", "tn_semaphore", "tn_lock", "tn_condition", "tn_barrier",
    "tn_store", "tn_channel", "tn_object", "tn_inspector", "tn_arena", "tn_process", "tn_group", "tn_pool", "tn_forkserver",
    "tn_sched", "tn_kind", "tn_graph",
}  # fmt: skip
ENDS = {"tn_process_fail"}  # its child exits with 1
# Numbers other than 1 with which a call gets as far as the pointer that is NULL.
NUMBERS = {"flags": "0", "axis": "0", "byte_offset": "0", "size_bytes": "OUT_BYTES", "signal": "0"}
# Structs that begin with their size.
SIZED = re.compile(r"(tn_\w+_(?:options|info|stat|result)|tn_process_status|tn_task_list)\*$")


def parameters(text):
    inside = text[text.index("(") + 1 : text.rindex(")")].strip()
    return [] if inside == "void" else [part.strip() for part in inside.split(",")]


def give(parameter):
    """Return an argument for a parameter, and the parameter's name if it is a pointer, else None."""
    name = re.search(r"(\w+)(?:\[\w*\])?$", parameter)[1]
    kind = re.sub(r"\bconst\b|\w+(\[\w*\])?$", "", parameter).replace(" ", "")
    if "*" not in parameter:
        return NUMBERS.get(name) or {"tn_deadline": "TN_NOW", "tn_dtype": "TN_FLOAT32", "tn_device": "THE_CPU"}.get(kind, "1"), None
    if kind in {f"{o}*" for o in OBJECTS}:
        return f"give_{kind[3:-1]}()", name
    if kind.endswith("_fn*"):
        return f"({kind[:-1]} *)(void (*)(void))do_nothing", name
    if kind == "char**":
        return "give_strings()", name
    if SIZED.match(kind):
        return f"give_sized({'in' if 'const' in parameter else 'out'}, sizeof({kind[:-1]}))", name
    if kind == "char*":
        return ("(char *)out" if "const" not in parameter else '"x"'), name
    if kind == "tn_tensor**" and not name.startswith("ret_"):
        return "give_tensors()", name
    if kind == "tn_object**" or kind == "tn_queue**" and not name.startswith("ret_"):
        return "give_queues()" if not name.startswith("ret_") else "(void *)out", name
    return ("(void *)out" if name.startswith("ret_") or "const" not in parameter else "(void *)in"), name


def main():
    calls = []
    for header in docs_headers.read_headers():
        for function in header.functions:
            given = [give(parameter) for parameter in parameters(function.text)]
            pointers = [i for i, (_, name) in enumerate(given) if name]
            is_void = function.text.startswith("void ")
            for null in pointers:
                arguments = ", ".join("NULL" if i == null else text for i, (text, _) in enumerate(given))
                call = f"{function.name}({arguments})"
                calls.append((function.name, given[null][1], call, is_void, function.text.startswith("int ")))
    print("/* SPDX-License-Identifier: Apache-2.0 */\n/* Written by null_calls.py. */")
    for n, (name, _, call, is_void, is_status) in enumerate(calls):
        body = f"{call}; return 0;" if is_void else f"return {call};" if is_status else f"(void){call}; return 0;"
        if name in ENDS:
            body = f"{call};"
        print(f"static int call_{n}(void) {{ {body} }}")
    print("static const struct null_call calls[] = {")
    for n, (name, parameter, _, _, _) in enumerate(calls):
        print(f'    {{"{name}", "{parameter}", call_{n}}},')
    print("};")


if __name__ == "__main__":
    main()
