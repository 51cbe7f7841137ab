# SPDX-License-Identifier: Apache-2.0
"""The standard library's module: nothing in it needs another."""

import sys

from .._cpython import dummy

sys.modules[__name__] = dummy
