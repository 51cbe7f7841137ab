#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run tests with the package as it would be installed: run.py SOURCES BUILD [pytest arguments]

The package is a folder of links to the sources and to what was built.
"""

import os
import pathlib
import shutil
import sys
import tempfile


def link_package(sources, build, to):
    for path in sorted((sources / "python" / "tenon").rglob("*")):
        if path.suffix in (".py", ".pyi", ".typed"):
            place = to / path.relative_to(sources / "python" / "tenon")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path)
    for extension in (build / "python").glob("_core*.so"):
        (to / extension.name).symlink_to(extension)
    (to / "bin").mkdir()
    for program in (build / "tools" / "tenond" / "tenond", build / "tools" / "tenon" / "tenon"):
        if program.exists():
            (to / "bin" / program.name).symlink_to(program)


def main():
    sources, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    site = pathlib.Path(tempfile.mkdtemp(prefix="tenon-site-"))
    try:
        link_package(sources, build, site / "tenon")
        environment = dict(
            os.environ,
            PYTHONPATH=str(site),
            PYTHONDONTWRITEBYTECODE="1",
            HYPOTHESIS_STORAGE_DIRECTORY=str(site / "hypothesis"),
        )
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:benchmark", *sys.argv[3:]]
        return os.spawnve(os.P_WAIT, sys.executable, command, environment)
    finally:
        shutil.rmtree(site, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
