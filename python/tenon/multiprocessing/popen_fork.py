# SPDX-License-Identifier: Apache-2.0
"""The module of the standard library itself, which needs no change."""

import sys

from .._cpython import popen_fork

sys.modules[__name__] = popen_fork
