# SPDX-License-Identifier: Apache-2.0
"""Tensors on ROCm devices, with the fake driver of tests/fakecuda in HIP's dress."""

import ctypes
import os

import pytest
from devices import DEVICES, MEMORY_BYTES, VALUES, Options, back

import tenon
from tenon import _core

DRIVER = os.environ.get("TENON_TEST_FAKEHIP")
pytestmark = pytest.mark.skipif(DRIVER is None, reason="TENON_TEST_FAKEHIP names no fake driver")


@pytest.fixture(autouse=True)
def rocm(tmp_path, monkeypatch):
    """A universe for each test. The test runs in a forked child, which leaves all free."""
    path = str(tmp_path / "universe")
    fake = ctypes.CDLL(DRIVER)
    assert fake.fake_make(path.encode(), ctypes.byref(Options(device_count=DEVICES, no_races=True))) == 0
    monkeypatch.setenv("TENON_HIP_LIBRARY", DRIVER)
    monkeypatch.setenv("TENON_CUDA_LIBRARY", "/nonexistent/libcuda.so.1")
    monkeypatch.setenv("TENON_FAKECUDA", path)
    yield
    os.unlink(path)


def run(case):
    """Run a function in a forked child: this process must never use the driver itself."""
    pid = os.fork()
    if pid == 0:
        try:
            case()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def on_rocm(device="rocm:0"):
    return tenon.asarray(VALUES, "float32", device=device)


def test_devices_are_listed_by_their_type():
    @run
    def case():
        first, second = tenon.devices()
        assert (first.name, second.name) == ("rocm:0", "rocm:1")
        assert first.uuid != second.uuid
        assert (first.memory_bytes, first.driver_version, first.shares) == (MEMORY_BYTES, 71300000, True)
        assert on_rocm(second).device == "rocm:1"


def test_tensor_goes_there_and_back():
    @run
    def case():
        tensor = on_rocm()
        assert (tensor.device, tensor.strategy) == ("rocm:0", "cuda_vmm")
        assert back(tensor) == VALUES
        assert back(tenon.asarray(VALUES, "float32").to("rocm:1")) == VALUES


def test_dlpack_names_the_device_and_takes_it():
    @run
    def case():
        tensor = on_rocm()
        assert tensor.__dlpack_device__() == (10, 0)
        again = _core.from_dlpack(tensor)
        assert (again.device, back(again)) == ("rocm:0", VALUES)


def test_dlpack_has_the_streams_of_rocm():
    @run
    def case():
        tensor = on_rocm()
        for stream in (None, 0, -1):
            assert tensor.__dlpack__(stream=stream) is not None
        for stream in (1, 2, -2):
            with pytest.raises(ValueError, match=f"stream={stream}"):
                tensor.__dlpack__(stream=stream)
