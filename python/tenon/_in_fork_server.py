# SPDX-License-Identifier: Apache-2.0
"""The fork server of a program that runs under `python -m tenon` imports this module first."""

from . import _unmodified

_unmodified.replace()  # before the modules that the program preloads; each child is told the rest
