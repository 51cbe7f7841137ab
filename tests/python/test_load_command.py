# SPDX-License-Identifier: Apache-2.0
"""What `tenon load` has loaded, from Python: the same tensors as the libraries that write the files."""

import json
import os
import pathlib
import pty
import re
import subprocess
import sys

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


# ---- files that Python reads


@pytest.fixture
def command(tmp_path):
    """Run the command in a domain of this test's own."""
    domain = f"models-{os.urandom(4).hex()}"

    def run(verb, *arguments, stderr=subprocess.PIPE, **variables):
        environment = {**os.environ, "TENON_PYTHON": sys.executable, **variables}
        whole = [TENON, verb, "--domain", domain, *arguments]
        return subprocess.run(
            whole, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True
        )

    run.domain = domain
    return run


def test_files_of_numpy_and_pytorch_are_loaded_by_the_command(command, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(6.0).reshape(2, 3), empty=np.zeros(0))
    torch.save({"w": torch.ones(20, dtype=torch.bfloat16), "b": torch.arange(3)}, tmp_path / "b.PT")
    (tmp_path / "numpy.py").write_text("raise SystemExit('a module of the working folder was imported')")
    assert command("load", "a", "a.npz").stdout == "a is loaded: 2 tensors, 64 B\n"
    assert command("load", "a", "a.npz").stdout == "a was loaded before: 2 tensors, 64 B\n"
    report = {"name": "b", "domain": command.domain, "is_new": True, "tensors": 2, "bytes": 128}
    assert json.loads(command("load", "--json", "b", "b.PT").stdout) == report
    np.testing.assert_array_equal(tenon.load("a", domain=command.domain)["x"], [[0, 1, 2], [3, 4, 5]])
    assert torch.equal(tenon.torch.load_state_dict("b", domain=command.domain)["b"], torch.arange(3))
    assert [command("unload", name).returncode for name in "ab"] == [0, 0]


def test_a_lifetime_and_quiet_reach_the_reader_in_python(command, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    done = command("load", "--quiet", "--for", "2h", "a", "a.npz")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    store = tenon.Store("models", domain=command.domain)
    assert 7000 < store.entries()[0].seconds_left <= 7200
    store.close()
    command("unload", "a")


def test_a_terminal_shows_the_progress_of_the_reader_in_python(command, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(1000, "float32"), y=np.ones(8))
    torch.save({"w": torch.ones(1024)}, tmp_path / "b.pt")
    for name, options, words in [
        ("a.npz", [], r"m:  50 %.*m: 100 %, 4\.0 KiB of 4\.0 KiB, \S+ \w+/s"),
        ("b.pt", [], r"m: 100 %, 4\.0 KiB of 4\.0 KiB, \S+ \w+/s"),
        ("b.pt", ["--quiet"], "$"),
    ]:
        try:
            ours, theirs = pty.openpty()
        except OSError as error:
            pytest.skip(f"this machine gives out no terminal: {error}")
        assert command("load", *options, "m", name, stderr=theirs).returncode == 0
        os.close(theirs)
        try:
            shown = os.read(ours, 1 << 16).decode()
        except OSError:  # nobody has written
            shown = ""
        os.close(ours)
        assert re.search(words, shown.replace("\r", " ")) and shown.split("\r")[-1] == ""  # cleared in the end
        command("unload", "m")


def test_what_python_does_not_load_is_an_error_of_the_command(command, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    np.savez(tmp_path / "b.npz", x=np.ones(4))
    (tmp_path / "damaged.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-9])
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    command("load", "a", "a.npz")
    for arguments, code, words in [
        (["a", "b.npz"], 1, "`tenon unload a' removes that"),
        (["c", "damaged.npz"], 1, "damaged.npz is damaged"),
        (["c", "module.pt"], 1, "has more than tensors"),
        (["c", "none.pt"], 1, "none.pt: No such file or directory"),
        (["c", "a.npz", "b.npz"], 2, "a model by itself"),
    ]:
        done = command("load", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert words in done.stderr and "Traceback" not in done.stderr
    assert list(tenon.load("a", domain=command.domain)) == ["x"]
    command("unload", "a")


def test_a_python_without_tenon_or_none_is_named(command, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    bare.chmod(0o755)
    for python, words in [(str(bare), "lacks (No module named 'tenon')"), ("/none", "/none reads such a file")]:
        done = command("load", "a", "a.npz", TENON_PYTHON=python)
        assert done.returncode == 1 and words in done.stderr
