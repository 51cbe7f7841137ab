#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Export scikit-learn's handwritten digits as a .npy pair for the demo, in an order fixed for ever."""

import pathlib
import sys

import numpy
from sklearn.datasets import load_digits

SEED = 2011


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo")
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    # RandomState, because its permutation is frozen; a Generator's may change with NumPy.
    order = numpy.random.RandomState(SEED).permutation(len(digits.target))
    x = numpy.ascontiguousarray(digits.data[order] / 16, dtype="<f4")
    y = numpy.ascontiguousarray(digits.target[order], dtype="<i8")
    for name, array in (("digits_x.npy", x), ("digits_y.npy", y)):
        temporary = folder / ("." + name)
        with open(temporary, "wb") as file:
            numpy.save(file, array)
        temporary.replace(folder / name)
        print(f"{folder / name}: {array.dtype} {list(array.shape)}")


if __name__ == "__main__":
    main()
