#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""load_speed, load_second: weights once in memory for all processes.

load_speed   bytes a second of `tenon load` of a file of safetensors that is in the page cache, from the start of
             the command to its end; baseline: `cp` of the same file into tmpfs
load_second  the time from `tenon.torch.load_state_dict()` to tensors, of a model that is loaded; baseline:
             safetensors.torch.load_file() of the same file. Each side reads one number of each tensor
"""

import importlib.util
import json
import os
import pathlib
import select
import struct
import subprocess
import sys
import time

from common import measure, print_figure

TENON = pathlib.Path(importlib.util.find_spec("tenon").origin).with_name("bin") / "tenon"
GIB = 1 << 30
SPEED_BYTES, SPEED_ROUNDS = GIB, 7
TENSORS, SECOND_ROUNDS = 400, 7
SECOND_BYTES = int(os.environ.get("TENON_BENCH_LOAD_BYTES", 4 * GIB))
DOMAIN = f"bench-load-{os.getpid()}"
os.environ.setdefault("TENON_TENOND", str(TENON.with_name("tenond")))


def write_model(path, count, size):
    """A file of `count` tensors of float32, `size` bytes each, whose numbers are not zero."""
    header, shape = {}, [size // 4 // 1024, 1024]
    for i in range(count):
        header[f"layer.{i}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [i * size, (i + 1) * size]}
    text = json.dumps(header).encode()
    part = struct.pack("<f", 0.5) * (size // 4)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(count):
            file.write(part)


def load(name, path):
    subprocess.check_call([TENON, "load", "--quiet", "--domain", DOMAIN, name, path])


def unload(name):
    subprocess.check_call([TENON, "unload", "--domain", DOMAIN, name])


def unload_and_wait(name):
    """Until the memory is free: tenond gives it back while the next round would run. It ends with its last domain."""
    stat = json.loads(subprocess.check_output([TENON, "stat", "--json", DOMAIN]))
    tenond = os.pidfd_open(stat["manager_pid"])
    unload(name)
    select.select([tenond], [], [])
    os.close(tenond)


def ours_speed(path):
    while True:
        begun = time.monotonic()
        load("speed", path)
        yield SPEED_BYTES / (time.monotonic() - begun)
        unload_and_wait("speed")


def cp_speed(path, folder):
    while True:
        begun = time.monotonic()
        subprocess.check_call(["cp", path, folder])
        yield SPEED_BYTES / (time.monotonic() - begun)
        os.unlink(os.path.join(folder, os.path.basename(path)))


def use(tensors):
    assert len(tensors) == TENSORS
    assert sum(float(tensor[0, 0]) for tensor in tensors.values()) == TENSORS / 2


def ours_second():
    import tenon.torch

    while True:
        begun = time.monotonic()
        use(tenon.torch.load_state_dict("second", domain=DOMAIN))
        yield time.monotonic() - begun


def file_second(path):
    import safetensors.torch

    while True:
        begun = time.monotonic()
        use(safetensors.torch.load_file(path))
        yield time.monotonic() - begun


def main():
    folder = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"tenon-bench-load-{os.getpid()}"
    tmpfs = pathlib.Path("/dev/shm") / folder.name
    folder.mkdir()
    tmpfs.mkdir()
    path = str(folder / "model.safetensors")
    try:
        write_model(path, 64, SPEED_BYTES // 64)
        values = measure(SPEED_ROUNDS, ours=lambda: ours_speed(path), cp=lambda: cp_speed(path, tmpfs))
        print_figure("load_speed", "B/s", values["ours"], values["cp"])
        write_model(path, TENSORS, SECOND_BYTES // TENSORS // 4096 * 4096)
        load("second", path)
        values = measure(SECOND_ROUNDS, ours=ours_second, file=lambda: file_second(path))
        print_figure("load_second", "s", values["ours"], values["file"])
        unload("second")
    finally:
        for place in folder, tmpfs:
            for file in place.iterdir():
                file.unlink()
            place.rmdir()


if __name__ == "__main__":
    sys.exit(main())
