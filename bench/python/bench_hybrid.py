#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hybrid_real: examples/hybrid/pipeline.py, a pipeline over processors and an OpenCL device.

The time that the pipeline takes, over its lower bound: the work of the CPUs, or of the device, with the least that is
before and after it, from the times of the same calls one after another. Ours is that of tenon.dask.get; the baseline is
that of dask.distributed with resources.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "examples" / "hybrid" / "pipeline.py"
NEEDS = "dask", "distributed", "pyopencl", "sklearn"


def main():
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing or not pathlib.Path("/etc/OpenCL/vendors/pocl.icd").exists():
        print(f"not installed: {', '.join(missing) or 'PoCL'}: dev/setup demo-hybrid", file=sys.stderr)
        raise SystemExit(77)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.json"
        subprocess.run([sys.executable, str(PROGRAM), "--json", str(path)], check=True, stdout=subprocess.DEVNULL)
        run = json.loads(path.read_text(encoding="utf-8"))
    over = {result["name"].split(",")[0]: result["makespan_s"] / run["bound_s"] for result in run["results"]}
    ours, peer = over["tenon.dask"], over["dask.distributed"]
    figure = {"name": "hybrid_real", "unit": "x", "value": ours, "baseline": peer, "ratio": ours / peer, "n": 3}
    print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
