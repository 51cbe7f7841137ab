# SPDX-License-Identifier: Apache-2.0
"""What tests of CUDA devices share: the fake driver of tests/fakecuda, and children that use it.

The process of the tests never uses the driver, so that its forked children may.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import time

import pytest

import tenon
from tenon import _domain

DRIVER = os.environ.get("TENON_TEST_FAKECUDA")
needs_driver = pytest.mark.skipif(DRIVER is None, reason="TENON_TEST_FAKECUDA names no fake driver")

DEVICES = 2
MEMORY_BYTES = 1 << 30
WAIT_S = 60
VALUES = [1.5, -2.0, 3.25, 4.0, 5.0, 6.5]


class Options(ctypes.Structure):
    """struct fake_options of tests/fakecuda/fake.h"""

    _fields_ = [
        *[(name, ctypes.c_uint32) for name in ("device_count", "world")],
        *[(name, ctypes.c_uint64) for name in ("memory_bytes", "granularity", "seed")],
        *[(name, ctypes.c_uint32) for name in ("driver_version", "without", "compute_mode", "max_events")],
        *[("init_result", ctypes.c_int32), ("open_cost_ns_per_mib", ctypes.c_uint32)],
        *[(name, ctypes.c_bool) for name in ("delays", "mig", "no_shared_shm", "strict_base", "no_races")],
        ("strict_pitch", ctypes.c_bool), ("takes_numbers", ctypes.c_bool),
        ("reserved", ctypes.c_uint8),
    ]


def load_fake():
    fake = ctypes.CDLL(DRIVER)
    fake.fake_mem_used.restype = ctypes.c_uint64
    return fake


def memory_is_used(fake):
    return any(fake.fake_mem_used(device) > 0 for device in range(DEVICES))


@pytest.fixture(scope="module")
def universe(tmp_path_factory):
    """The devices and their memory, which all tests leave free, and of which no rule is broken."""
    path = str(tmp_path_factory.mktemp("devices") / "universe")
    options = Options(device_count=DEVICES, no_races=True)  # messages of tenon give the order
    fake = load_fake()
    assert fake.fake_make(path.encode(), ctypes.byref(options)) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENON_CUDA_LIBRARY", DRIVER)
        patch.setenv("TENON_FAKECUDA", path)
        yield fake
        until = time.monotonic() + WAIT_S
        while memory_is_used(fake) and time.monotonic() < until:
            time.sleep(0.01)
        report = ctypes.create_string_buffer(8192)
        complaints = fake.fake_end(path.encode(), report, len(report))
    assert complaints == 0, report.value.decode()


def run_case(case):
    case()
    gc.collect()
    if _domain.present() is not None:
        found = _domain.present().audit()
        assert found == [], found
        _domain.present().trim()
    _domain.leave()
    load_fake().fake_detach()


@pytest.fixture
def child(universe):
    """Runs a function in a forked child, which leaves its domain and then ends the driver."""

    def run(case):
        process = multiprocessing.get_context("fork").Process(target=run_case, args=(case,))
        process.start()
        process.join(WAIT_S)
        process.kill()
        assert process.exitcode == 0
        report = ctypes.create_string_buffer(8192)
        count = universe.fake_violations(report, len(report))
        universe.fake_forgive()
        assert count == 0, report.value.decode()

    return run


def on_device(shape=(2, 3), device="cuda:0"):
    return tenon.asarray(VALUES, "float32", device=device).reshape(shape)


def back(tensor):
    return tensor.to("cpu").tolist()


@contextlib.contextmanager
def held_stream():
    """The default stream of cuda:0 begins nothing until the end of the block."""
    fake, context = load_fake(), ctypes.c_void_p()
    assert fake.cuInit(0) == 0
    assert fake.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert fake.cuCtxPushCurrent_v2(context) == 0
    fake.fake_hold(None)
    try:
        yield
    finally:
        fake.fake_release(None)
    assert fake.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert fake.cuDevicePrimaryCtxRelease_v2(0) == 0


def give_work(tensor, size_bytes=8, value=7):
    """Have a kernel write the tensor; the stream is held, so it does not begin."""
    fake = load_fake()
    fake.fake_kernel_fill.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_ubyte]
    address = tensor.__cuda_array_interface__["data"][0]
    assert fake.fake_kernel_fill(None, address, size_bytes, value) == 0
