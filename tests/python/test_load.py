# SPDX-License-Identifier: Apache-2.0
"""Models that a host has once: load(), publish(), unload(), load_file(), and tenon.torch.load_state_dict()."""

import contextlib
import ctypes
import json
import os
import signal
from random import Random

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp
from tenon import _core, _domain, _model_files, _models

torch = pytest.importorskip("torch", reason="no PyTorch: dev/setup installs it")
import tenon.torch  # noqa: E402

WAIT_S = 60

mp.set_forkserver_preload(["numpy", "pytest", "torch", "tenon.multiprocessing", "tenon._models"])


@pytest.fixture
def place():
    """The name of a domain of this test's own, whose models are unloaded in the end."""
    name = f"models-{os.urandom(4).hex()}"
    yield name
    try:
        domain = _domain.aside(name, is_made=False)
    except tenon.NotFound:
        return
    store = _core.Store.open_or_create(domain, "models")
    for entry in store.entries(""):
        store.delete(entry[0])
    store.close()
    domain.reap()
    assert domain.audit() == []
    domain.close()


def tensors():
    return {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(1000), "n": np.array(7)}


def run(context, target, *arguments):
    """What a child puts into the queue that it gets last."""
    results = context.Queue()
    child = context.Process(target=target, args=(*arguments, results))
    child.start()
    result = results.get(timeout=WAIT_S)
    child.join(WAIT_S)
    assert child.exitcode == 0
    return result


