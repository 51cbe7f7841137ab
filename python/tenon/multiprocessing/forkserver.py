# SPDX-License-Identifier: Apache-2.0
"""The standard library's module: nothing in it needs another."""

import sys

from .._cpython import forkserver

sys.modules[__name__] = forkserver
