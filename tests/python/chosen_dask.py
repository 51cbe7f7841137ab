# SPDX-License-Identifier: Apache-2.0
"""The Dask that tests use, and its workers. TENON_TEST_DASK is a folder with another version. Without Dask, the tests are
skipped."""

import contextlib
import os
import sys

import pytest

if "TENON_TEST_DASK" in os.environ:
    if not os.path.isdir(os.environ["TENON_TEST_DASK"]):
        pytest.skip("that version of Dask is not installed", allow_module_level=True)
    sys.path.insert(0, os.environ["TENON_TEST_DASK"])

dask = pytest.importorskip("dask")


@contextlib.contextmanager
def workers_of_module(**options):
    """A block whose tests have workers of get_processes. They are spawned, find the modules of this process by the
    environment variable that they inherit, and end with the block. The options are those of tenon.set_options()."""
    import tenon
    from tenon import _dask_processes

    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        stack.enter_context(dask.config.set({"multiprocessing.context": "spawn"}))
        if options:
            stack.enter_context(tenon.set_options(**options))
        yield
        for pool in list(_dask_processes._pools.values()):
            _dask_processes.forget_pool(pool)