def inode_at(address):
    """The inode and the rights of the mapping that has this address."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, rights, _, device, inode = line.split()[:5]
            begin, end = (int(part, 16) for part in span.split("-"))
            if begin <= address < end:
                return device, inode, rights
    return None


def inode_of(array):
    address = array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data
    return inode_at(address)[:2]


# ---- one process


def test_a_model_comes_back_as_read_only_arrays_in_order(place):
    tenon.publish("net", tensors(), domain=place, metadata={"kind": "t\u00e4st"})
    model = tenon.load("net", domain=place)
    assert isinstance(model, dict) and list(model) == ["w", "b", "n"]
    for name, array in tensors().items():
        assert type(model[name]) is np.ndarray and model[name].dtype == array.dtype
        assert model[name].shape == array.shape and model[name].tolist() == array.tolist()
        with pytest.raises(ValueError, match="read-only"):
            model[name][...] = 1
    assert model.metadata == {"kind": "t\u00e4st"} and model.files == []


def test_a_model_does_not_become_the_domain_of_the_process(place):
    tenon.publish("net", tensors(), domain=place)
    assert _domain.present() is None or _domain.present().name != place
    assert tenon.zeros(3).domain.name != place


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 1)])
@pytest.mark.parametrize("dtype", ["float64", "bool", "uint8", "complex64", "int16"])
def test_every_shape_and_dtype_comes_back(place, shape, dtype):
    array = np.ones(shape, dtype)
    tenon.publish("net", {"first": np.ones(3, np.uint8), "x": array, "y": array.copy()}, domain=place)
    model = tenon.load("net", domain=place)
    state = tenon.torch.load_state_dict("net", domain=place)
    for name in "x", "y":
        assert model[name].shape == shape and model[name].dtype == array.dtype
        assert model[name].tolist() == array.tolist() and not model[name].flags.writeable
        assert state[name].shape == shape and state[name].tolist() == array.tolist()


def test_an_empty_model_and_one_of_empty_tensors_come_back(place):
    tenon.publish("none", {}, domain=place)
    tenon.publish("empty", {"x": np.ones((0, 3)), "y": torch.ones(2, 0)}, domain=place)
    assert tenon.load("none", domain=place) == {} and tenon.torch.load_state_dict("none", domain=place) == {}
    assert [array.shape for array in tenon.load("empty", domain=place).values()] == [(0, 3), (2, 0)]
    assert tenon.torch.load_state_dict("empty", domain=place)["y"].dtype == torch.float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_what_numpy_lacks_is_a_read_only_tensor(place, dtype):
    weights = torch.tensor([1.0, -2.0, 0.5]).to(getattr(torch, dtype))
    tenon.publish("net", {"x": weights, "scalar": weights[1]}, domain=place)
    model, state = tenon.load("net", domain=place), tenon.torch.load_state_dict("net", domain=place)
    assert type(model["x"]) is tenon.Tensor and model["x"].dtype == dtype and model["x"].tolist() == [1, -2, 0.5]
    assert state["x"].dtype == weights.dtype and state["x"].float().tolist() == [1, -2, 0.5]
    assert state["scalar"].shape == () and state["scalar"].float().item() == -2


def test_whatever_has_elements_can_be_published(place):
    given = {
        "big-endian": np.arange(3, dtype=">f4"),
        "strided": np.arange(6).reshape(2, 3).T,
        "tenon": tenon.full((2,), 3, "int16"),
        "bytes": b"abc",
        "list": [1, 2],
        "parameter": torch.nn.Parameter(torch.ones(2, 3).t()),
        "conjugate": torch.tensor([1 + 2j]).conj(),
    }
    tenon.publish("net", given, domain=place)
    model = tenon.load("net", domain=place)
    assert model["big-endian"].tolist() == [0, 1, 2] and model["strided"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert model["tenon"].tolist() == [3, 3] and model["bytes"].tobytes() == b"abc" and model["list"].tolist() == [1, 2]
    assert model["parameter"].shape == (3, 2) and model["conjugate"].tolist() == [1 - 2j]


def test_tied_weights_take_memory_once(place):
    weights = torch.ones(1000)
    tenon.publish("net", {"a": weights, "b": weights, "part": weights[:5]}, domain=place)
    state = tenon.torch.load_state_dict("net", domain=place)
    assert state["a"].data_ptr() == state["b"].data_ptr() != state["part"].data_ptr()


def test_what_is_no_tensor_is_refused_by_its_name(place):
    with pytest.raises(TypeError, match="'bad' cannot be published"):
        tenon.publish("net", {"x": np.ones(3), "bad": np.array([object()])}, domain=place)
    with pytest.raises(TypeError, match="'bad' cannot be published.*strided"):
        tenon.publish("net", {"bad": torch.eye(3).to_sparse()}, domain=place)
    with pytest.raises(TypeError, match="names of tensors are str"):
        tenon.publish("net", {3: np.ones(3)}, domain=place)
    with pytest.raises(TypeError, match="metadata is a mapping of str to str"):
        tenon.publish("net", {}, domain=place, metadata={"a": 3})
    with pytest.raises(tenon.Invalid, match="NUL"):
        tenon.publish("net", {"a\0": np.ones(3)}, domain=place)
    with pytest.raises(tenon.Invalid, match="UTF-8"):
        tenon.publish("net", {"\ud800": np.ones(3)}, domain=place)
    with pytest.raises(tenon.Invalid, match="the key is empty"):
        tenon.publish("", {}, domain=place)
    with pytest.raises(TypeError, match="the domain of a model is a name"):
        tenon.publish("net", {}, domain=tenon.domain())
    with pytest.raises(tenon.NotFound):
        tenon.load("net", domain=place)


def test_a_missing_model_is_an_error_that_says_how_to_load_it(place):
    for call in tenon.load, tenon.unload, tenon.torch.load_state_dict:
        with pytest.raises(tenon.NotFound, match=f"the domain '{place}' has no model 'net'.*--domain={place} net FILE"):
            call("net", domain=place)
    assert not [found for found in _core.inspect_domains() if found["name"] == place]
    tenon.publish("other", {}, domain=place)
    for call in tenon.load, tenon.unload:
        with pytest.raises(tenon.NotFound, match="tenon load"):
            call("net", domain=place)


def test_a_name_is_published_once(place):
    tenon.publish("net", {"x": np.ones(3)}, domain=place)
    with pytest.raises(tenon.Exists, match=f"'{place}' has a model 'net' already: unload"):
        tenon.publish("net", {"x": np.zeros(3)}, domain=place)
    assert tenon.load("net", domain=place)["x"].tolist() == [1] * 3
    tenon.unload("net", domain=place)
    tenon.publish("net", {"x": np.zeros(3)}, domain=place)
    assert tenon.load("net", domain=place)["x"].tolist() == [0] * 3


class First:
    """An array that another publisher of the same name is faster than."""

    def __init__(self, place):
        self.place = place

    def __array__(self, dtype=None, copy=None):
        tenon.publish("net", {"x": np.zeros(3)}, domain=self.place)
        return np.ones(3)


def test_the_slower_one_of_two_publishers_is_told(place):
    with pytest.raises(tenon.Exists, match="has a model 'net' already"):
        tenon.publish("net", {"x": First(place)}, domain=place)
    assert tenon.load("net", domain=place)["x"].tolist() == [0] * 3


def test_arrays_stay_valid_after_the_model_is_unloaded(place):
    tenon.publish("net", tensors(), domain=place)
    model, state = tenon.load("net", domain=place), tenon.torch.load_state_dict("net", domain=place)
    tenon.unload("net", domain=place)
    with pytest.raises(tenon.NotFound):
        tenon.load("net", domain=place)
    assert model["b"].sum() == 1000 and state["b"].sum() == 1000
    del model["w"], model["n"]
    assert model["b"].sum() == 1000


def test_a_model_ends_with_its_lifetime(place):
    tenon.publish("net", tensors(), domain=place, lifetime=0.2)
    store = _models.open_store(place, is_made=False)
    assert 0 < store.entries("")[0][3] <= 0.2
    version = store.info()[5]
    store.wait("net", version, WAIT_S)
    store.close()
    with pytest.raises(tenon.NotFound):
        tenon.load("net", domain=place)


GOOD = {"format": "tenon.model", "version": 1, "names": ["x"], "metadata": {}, "files": []}


@pytest.mark.parametrize(
    "said, kind, words",
    [
        (b"", tenon.Invalid, "not JSON"),
        (b"\xff", tenon.Invalid, "not JSON"),
        (b"{", tenon.Invalid, "not JSON"),
        (b"[]", tenon.Invalid, "format is not 'tenon.model'"),
        (b"{}", tenon.Invalid, "format is not 'tenon.model'"),
        ({**GOOD, "format": "gguf"}, tenon.Invalid, "format is not 'tenon.model'"),
        ({**GOOD, "version": 2}, tenon.VersionMismatch, "version 2 .*reads version 1"),
        ({**GOOD, "version": None}, tenon.VersionMismatch, "version None"),
        ({**GOOD, "names": "x"}, tenon.Invalid, "no list of names"),
        ({**GOOD, "names": [3]}, tenon.Invalid, "no list of names"),
        ({**GOOD, "names": ["x", "y"]}, tenon.Invalid, "2 names and 1 tensors"),
        ({**GOOD, "metadata": {"a": 3}}, tenon.Invalid, "metadata"),
        ({**GOOD, "metadata": None}, tenon.Invalid, "metadata"),
        ({**GOOD, "files": {}}, tenon.Invalid, "files"),
    ],
)
def test_a_value_that_is_no_model_is_refused(place, said, kind, words):
    store = _models.open_store(place, is_made=True)
    said = said if isinstance(said, bytes) else json.dumps(said).encode()
    store.put_parts("net", (said, [store.domain.zeros((3,), "float32")]))
    with pytest.raises(kind, match=words):
        tenon.load("net", domain=place)
    store.close()


def test_a_tensor_need_not_be_aligned(place):
    store = _models.open_store(place, is_made=True)
    whole = store.domain.empty((13,), "uint8", strategy="file_descriptor", write_once=True)
    view = whole.view((3,), "float32", None, 1)
    view[...] = 2.5
    store.put_parts("net", (json.dumps(GOOD).encode(), [view]))
    del view, whole
    model, state = tenon.load("net", domain=place), tenon.torch.load_state_dict("net", domain=place)
    assert model["x"].tolist() == state["x"].tolist() == [2.5] * 3
    assert model["x"].ctypes.data == state["x"].data_ptr()
    store.close()


def test_two_tensors_of_one_name_are_refused(place):
    store = _models.open_store(place, is_made=True)
    tensor = store.domain.zeros((3,), "float32")
    store.put_parts("net", (json.dumps({**GOOD, "names": ["x", "x"]}).encode(), [tensor, tensor]))
    with pytest.raises(tenon.Invalid, match="two tensors of one name"):
        tenon.load("net", domain=place)
    store.close()
    del tensor


def test_parts_that_are_none_are_refused(place):
    store = _models.open_store(place, is_made=True)
    for parts in b"x", (b"x",), (3, []), (b"x", [3]), (b"x", 3):
        with pytest.raises(TypeError):
            store.put_parts("net", parts)
        with pytest.raises(TypeError):
            store.parts_or_make("net", lambda parts=parts: parts)
    assert store.parts_or_make("net", lambda: (b"x", [])) == (b"x", [])
    store.close()


def load_in_child(place, gate, results):
    gate.release()
    results.put(tenon.load("net", domain=place, timeout=WAIT_S)["b"].sum())


def test_a_load_waits_for_a_model_that_comes(place, fork):
    gate, results = fork.Semaphore(0), fork.Queue()
    child = fork.Process(target=load_in_child, args=(place, gate, results))
    child.start()
    assert gate.acquire(timeout=WAIT_S)
    tenon.publish("net", tensors(), domain=place)
    assert results.get(timeout=WAIT_S) == 1000
    child.join(WAIT_S)
    with pytest.raises(tenon.NotFound):
        tenon.load("gone", domain=place, timeout=0.01)


# ---- several processes


def look(place, results):
    model, state = tenon.load("net", domain=place), tenon.torch.load_state_dict("net", domain=place)
    array = model["b"]
    results.put(
        (inode_at(array.ctypes.data), array.ctypes.data == state["b"].data_ptr(), float(array.sum()),
         state["b"].untyped_storage().data_ptr() == state["w"].untyped_storage().data_ptr(), array.flags.writeable)
    )  # fmt: skip


def test_processes_have_one_memory_that_they_only_read(place, quick):
    tenon.publish("net", tensors(), domain=place)
    mine = inode_of(tenon.load("net", domain=place)["b"])
    (device, inode, rights), is_same, total, is_one_storage, is_writable = run(quick, look, place)
    assert (device, inode) == mine and inode != "0"
    assert is_same and is_one_storage and total == 1000 and not is_writable
    if quick.get_start_method() == "forkserver":  # a forked child has the mapping of its parent
        assert rights.startswith("r--")


def write_by_force(place, kind):
    if kind == "numpy":
        model = tenon.load("net", domain=place)
        ctypes.memset(model["b"].ctypes.data, 1, 8)
    else:
        state = tenon.torch.load_state_dict("net", domain=place)
        state["b"].zero_()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_forced_write_of_a_reader_dies_of_sigsegv(place, kind):
    tenon.publish("net", tensors(), domain=place)
    child = mp.get_context("forkserver").Process(target=write_by_force, args=(place, kind))
    child.start()
    child.join(WAIT_S)
    assert child.exitcode == -signal.SIGSEGV
    assert tenon.load("net", domain=place)["b"].sum() == 1000


def publish_and_end(place, results):
    tenon.publish("net", tensors(), domain=place)
    results.put(inode_of(tenon.load("net", domain=place)["b"]))


def test_a_model_outlives_its_publisher(place):
    inode = run(mp.get_context("forkserver"), publish_and_end, place)
    model = tenon.load("net", domain=place)
    assert inode_of(model["b"]) == inode and model["b"].sum() == 1000


def publish_and_die(place, where):
    def die(*arguments, **more):
        os.kill(os.getpid(), signal.SIGKILL)

    if where == "before the copy":
        _models._sources = die
    else:

        class Dying:
            def __init__(self, core):
                self.core = core

            def __getattr__(self, name):
                return die if name == "put_parts" else getattr(self.core, name)

        begin = _models.open_store
        _models.open_store = lambda *arguments, **more: Dying(begin(*arguments, **more))
    tenon.publish("net", tensors(), domain=place)


@pytest.mark.parametrize("where", ["before the copy", "before the put"])
def test_a_killed_publisher_leaves_nothing_under_the_name(place, where):
    child = mp.get_context("forkserver").Process(target=publish_and_die, args=(place, where))
    child.start()
    child.join(WAIT_S)
    assert child.exitcode == -signal.SIGKILL
    with pytest.raises(tenon.NotFound):
        tenon.load("net", domain=place)
    tenon.publish("net", tensors(), domain=place)
    assert tenon.load("net", domain=place)["b"].sum() == 1000


def hold(place, gate, results):
    model = tenon.load("net", domain=place)
    results.put("loaded")
    assert gate.acquire(timeout=WAIT_S)
    results.put(float(model["b"].sum()))


def test_an_unload_leaves_a_process_its_arrays(place, quick):
    tenon.publish("net", tensors(), domain=place)
    gate, results = quick.Semaphore(0), quick.Queue()
    child = quick.Process(target=hold, args=(place, gate, results))
    child.start()
    assert results.get(timeout=WAIT_S) == "loaded"
    tenon.unload("net", domain=place)
    gate.release()
    assert results.get(timeout=WAIT_S) == 1000
    child.join(WAIT_S)


def say_what_came(place, results):
    with contextlib.closing(tenon.Queue("q", domain=place)) as queue:
        weights = queue.get(timeout=WAIT_S)
        results.put((inode_of(weights), inode_at(weights.data_ptr())[2][:2], float(weights.sum())))


def test_a_queue_of_the_domain_sends_a_loaded_tensor_as_it_is(place):
    tenon.publish("net", tensors(), domain=place)
    state = tenon.torch.load_state_dict("net", domain=place)
    with contextlib.closing(tenon.Queue("q", domain=place)) as queue:
        queue.put(state["b"])
        assert run(mp.get_context("forkserver"), say_what_came, place) == (inode_of(state["b"]), "r-", 1000)


def add_one(weights, results):
    weights += 1
    results.put(float(weights.sum()))


def test_another_domain_gets_a_copy_that_can_be_written(place):
    tenon.publish("net", tensors(), domain=place)
    state = tenon.torch.load_state_dict("net", domain=place)
    assert run(mp.get_context("forkserver"), add_one, state["b"]) == 2000
    assert state["b"].sum() == 1000


# ---- files


def test_a_npz_and_a_pt_become_models(place, tmp_path):
    np.savez(tmp_path / "a.npz", **tensors())
    torch.save({"x": torch.ones(3, dtype=torch.bfloat16)}, tmp_path / "a.pt")
    old = tmp_path / "old.pth"
    torch.save({"x": torch.ones(3)}, old, _use_new_zipfile_serialization=False)
    model = tenon.load_file("npz", tmp_path / "a.npz", domain=place)
    assert list(model) == ["w", "b", "n"] and model["b"].sum() == 1000 and not model["b"].flags.writeable
    assert [file["path"] for file in model.files] == [str((tmp_path / "a.npz").resolve())]
    assert model.files[0]["bytes"] == os.path.getsize(tmp_path / "a.npz")
    assert tenon.load("npz", domain=place).files == model.files
    assert tenon.load_file("pt", tmp_path / "a.pt", domain=place)["x"].dtype == "bfloat16"
    assert tenon.load_file("old", str(old), domain=place)["x"].tolist() == [1] * 3


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_file_that_has_more_than_tensors_is_refused(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Evil()}, "evil.pt")
    torch.save({"epoch": 3}, "number.pt")
    torch.save([torch.ones(3)], "list.pt")
    np.savez("evil.npz", x=np.array([Evil()]))
    for path, words in {
        "evil.pt": "(?s)more than tensors.*mkdir",
        "number.pt": "a int under 'epoch'",
        "list.pt": "a list, not tensors by name",
        "a.safetensors": "tenon load NAME FILE",
        "a.gguf": r"reads \.npz, \.pt, \.pth",
    }.items():
        with pytest.raises(tenon.Invalid, match=words):
            tenon.load_file("net", path, domain=place)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        tenon.load_file("net", "evil.npz", domain=place)
    with pytest.raises(FileNotFoundError, match="gone.npz"):
        tenon.load_file("net", "gone.npz", domain=place)
    assert not os.path.exists("evil")
    with pytest.raises(tenon.NotFound):
        tenon.load("net", domain=place)


def damage(data, random):
    """Some bytes of a file cut off, written over, or put in between."""
    at, count = random.randrange(len(data)), random.randrange(1, 40)
    end = {"cut": data[at + count :] if random.random() < 0.5 else b"", "over": data[at + count :], "between": data[at:]}
    how = random.choice(list(end))
    return data[:at] + (b"" if how == "cut" else random.randbytes(count)) + end[how]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["a.npz", "packed.npz", "a.pt", "old.pt"])
def test_a_damaged_file_is_invalid_and_named(place, tmp_path, name):
    path, random = tmp_path / name, Random(16)
    if name.endswith(".npz"):
        (np.savez if name == "a.npz" else np.savez_compressed)(path, x=np.arange(100.0), y=np.zeros((2, 2)))
    else:
        weights = {"x": torch.arange(100.0), "y": torch.zeros(2, 2)}
        torch.save(weights, path, _use_new_zipfile_serialization=name == "a.pt")
    data, refused = path.read_bytes(), 0
    for _ in range(60):
        path.write_bytes(damage(data, random))
        try:
            tenon.load_file("net", path, domain=place)
        except tenon.Invalid as error:
            assert name in str(error)
            refused += 1
        else:
            tenon.unload("net", domain=place)
    assert refused > 30


@pytest.mark.parametrize(
    "write, words",
    [
        (lambda path: np.save(path.open("wb"), np.ones(3)), "one array without a name"),
        (lambda path: np.savez(path, x=np.array(["text"])), "'x' cannot be published"),
        (lambda path: path.touch(), "damaged.*EOFError"),
    ],
)
def test_a_npz_without_arrays_of_numbers_is_invalid(place, tmp_path, write, words):
    write(tmp_path / "a.npz")
    with pytest.raises(tenon.Invalid, match=rf"a\.npz.*{words}"):
        tenon.load_file("net", tmp_path / "a.npz", domain=place)


def test_another_file_under_one_name_is_refused(place, tmp_path):
    for name in "a", "b":
        np.savez(tmp_path / f"{name}.npz", x=np.ones(3))
    tenon.load_file("net", tmp_path / "a.npz", domain=place)
    with pytest.raises(tenon.Exists, match=r"a model 'net' of \S+a\.npz: unload"):
        tenon.load_file("net", tmp_path / "b.npz", domain=place)
    os.utime(tmp_path / "a.npz", ns=(1, 1))
    with pytest.raises(tenon.Exists, match=r"a\.npz as it was before"):
        tenon.load_file("net", tmp_path / "a.npz", domain=place)
    tenon.publish("bare", {}, domain=place)
    with pytest.raises(tenon.Exists, match="of no file"):
        tenon.load_file("bare", tmp_path / "a.npz", domain=place)


def test_a_file_that_changes_while_it_is_read_is_not_loaded(place, tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones(3))
    read = _model_files._READERS[".npz"]

    def read_and_write(path, *more):
        found = read(path, *more)
        np.savez(path, x=np.zeros(4))
        return found

    monkeypatch.setitem(_model_files._READERS, ".npz", read_and_write)
    with pytest.raises(tenon.Invalid, match="a.npz was changed while it was read"):
        tenon.load_file("net", path, domain=place)
    monkeypatch.undo()
    assert len(tenon.load_file("net", path, domain=place)["x"]) == 4


def load_and_count(place, path, start, reads, results):
    read = _model_files._READERS[".npz"]

    def counted(path, *more):
        reads.release()
        return read(path, *more)

    _model_files._READERS[".npz"] = counted
    start.wait(WAIT_S)
    results.put(float(tenon.load_file("net", path, domain=place)["b"].sum()))


def test_eight_processes_load_a_file_once(place, tmp_path, quick):
    np.savez(tmp_path / "a.npz", **tensors())
    start, reads, results = quick.Barrier(8), quick.Semaphore(0), quick.Queue()
    arguments = (place, tmp_path / "a.npz", start, reads, results)
    children = [quick.Process(target=load_and_count, args=arguments) for _ in range(8)]
    for child in children:
        child.start()
    assert [results.get(timeout=WAIT_S) for _ in children] == [1000] * 8
    for child in children:
        child.join(WAIT_S)
        assert child.exitcode == 0
    assert reads.acquire(block=False) and not reads.acquire(block=False)


def read_and_die(place, path):
    _model_files._READERS[".npz"] = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    tenon.load_file("net", path, domain=place)


def test_a_reader_that_is_killed_is_followed_by_another(place, tmp_path):
    np.savez(tmp_path / "a.npz", **tensors())
    child = mp.get_context("forkserver").Process(target=read_and_die, args=(place, tmp_path / "a.npz"))
    child.start()
    assert tenon.load_file("net", tmp_path / "a.npz", domain=place)["b"].sum() == 1000
    child.join(WAIT_S)
    assert child.exitcode in (0, -signal.SIGKILL)
    assert tenon.load("net", domain=place)["b"].sum() == 1000


# ---- modules of PyTorch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2)

    def forward(self, x):
        return self.two(torch.relu(self.norm(self.one(x))))


def infer(place, x, results):
    net = Net().eval()
    state = tenon.torch.load_state_dict("net", domain=place)
    net.load_state_dict(state, assign=True)
    assert net.one.weight.data_ptr() == state["one.weight"].data_ptr()
    with torch.no_grad():
        results.put((net(x).tolist(), inode_of(net.two.weight)))


def test_a_module_takes_its_weights_from_the_model(place):
    net, x = Net().eval(), torch.randn(4, 8)
    tenon.publish("net", net.state_dict(), domain=place)
    with torch.no_grad():
        expected = net(x)
    found, inode = run(mp.get_context("forkserver"), infer, place, x)
    assert torch.allclose(torch.tensor(found), expected)
    assert inode == inode_of(tenon.load("net", domain=place)["two.weight"])
