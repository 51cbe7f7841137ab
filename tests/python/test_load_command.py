# SPDX-License-Identifier: Apache-2.0
"""What `tenon load` has loaded, from Python: the same tensors as the library safetensors reads."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import tenon

torch = pytest.importorskip("torch", reason="no PyTorch: dev/setup installs it")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="no safetensors: dev/setup installs it")
import tenon.torch  # noqa: E402

TENON = pathlib.Path(tenon.__file__).with_name("bin") / "tenon"
if not TENON.exists():
    pytest.skip("the command tenon was not built", allow_module_level=True)


@pytest.fixture
def load(tmp_path):
    """Load tensors by the command, under a name; the name of a domain of this test's own comes with it."""
    domain, names = f"models-{os.urandom(4).hex()}", []

    def load(name, tensors, **metadata):
        path = tmp_path / f"{name}.safetensors"
        safetensors_torch.save_file(tensors, path, metadata=metadata)
        subprocess.check_call([TENON, "load", "--quiet", "--domain", domain, name, path])
        names.append(name)
        return path

    load.domain = domain
    yield load
    for name in names:
        subprocess.check_call([TENON, "unload", "--domain", domain, name])


def weights():
    torch.manual_seed(1)
    return {
        "embed.weight": torch.randn(50, 16).to(torch.bfloat16),
        "layer.0.weight": torch.randn(16, 16),
        "layer.0.bias": torch.randn(16, dtype=torch.float64),
        "ids": torch.arange(10),
        "mask": torch.tensor([[True, False], [False, True]]),
        "scale": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
    }


def test_load_has_what_the_file_has(load):
    path = load("net", weights(), made_by="a test")
    model = tenon.load("net", domain=load.domain)
    assert model.metadata == {"made_by": "a test"}
    assert [file["path"] for file in model.files] == [str(path)]
    assert model.files[0]["bytes"] == path.stat().st_size
    assert model.files[0]["modified_ns"] == path.stat().st_mtime_ns
    expected = weights()
    assert set(model) == set(expected)
    np.testing.assert_array_equal(model["layer.0.weight"], expected["layer.0.weight"].numpy())
    np.testing.assert_array_equal(model["mask"], expected["mask"].numpy())
    assert not model["layer.0.weight"].flags.writeable


def test_load_state_dict_has_what_load_file_has(load):
    path = load("net", weights())
    ours = tenon.torch.load_state_dict("net", domain=load.domain)
    theirs = safetensors_torch.load_file(path)
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name], tensor)


def test_a_module_computes_with_loaded_weights(load):
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    load("net", module.state_dict())
    other = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    state = tenon.torch.load_state_dict("net", domain=load.domain)
    other.load_state_dict(state, assign=True)
    assert other[0].weight.data_ptr() == state["0.weight"].data_ptr()
    x = torch.randn(3, 8)
    assert torch.equal(other(x), module(x))
