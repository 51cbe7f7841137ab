# SPDX-License-Identifier: Apache-2.0
"""`python -m tenon PROGRAM`: run a program with tenon.multiprocessing in place of multiprocessing."""

from ._run import main

if __name__ == "__main__":
    main()
