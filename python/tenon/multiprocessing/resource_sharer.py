# SPDX-License-Identifier: Apache-2.0
"""The standard library's module: nothing in it needs another."""

import sys

from .._cpython import resource_sharer

sys.modules[__name__] = resource_sharer
