# SPDX-License-Identifier: Apache-2.0
"""The programs that compare tenon.torch with torch.multiprocessing on a GPU, run on the stand-in for CUDA.

What they say here is no figure: the sides run to their ends, and what does not depend on a GPU is asserted.
"""

import json
import os
import pathlib
import re
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
def test_figures_of_a_gpu_are_printed_in_a_rehearsal(universe):
    names = ["gpu_open", "gpu_small"] if "TN_TEST_FULL" in os.environ else ["gpu_small"]
    ended = run("bench_gpu.py", "--small", *names, TENON_TEST_FAKECUDA=DRIVER)
    assert ended.returncode == 0, ended.stderr
    figures = {figure["name"]: figure for figure in map(json.loads, ended.stdout.splitlines())}
    assert set(figures) == set(names)
    assert all(figure["valid"] is False for figure in figures.values())
    assert figures["gpu_small"]["value"] > 0
    universe.fake_forgive()  # PyTorch's side keeps less order than the fake driver wants


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["bench_gpu.py", "compare_gpu.py"])
def test_a_machine_without_a_gpu_is_told_in_one_sentence(name):
    ended = run(name, TENON_TEST_FAKECUDA=None)
    assert ended.returncode == 77 and ended.stdout == ""
    assert "there is no GPU" in ended.stderr and len(ended.stderr.splitlines()) == 1


# What PyTorch's side comes to is that of a model, but T3 is its known race.
ROWS = {"T1": "5 of 5", "T2": "not seen|is seen", "T3": r"reads \[0\]", "T4": "2 of 2", "T5": "0 tensors", "T6": "error"}


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA, and the driver is a fake one")
def test_a_report_has_the_rows_of_both_sides(tmp_path):
    build, report = pathlib.Path(DRIVER).parents[2], tmp_path / "report.md"
    command = [sys.executable, PROGRAMS.parents[1] / "dev" / "check-gpu", "--rehearse", report, "--build", build]
    numbers = [*ROWS, "N5", "N6"] if "TN_TEST_FULL" in os.environ else ["T3"]
    command += ["--torch", sys.executable, "--only", ",".join([*numbers, "gpu_open"])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    text = report.read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in text.splitlines() if line.startswith("| ")}
    for number in numbers:
        if number.startswith("N"):
            assert float(rows[number][2]) > 0, rows[number]
            continue
        observed, agrees = rows[number][1], rows[number][3].strip()
        theirs, _, ours = observed.partition("; tenon.torch: ")
        assert re.search(f"torch.multiprocessing: .*(?:{ROWS[number]})", theirs) and ours, (number, observed)
        assert agrees == "yes", (number, observed)
    assert float(rows["gpu_open"][0]) == 0  # no call of the driver opens memory for a later message
    assert float(rows["gpu_open"][1]) > 0  # what PyTorch does for each message is counted
    assert "a rehearsal" in rows["gpu_open"][5], rows["gpu_open"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_report_without_pytorch_says_what_was_left_out(tmp_path):
    build, report = pathlib.Path(DRIVER).parents[2], tmp_path / "report.md"
    command = [sys.executable, PROGRAMS.parents[1] / "dev" / "check-gpu", "--rehearse", report, "--build", build]
    ended = subprocess.run([*command, "--only", "F1.1"], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    text = report.read_text(encoding="utf-8")
    assert "Left out, and not counted: the questions T1 to T6" in text and "| T1 |" not in text
