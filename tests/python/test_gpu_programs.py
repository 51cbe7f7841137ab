# SPDX-License-Identifier: Apache-2.0
"""The programs that compare tenon.torch with torch.multiprocessing on a GPU, run on the stand-in for CUDA.

What they say here is no figure: the sides run to their ends, and what does not depend on a GPU is asserted.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from devices import DRIVER, needs_driver, universe

torch = pytest.importorskip("torch")

__all__ = ["universe"]  # a fixture
pytestmark = needs_driver
PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "python"


def run(name, *arguments, **changes):
    environment = {key: value for key, value in {**os.environ, **changes}.items() if value is not None}
    command = [sys.executable, PROGRAMS / name, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA, and the driver is a fake one")
def test_figures_of_a_gpu_are_counted_without_one(universe):
    ended = run("bench_gpu.py", "--small", "gpu_open", "gpu_small", TENON_TEST_FAKECUDA=DRIVER)
    assert ended.returncode == 0, ended.stderr
    figures = {figure["name"]: figure for figure in map(json.loads, ended.stdout.splitlines())}
    assert set(figures) == {"gpu_open", "gpu_small"}
    assert all(figure["valid"] is False for figure in figures.values())
    assert figures["gpu_open"]["value"] == 0  # no call of the driver opens memory for a later message
    assert figures["gpu_open"]["baseline"] > 0  # what PyTorch does for each message is counted
    assert figures["gpu_small"]["value"] > 0
    universe.fake_forgive()  # PyTorch's side keeps less order than the fake driver wants


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["bench_gpu.py"])
def test_a_machine_without_a_gpu_is_told_in_one_sentence(name):
    ended = run(name, TENON_TEST_FAKECUDA=None)
    assert ended.returncode == 77 and ended.stdout == ""
    assert "there is no GPU" in ended.stderr and len(ended.stderr.splitlines()) == 1
