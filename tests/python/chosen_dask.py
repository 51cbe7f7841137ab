# SPDX-License-Identifier: Apache-2.0
"""The Dask that tests use: TENON_TEST_DASK is a folder with another version. Without it, the tests are skipped."""

import os
import sys

import pytest

if "TENON_TEST_DASK" in os.environ:
    if not os.path.isdir(os.environ["TENON_TEST_DASK"]):
        pytest.skip("that version of Dask is not installed", allow_module_level=True)
    sys.path.insert(0, os.environ["TENON_TEST_DASK"])

dask = pytest.importorskip("dask")
