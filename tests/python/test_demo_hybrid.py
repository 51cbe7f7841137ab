# SPDX-License-Identifier: Apache-2.0
"""The pipeline of make demo-hybrid, with a few frames. dask.distributed is a part of it where that is installed."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

for name in "dask", "pyopencl", "sklearn":
    pytest.importorskip(name)
if not pathlib.Path("/etc/OpenCL/vendors/pocl.icd").exists():
    pytest.skip("PoCL is not installed", allow_module_level=True)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "hybrid"
FRAMES = 4
SIDES = ["dask.threaded, a thread for each CPU", "dask.threaded, one thread more", "dask.distributed, resources", "tenon.dask"]
has_matplotlib = importlib.util.find_spec("matplotlib") is not None


def run_program(*command):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=200)
    if "needs two cores" in done.stderr:
        pytest.skip("this machine has one core")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A run of the demo: what it printed, its numbers, and its picture."""
    folder = tmp_path_factory.mktemp("demo")
    more = ["--picture", folder / "picture.png"] if has_matplotlib else []
    printed = run_program(
        FOLDER / "pipeline.py", "--frames", FRAMES, "--rounds", "1", "--json", folder / "run.json", *more
    )
    return printed, json.loads((folder / "run.json").read_text(encoding="utf-8")), folder / "picture.png"


def sides():
    return [side for side in SIDES if "distributed" not in side or importlib.util.find_spec("distributed") is not None]


def test_all_schedulers_of_the_pipeline_make_the_same_images(demo):
    _, run, _ = demo
    assert [result["name"] for result in run["results"]] == sides()
    assert all(sorted(span[0] for span in result["spans"]) == ["CPU"] * FRAMES + ["GPU"] * FRAMES for result in run["results"])
    assert len({round(result["sum"], 3) for result in run["results"]}) == 1 and run["results"][0]["sum"] > 0


ROW = re.compile(r"(?P<name>.*?) +(?P<makespan>[\d.]+) s +(?P<ratio>[\d.]+) +(?P<cpu>\d+)% +(?P<gpu>\d+)%")


def test_table_has_a_row_for_each_scheduler(demo):
    printed, run, _ = demo
    lines = printed.splitlines()
    assert lines[0].startswith("CPU: ") and "by PoCL" in lines[0]
    rows = [match for match in map(ROW.fullmatch, lines) if match]
    assert [row["name"] for row in rows] == sides()
    busy = {"CPU": run["cpus"], "GPU": 1}
    for row, result in zip(rows, run["results"]):
        assert float(row["makespan"]) == pytest.approx(result["makespan_s"], abs=0.006)
        assert float(row["ratio"]) == pytest.approx(result["makespan_s"] / run["bound_s"], abs=0.0006)
        for stage, count in busy.items():
            work = sum(until - since for name, since, until, _ in result["spans"] if name == stage)
            assert int(row[stage.lower()]) == pytest.approx(100 * work / count / result["makespan_s"], abs=0.6)
            assert 0 < int(row[stage.lower()])
    (bound,) = (line for line in lines if line.startswith("lower bound"))
    assert float(bound.split()[2]) == pytest.approx(run["bound_s"], abs=0.006)


@pytest.mark.skipif(not has_matplotlib, reason="matplotlib is not installed")
def test_picture_has_a_panel_with_both_stages_for_each_scheduler(demo):
    import matplotlib.image
    import numpy as np

    printed, run, path = demo
    assert str(path) in printed
    image = np.round(matplotlib.image.imread(path)[:, :, :3] * 255).astype(int)
    panels = len(run["results"])
    assert image.shape[1] == 10 * 130 and image.shape[0] == pytest.approx((1.5 * panels + 0.8) * 130, abs=2)
    for color in (0x1F, 0x5F, 0xA8), (0xC9, 0x79, 0x1D):  # tasks of the CPU, and of the GPU
        rows = (np.abs(image - color).max(axis=2) < 8).sum(axis=1) > 5
        assert (np.diff(rows.astype(int)) == 1).sum() >= panels  # bars with something else between them


SEE_ADDRESSES = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, pyopencl as cl, tenon, tenon.dask
import pipeline, stages

# In place of the demo's kernel, one that writes the addresses that the device has for its arguments.
stages.device.program = cl.Program(stages.device.context, '''
__kernel void denoise(__global const float *in, __global float *out, int width, int height, int radius)
{
    if (get_global_id(0) == 0 && get_global_id(1) == 0) {
        __global ulong *to = (__global ulong *)out;
        to[0] = (ulong)in;
        to[1] = (ulong)out;
        to[2] = ((__global const uint *)in)[width * height - 1];
    }
}
''').build()
made = {}

def sharpen(numbers):
    frame = stages.sharpen(numbers)
    made[int(numbers[0])] = frame
    return frame

pipeline.sharpen = sharpen
chunks = pipeline.make_pipeline(3)
with tenon.set_options(resources={"CPU": 2, "GPU": (0,)}):
    results = tenon.dask.get(chunks.__dask_graph__(), [(chunks.name, i, 0, 0) for i in range(3)])
for i, out in enumerate(results):
    read, wrote, last = out.reshape(-1).view(np.uint64)[:3]
    assert read == made[i].ctypes.data, "the kernel read a copy"
    assert last == made[i].reshape(-1).view(np.uint32)[-1]
    assert wrote == out.ctypes.data, "the kernel wrote a copy"

# Both lie in the memory that processes share: to send them copies nothing.
_, shared, _, copied = tenon._core.traffic()
for array in [*made.values(), *results]:
    tenon._core.dumps(array, tenon._domain.default())
_, shared_now, _, copied_now = tenon._core.traffic()
assert shared_now - shared == sum(array.nbytes for array in [*made.values(), *results]), "not in tenon's memory"
assert copied_now == copied
print("no copy")
"""


def test_kernel_reads_and_writes_the_arrays_of_tenon_in_place():
    assert run_program("-c", SEE_ADDRESSES, FOLDER) == "no copy\n"
