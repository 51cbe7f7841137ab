# SPDX-License-Identifier: Apache-2.0
"""The pipeline of make demo-hybrid, with a few frames. dask.distributed is a part of it where that is installed."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

for name in "dask", "pyopencl", "sklearn":
    pytest.importorskip(name)
if not pathlib.Path("/etc/OpenCL/vendors/pocl.icd").exists():
    pytest.skip("PoCL is not installed", allow_module_level=True)

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "examples" / "hybrid" / "pipeline.py"


def test_all_schedulers_of_the_pipeline_make_the_same_images(tmp_path):
    path = tmp_path / "run.json"
    command = [sys.executable, str(PROGRAM), "--frames", "6", "--rounds", "1", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "needs two cores" in done.stderr:
        pytest.skip("this machine has one core")
    assert done.returncode == 0, done.stderr
    run = json.loads(path.read_text(encoding="utf-8"))
    assert len(run["results"]) == 3 + (importlib.util.find_spec("distributed") is not None)
    assert all(sorted(span[0] for span in result["spans"]) == ["CPU"] * 6 + ["GPU"] * 6 for result in run["results"])
