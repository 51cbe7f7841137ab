#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Choose small corpora for the tree: dev/fuzz-keep.py BUILD TARGET...

From the inputs in BUILD/corpus/TARGET and tests/fuzz/corpus/TARGET, those that reach the most
edges together, at most MOST files of MOST_BYTES. Files named found-* are reproducers, and stay.
"""

import hashlib
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST, MOST_BYTES = 50, 2048


def reached(program, files, folder):
    """What libFuzzer's merge finds out of each file: {path: set of edges}."""
    control = folder / "control"
    inputs = folder / "inputs"
    inputs.mkdir()
    (folder / "none").mkdir()
    for path in files:
        (inputs / path.name).write_bytes(path.read_bytes())
    subprocess.run(
        [program, "-merge=1", "-detect_leaks=0", "-timeout=60", f"-merge_control_file={control}",
         folder / "none", inputs],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    lines = control.read_text().splitlines()
    count = int(lines[0])
    names = lines[2:2 + count]
    edges = {}
    for line in lines[2 + count:]:
        kind, index, *numbers = line.split()
        if kind == "COV":
            edges[names[int(index)]] = set(numbers)
    return {path: edges.get(str(inputs / path.name), set()) for path in files}


def choose(edges):
    chosen, have = [], set()
    while len(chosen) < MOST:
        best = max(edges, key=lambda path: (len(edges[path] - have), -path.stat().st_size), default=None)
        if best is None or not edges[best] - have:
            break
        have |= edges[best]
        chosen.append(best)
    return chosen, len(have)


def keep(build, target):
    tree = ROOT / "tests/fuzz/corpus" / target
    found = sorted(tree.glob("found-*"))
    files = [path for folder in (build / "corpus" / target, tree) for path in sorted(folder.iterdir())
             if path.stat().st_size <= MOST_BYTES and path not in found]
    with tempfile.TemporaryDirectory() as folder:
        edges = reached(build / "tests/fuzz" / f"fuzz_{target}", files, pathlib.Path(folder))
    chosen, count = choose(edges)
    contents = [path.read_bytes() for path in chosen]
    for path in tree.iterdir():
        if path not in found:
            path.unlink()
    for content in contents:
        (tree / hashlib.sha256(content).hexdigest()[:12]).write_bytes(content)
    print(f"fuzz: {target}: {len(contents)} inputs of {len(files)} reach {count} edges, {len(found)} were found")


for name in sys.argv[2:]:
    keep(pathlib.Path(sys.argv[1]).resolve(), name)
