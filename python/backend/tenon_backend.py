# SPDX-License-Identifier: Apache-2.0
"""Build the package with meson-python, once all that the build needs of the system is there.

Meson stops at the first thing that is missing, and does not name the package that has it.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig

import mesonpy

# Where headers are looked for without a compiler.
INCLUDE = pathlib.Path("/usr/include")


def _compiler():
    """The command of the compiler that Meson will take, as a list; or None."""
    for command in [os.environ.get("CC", ""), "cc", "gcc", "clang"]:
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    return None


def _has_header(compiler, name):
    if compiler is None:
        return (INCLUDE / name).exists()
    done = subprocess.run(
        [*compiler, "-E", "-x", "c", "-"], input=f"#include <{name}>\n", text=True, capture_output=True, check=False
    )
    return done.returncode == 0


def missing():
    """What the build needs and the system lacks: [(what it is, its package in Debian), ...]."""
    compiler = _compiler()
    header = pathlib.Path(sysconfig.get_path("include")) / "Python.h"
    needs = [
        (compiler is not None, "a C compiler", "gcc"),
        (_has_header(compiler, "stdio.h"), "the headers of the C library", "libc6-dev"),
        (header.exists(), f"Python's own headers ({header})", "python3-dev"),
        (shutil.which(os.environ.get("PKG_CONFIG", "pkg-config")), "pkg-config", "pkg-config"),
        (_has_header(compiler, "jansson.h"), "the library jansson with its headers", "libjansson-dev"),
    ]
    return [(what, package) for is_there, what, package in needs if not is_there]


def _check():
    lacks = missing()
    if lacks:
        what = ", ".join(what for what, _ in lacks)
        packages = " ".join(package for _, package in lacks)
        sys.exit(f"tenon is built from C, and this machine lacks: {what}.\nOn Debian or Ubuntu: apt-get install {packages}")


def _checked(hook):
    def run(*arguments, **named):
        _check()
        return hook(*arguments, **named)

    return run


for _name in (
    "get_requires_for_build_sdist",
    "build_sdist",
    "get_requires_for_build_wheel",
    "build_wheel",
    "get_requires_for_build_editable",
    "build_editable",
):
    globals()[_name] = _checked(getattr(mesonpy, _name))
