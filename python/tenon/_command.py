# SPDX-License-Identifier: Apache-2.0
"""The command `tenon` of an installed package: it runs the program that is part of the package."""

import os
import pathlib
import sys


def main() -> None:
    os.environ.setdefault("TENON_PYTHON", sys.executable)  # `tenon load` runs it for files of NumPy and PyTorch
    program = pathlib.Path(__file__).with_name("bin") / "tenon"
    os.execv(program, ["tenon", *sys.argv[1:]])
