# SPDX-License-Identifier: Apache-2.0
"""The types that the package declares: of what there is, and as its users need them."""

import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
import tenon

PACKAGES = pathlib.Path(tenon.__file__).parents[1]
PROGRAM = pathlib.Path(__file__).with_name("typed.py")
WAIT_S = 120

# What is declared on purpose as it is not found, and modules that no user imports.
NOT_AS_FOUND = r"""
tenon\.(multiprocessing\.)?_(?!core\b)\w+(\..*)?
tenon\._core\.Tensor\.__buffer__  # Python before 3.12 has no name for it
tenon\.multiprocessing\.synchronize\.Condition\.(acquire|release)  # each object's own
tenon\.multiprocessing\.(Joinable|Simple)?Queue  # a class, to be an annotation
tenon\.multiprocessing\.spawn  # a module that can be called
tenon\.multiprocessing\.process\.AuthenticationString  # the standard library's
tenon\.multiprocessing\.\w+\.__all__  # of modules that are the standard library's
"""
# These, and what needs PyTorch, have the types of their sources.
CONFIGURATION = """
[mypy]
[mypy-torch.*]
ignore_missing_imports = true
follow_imports = skip
[mypy-dask.*]
ignore_missing_imports = true
follow_imports = skip
[mypy-{}]
ignore_errors = true
"""


def version_of_mypy():
    try:
        return tuple(map(int, importlib.metadata.version("mypy").split(".")[:2]))
    except importlib.metadata.PackageNotFoundError:
        return 0, 0


needs_mypy = pytest.mark.skipif(
    version_of_mypy() < (1, 19), reason="mypy 1.19 or newer is not installed"
)
needs_python_of_mypy = pytest.mark.skipif(
    sys.version_info < (3, 10), reason="mypy has forgotten this Python's standard library"
)


def run(*arguments, folder):
    """As mypy finds the package in a program's own folders."""
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=dict(os.environ, MYPYPATH=str(PACKAGES)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
    )
    assert result.returncode == 0, result.stdout


def name_of(path):
    return ".".join(path.relative_to(PACKAGES).with_suffix("").parts)


def test_program_runs(tmp_path):
    run(PROGRAM, folder=tmp_path)


@needs_mypy
def test_type_checker_agrees_with_the_program_and_finds_its_mistakes(tmp_path):
    options = "--strict", "--follow-imports=silent", "--cache-dir", tmp_path / "cache"
    run("-m", "mypy", *options, PROGRAM, folder=tmp_path)


@needs_mypy
@needs_python_of_mypy
def test_stubs_declare_what_there_is(tmp_path):
    configuration, allowed = tmp_path / "mypy.ini", tmp_path / "allowed"
    own = ["tenon.torch", "tenon.dask", *map(name_of, (PACKAGES / "tenon").rglob("_[a-z]*.py"))]
    configuration.write_text(CONFIGURATION.format(",".join(own)))
    wanted = NOT_AS_FOUND
    for peer in ("dask", "torch"):
        if importlib.util.find_spec(peer) is None:
            wanted += f"tenon\\.{peer}\n"
    allowed.write_text(wanted)
    options = "--concise", "--mypy-config-file", configuration
    allow = "--allowlist", allowed, "--ignore-unused-allowlist"
    run("-m", "mypy.stubtest", *options, *allow, "tenon", folder=tmp_path)
